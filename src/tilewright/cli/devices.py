"""``tilewright devices``: what there is to compute on."""

from __future__ import annotations

from dataclasses import asdict

from tilewright.cli.output import JsonOption, emit_json, emit_table, say

__all__ = ["command"]


def command(json: JsonOption = False) -> None:
    """List the devices here, the best first; the first is used unless you name another."""
    from rich.table import Table

    from tilewright.backend import devices

    found = devices()
    if json:
        emit_json(
            [
                {
                    "id": d.id,
                    "backend": d.backend,
                    "platform": d.platform,
                    "driver": d.driver,
                    "fingerprint": d.fingerprint,
                    **asdict(d.spec),
                }
                for d in found
            ]
        )
        return
    if not found:
        say("no device: install the pocl-binary-distribution package or your GPU's OpenCL driver")
        return
    table = Table("id", "device", "kind", "units", "local KiB", "fp64", "platform", "fingerprint")
    for d in found:
        s = d.spec
        table.add_row(
            d.id,
            s.name,
            s.kind,
            str(s.multiprocessors),
            str(s.shared_bytes_per_block // 1024),
            "yes" if s.has_fp64 else "no",
            d.platform,
            d.fingerprint,
        )
    emit_table(table)
