"""The report's sections, one file each, in the order in which they are shown."""

from dataclasses import replace

from tilewright.report.gather import Gathered
from tilewright.report.model import Section
from tilewright.report.sections import (
    accuracy,
    best,
    devices,
    funnel,
    importance,
    ladder,
    mix,
    progress,
    roofline,
    shapes,
    share,
    sizes,
    sources,
    summary,
    tensor,
)

__all__ = ["make_sections"]

_OF_DEVICES = (
    best, share, sizes, shapes, tensor, roofline, ladder, progress, importance, funnel,
    accuracy, devices
)  # fmt: skip
_OTHERS = "Committed results of other devices"


def make_sections(data: Gathered) -> tuple[Section, ...]:
    """Return every section: your devices' first, then what results files hold of others.

    A section of your devices without data says which command makes it; one whose command none of
    them can run is left out.
    """
    mine, others = data.only(yours=True), data.only(yours=False)
    # Where others alone were measured, the first section says what to do here.
    own = [one.section(mine) for one in _OF_DEVICES if mine.devices or not others.devices]
    if mine.devices and not any(one.measured.backend == "cuda" for one in mine.devices):
        own = [one for one in own if not (one.empty and one.cuda)]
    told = [replace(found, id=f"other-{found.id}", part=_OTHERS) for found in (
        one.section(others) for one in _OF_DEVICES) if not found.empty]  # fmt: skip
    rest = [replace(one.section(data), part="Machine code and files") for one in (mix, sources)]
    return (summary.section(mine), *own, *told, *rest)
