"""The report's sections, one file each, in the order in which they are shown."""

from tilewright.report.gather import Gathered
from tilewright.report.model import Section
from tilewright.report.sections import (
    accuracy,
    best,
    devices,
    funnel,
    ladder,
    mix,
    progress,
    roofline,
    share,
    sizes,
    sources,
)

__all__ = ["make_sections"]

_ALL = (devices, funnel, progress, best, sizes, roofline, ladder, accuracy, share, mix, sources)


def make_sections(data: Gathered) -> tuple[Section, ...]:
    """Return every section; one without data says which command makes it."""
    return tuple(one.section(data) for one in _ALL)
