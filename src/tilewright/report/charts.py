"""Charts as SVG, by matplotlib: plain data in, one drawing out, the same for the same data."""

from __future__ import annotations

import io
import warnings
from collections.abc import Sequence
from math import log10
from textwrap import shorten
from typing import Any

from tilewright.report.model import Bars, Chart, Columns, Curve, Curves, Rows
from tilewright.report.svg import COLOURS, colour
from tilewright.text import install_hint

__all__ = ["draw"]

# Drawn about as wide as a phone shows them, so that letters keep their size there.
_WIDTH = 4.5
_HEIGHT = 2.8
_ROW_HEIGHT = 0.23
_LEGEND_ROW = 0.2
# Letters that one line of the legend holds, and what a mark takes of them.
_LEGEND_LETTERS, _LEGEND_MARK = 62, 7
_LABEL = 25
# Numbers that fit under lying bars, half of whose figure is names.
_ROW_MARKS = 5
_SETTINGS = {
    "font.family": "DejaVu Sans",  # comes with matplotlib: no search, no warning
    "font.size": 9.5,
    "svg.fonttype": "none",
    "svg.hashsalt": "tilewright",
    "text.parse_math": False,  # names come from files; "$" means itself
    "text.color": colour("ink"),
    "axes.labelcolor": colour("ink"),
    "axes.edgecolor": colour("rule"),
    "axes.facecolor": "none",
    "axes.linewidth": 0.8,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": colour("grid"),
    "grid.linewidth": 0.6,
    "xtick.color": colour("rule"),
    "ytick.color": colour("rule"),
    "xtick.labelcolor": colour("ink"),
    "ytick.labelcolor": colour("ink"),
    "xtick.labelsize": 8.5,
    "ytick.labelsize": 8.5,
    "figure.facecolor": "none",
    "legend.frameon": False,
    "legend.fontsize": 8.5,
    "hatch.linewidth": 0.8,
    "hatch.color": colour("surface"),
}
# Form tells what colour alone must not: roles differ in marks and hatches too.
_MARKERS = {"tilewright": "o", "cublas": "s", "numpy": "^", "clblast": "D", "ladder": "P"}
_HATCHES = {"cublas": "///", "numpy": "...", "clblast": "xxx", "second": "///", "third": "..."}


def draw(chart: Chart) -> str:
    """Return a chart as an SVG document; colours are those of `tilewright.report.svg`.

    Raises
    ------
    RuntimeError
        If matplotlib is not installed.
    """
    try:
        import matplotlib
        from matplotlib.backends.backend_svg import FigureCanvasSVG
        from matplotlib.figure import Figure
    except ImportError:
        raise RuntimeError(f"a report needs matplotlib; {install_hint('report')}") from None
    # The user's own style must not change the report.
    defaults = {k: v for k, v in matplotlib.rcParamsDefault.items() if "backend" not in k}
    style: Any = {**defaults, **_SETTINGS}
    with matplotlib.rc_context(style), warnings.catch_warnings():
        # Only the measuring of a text that the bundled font lacks; browsers have others.
        warnings.filterwarnings("ignore", message="Glyph .* missing")
        columns, legend = _legend(chart)
        height = _HEIGHT
        if isinstance(chart, Rows):
            height = 0.6 + _ROW_HEIGHT * len(chart.categories)
        figure = Figure(figsize=(_WIDTH, height + _LEGEND_ROW * legend))
        FigureCanvasSVG(figure)
        axes = figure.add_axes(_place(chart, figure.get_figheight(), legend))
        if isinstance(chart, Curves):
            _curves(axes, chart)
        elif isinstance(chart, Columns):
            _columns(axes, chart)
        else:
            _rows(axes, chart)
        handles, names = axes.get_legend_handles_labels()
        if names:
            figure.legend(handles, names, loc="upper left", ncols=columns,
                          borderaxespad=0.1, handlelength=1.8, columnspacing=1.4)  # fmt: skip
        written = io.BytesIO()
        figure.savefig(written, format="svg", metadata={"Date": None})
    return written.getvalue().decode()


def _legend(chart: Chart) -> tuple[int, int]:
    """Return how many columns and rows the legend has."""
    parts: Sequence[Curve | Bars] = chart.curves if isinstance(chart, Curves) else chart.groups
    names = [part.name for part in parts if part.name]
    longest = max(map(len, names), default=0) + _LEGEND_MARK
    columns = max(1, min(len(names), _LEGEND_LETTERS // longest))
    return columns, -(-len(names) // columns)


def _place(chart: Chart, height: float, legend: int) -> tuple[float, float, float, float]:
    """Return where the axes are, in shares of the figure.

    Margins are fixed and not fitted to the texts: small multiples line up, and a chart takes
    half the time.
    """
    left = 1.75 if isinstance(chart, Rows) else 0.62
    bottom = 0.3 if isinstance(chart, Columns) else 0.48
    top = 0.1 + _LEGEND_ROW * legend
    return left / _WIDTH, bottom / height, 1 - (left + 0.12) / _WIDTH, 1 - (bottom + top) / height


def _logarithmic(axis: Any, ends: tuple[float, float], most: int = 8) -> None:
    """Make an axis logarithmic, with so many marks at most: at 1, 2 and 5 where it is short."""
    from matplotlib.ticker import LogLocator, NullFormatter

    getattr(axis.axes, f"set_{axis.axis_name}scale")("log")
    short = 3 * log10(ends[1] / ends[0]) <= most
    axis.set_major_locator(LogLocator(subs=(1, 2, 5) if short else (1,), numticks=most))
    axis.set_major_formatter(_told)
    axis.set_minor_formatter(NullFormatter())


def _told(value: float, _: object = None) -> str:
    """Return a mark on a logarithmic axis as text."""
    for least, sign in ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
        if value >= least:
            return f"{value / least:g} {sign}"
    return f"{value:g}" if value >= 0.01 else f"{value:.0e}".replace("e-0", "e-")


def _tint(role: str) -> str:
    """Return a role's colour; unknown ones are drawn like other things."""
    return colour(role if role in COLOURS else "fourth")


def _curves(axes: Any, chart: Curves) -> None:
    for one in chart.curves:
        if one.points:
            _curve(axes, one)
    points = [point for one in chart.curves for point in one.points]
    if chart.x_log and points:
        low, high = min(x for x, _ in points), max(x for x, _ in points)
        _logarithmic(axes.xaxis, (low, high))
        if low == high:
            axes.set_xlim(low / 2, high * 2)
    if chart.y_log and points:
        _logarithmic(axes.yaxis, (min(y for _, y in points), max(y for _, y in points)))
    else:
        axes.set_ylim(bottom=0)
    if chart.ticks:
        kept = _apart(chart.ticks)
        axes.set_xticks(kept, [f"{tick:.0f}" for tick in kept])
        axes.set_xticks([], minor=True)
    axes.set_xlabel(chart.x)
    axes.set_ylabel(chart.y)


def _apart(ticks: Sequence[float]) -> list[float]:
    """Return the ticks whose labels do not touch on a logarithmic axis, the largest first."""
    kept: list[float] = []
    for tick in sorted(set(ticks), reverse=True):
        # A label takes about a twelfth of the axis, which is seldom longer than two decades.
        if not kept or tick < kept[-1] / max(1.2, (max(ticks) / min(ticks)) ** (1 / 12)):
            kept.append(tick)
    return kept[::-1]


def _curve(axes: Any, one: Curve) -> None:
    x, y = zip(*one.points, strict=True)
    tint, label = _tint(one.role), one.name or "_nolegend_"
    marker = _MARKERS.get(one.role, "v")
    if one.style == "dots":
        size = 8 if one.role == "other" or len(x) > 60 else 18
        axes.scatter(x, y, s=size, marker=marker, color=tint, label=label, alpha=0.75)
    elif one.style == "crosses":
        axes.scatter(x, y, s=20, marker="x", color=tint, label=label, clip_on=False, zorder=3)
    elif one.style == "step":
        axes.step(x, y, where="post", color=tint, label=label, linewidth=1.8)
    elif one.style == "dashed":
        axes.plot(x, y, "--", color=tint, label=label, linewidth=1.3)
    else:
        axes.plot(x, y, marker=marker, markersize=4.5, color=tint, label=label, linewidth=1.6)


def _columns(axes: Any, chart: Columns) -> None:
    width = 0.82 / max(1, len(chart.groups))
    many = len(chart.groups) * len(chart.categories) > 12
    for at, group in enumerate(chart.groups):
        left = (at - (len(chart.groups) - 1) / 2) * width
        places = [i + left for i, value in enumerate(group.values) if value is not None]
        values = [value for value in group.values if value is not None]
        bars = axes.bar(places, values, width, label=group.name, **_fill(group))
        axes.bar_label(bars, fmt="%.3g", fontsize=6 if many else 8, rotation=90 if many else 0,
                       padding=2)  # fmt: skip
    axes.margins(y=0.14)
    axes.set_xticks(range(len(chart.categories)), [shorten(c, _LABEL) for c in chart.categories])
    axes.grid(False, axis="x")
    axes.set_ylabel(chart.y)


def _rows(axes: Any, chart: Rows) -> None:
    places = range(len(chart.categories))
    starts = [0.0] * len(chart.categories)
    stacked = sum(len([v for v in group.values if v]) for group in chart.groups) > len(places)
    for group in chart.groups:
        values = [value or 0.0 for value in group.values]
        bars = axes.barh(places, values, 0.72, left=starts, label=group.name, **_fill(group))
        if stacked:
            starts = [start + value for start, value in zip(starts, values, strict=True)]
        else:
            texts = [_shown(value) if value else "" for value in values]
            axes.bar_label(bars, texts,
                           fontsize=7.5, padding=3)  # fmt: skip
    known = [value for group in chart.groups for value in group.values if value]
    if chart.x_log and known:
        low, high = min(known) / 3, max(known)
        _logarithmic(axes.xaxis, (low, high), _ROW_MARKS)
        axes.set_xlim(low, high * (high / low) ** 0.35)  # room for the numbers
    else:
        axes.margins(x=0 if stacked else 0.25)
    axes.set_yticks(places, [shorten(c, _LABEL, placeholder="…") for c in chart.categories])
    axes.set_ylim(len(chart.categories) - 0.4, -0.6)
    axes.grid(False, axis="y")
    axes.set_xlabel(chart.x)


def _shown(value: float) -> str:
    """Return the number at the end of a bar."""
    if value < 1e4:
        return f"{value:,.4g}"
    return f"{value:,.0f}" if value < 1e8 else _told(float(f"{value:.3g}"))


def _fill(group: Bars) -> dict[str, Any]:
    return {
        "facecolor": _tint(group.role),
        "edgecolor": colour("surface"),  # before matplotlib 3.11 the hatch has it too
        "hatch": _HATCHES.get(group.role),
        "linewidth": 0,
    }
