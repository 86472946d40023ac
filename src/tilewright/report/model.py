"""What a report consists of, as plain data: sections, figures, their charts and their tables."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

__all__ = ["Bars", "Chart", "Columns", "Curve", "Curves", "Figure", "Rows", "Section", "Table"]

Style = Literal["line", "dashed", "step", "dots", "crosses"]


@dataclass(frozen=True)
class Curve:
    """One named line or cloud of points.

    Parameters
    ----------
    name : str
        What the legend says; empty for none.
    role : str
        What it shows: ``"tilewright"``, a peer's name, ``"bound"`` and so on; equal roles
        look alike in every figure.
    points : tuple of (float, float)
        Finite.
    style : str
        How they are drawn.
    """

    name: str
    role: str
    points: tuple[tuple[float, float], ...]
    style: Style = "line"


@dataclass(frozen=True)
class Curves:
    """Numbers against numbers."""

    x: str
    y: str
    curves: tuple[Curve, ...]
    x_log: bool = False
    y_log: bool = False
    # Where the axis is marked; the plotting library's own choice without.
    ticks: tuple[float, ...] = ()


@dataclass(frozen=True)
class Bars:
    """One bar in each category, None where there is nothing."""

    name: str
    role: str
    values: tuple[float | None, ...]


@dataclass(frozen=True)
class Columns:
    """Groups of standing bars."""

    y: str
    categories: tuple[str, ...]
    groups: tuple[Bars, ...]


@dataclass(frozen=True)
class Rows:
    """Lying bars, the first category on top; several groups are stacked."""

    x: str
    categories: tuple[str, ...]
    groups: tuple[Bars, ...]
    x_log: bool = False


Chart = Curves | Columns | Rows


@dataclass(frozen=True)
class Table:
    """A table of texts.

    Parameters
    ----------
    caption : str
        What it shows.
    columns : tuple of str
        Heads.
    rows : tuple of tuple of str
        As wide as the head.
    note : str
        What the table leaves out, if anything.
    """

    caption: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    note: str = ""


@dataclass(frozen=True)
class Figure:
    """A chart with its accessible name, and the numbers behind it.

    Parameters
    ----------
    title : str
        Its name, also for those who do not see it.
    description : str
        What one sees in it, in a sentence.
    chart : Chart
        What is drawn.
    table : Table
        The same as numbers.
    """

    title: str
    description: str
    chart: Chart
    table: Table


@dataclass(frozen=True)
class Section:
    """One part of the report.

    Parameters
    ----------
    id : str
        Anchor in the page.
    title, lead : str
        Heading, and what the section answers.
    tables : tuple of Table
        Shown openly.
    figures : tuple of Figure
        Each with its table behind it.
    missing : tuple of str
        What is not there, in a sentence each.
    command : str
        The command that makes the section's data; shown where there is none.
    facts : tuple of (str, str)
        Names and values, shown large before everything else.
    cuda : bool
        Whether its command needs a CUDA device.
    part : str
        Heading over this section and those that follow with the same one; empty for none.
    """

    id: str
    title: str
    lead: str
    tables: tuple[Table, ...] = ()
    figures: tuple[Figure, ...] = ()
    missing: tuple[str, ...] = ()
    command: str = ""
    facts: tuple[tuple[str, str], ...] = ()
    cuda: bool = False
    part: str = ""

    @property
    def empty(self) -> bool:
        """Whether there is nothing to show."""
        return not (self.tables or self.figures)
