"""What the report was made from."""

from __future__ import annotations

from tilewright.report.gather import Gathered
from tilewright.report.model import Section, Table

__all__ = ["section"]


def section(data: Gathered) -> Section:
    """Return files and counts, and which files could not be used."""
    rows = [
        ("store", f"{len(found):,} measurements", device.label)
        for device in data.devices
        if (found := data.tried.get(device.fingerprint))
    ]
    rows += [(name, "read", "") for name in data.results.files]
    rows += [(name, "not shown here", "") for name in data.results.other]
    rows += [(name, "left out", reason) for name, reason in data.results.left_out.items()]
    return Section(
        "sources",
        "Sources",
        "Everything above is drawn from these files; nothing is typed.",
        tables=(Table("Files", ("file", "state", "remark"), tuple(rows)),) if rows else (),
        command="tilewright tune --precision s --size 1024 --budget 60s",
    )
