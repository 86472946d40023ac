"""Figures of bounds, like the papers': drawn by ``tilewright bound --figure``."""

from __future__ import annotations

import io
from pathlib import Path
from textwrap import fill
from typing import TYPE_CHECKING, Any

from tilewright.bounds import curves
from tilewright.hardware.catalogue import CatalogueDevice
from tilewright.paths import write_atomically
from tilewright.precision import Precision
from tilewright.text import install_hint

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["draw_device", "draw_transfer"]

_SIZES = range(64, 8193, 64)  # Nakasato's Figure 7 ends before; the link still shows at 8192


def _pyplot() -> Any:
    """Import matplotlib, which is an extra, so that equal data give equal files.

    Raises
    ------
    RuntimeError
        If it is not installed.
    """
    try:
        import matplotlib
    except ImportError:
        raise RuntimeError(f"--figure needs matplotlib; {install_hint('figures')}") from None
    matplotlib.use("svg")
    matplotlib.rcParams["svg.hashsalt"] = "tilewright"
    from matplotlib import pyplot

    return pyplot


def draw_device(path: Path, device: CatalogueDevice, precision: Precision) -> None:
    """Draw Lai & Seznec's Figures 1 and 2, and the bound against the blocking factor.

    Parameters
    ----------
    path : Path
        An SVG file, which is replaced.
    device : CatalogueDevice
        A panel that needs an unknown number of it says so instead.
    precision : Precision
        Of the elements.
    """
    pyplot = _pyplot()
    figure = pyplot.figure(figsize=(12, 3.6), layout="constrained")
    share, mix, blocking = figure.subplots(1, 3)
    _lines(
        share, {n: [(x, 100 * y) for x, y in c] for n, c in curves.share_curves(precision).items()}
    )
    _label(share, "Multiply-adds in the main loop (Figure 1)", "register blocking factor", "%")
    try:
        modelled, known = curves.throughput_curves(device)
        _lines(mix, modelled)
        kind = " and ".join(sorted({m.kind for m in device.mixes}))
        for (name, points), line in zip(known.items(), _styles(mix, known), strict=True):
            mix.plot(*zip(*points, strict=True), "o", color=line, ms=3, label=f"{name}, {kind}")
    except ValueError as problem:
        _tell(mix, problem)
    _label(mix, "Multiply-adds mixed with loads (Figure 2)", "multiply-adds a load",
           "thread instructions a cycle")  # fmt: skip
    try:
        found = curves.blocking_curves(device, precision)
        _lines(blocking, {n: [(x, y / 1e9) for x, y in c] for n, c in found.items()})
    except ValueError as problem:
        _tell(blocking, problem)
    _label(blocking, "Bound of the main loop", "register blocking factor", "GFLOP/s")
    figure.suptitle(f"{precision.name} on {device.name}", fontsize=10)
    _save(pyplot, figure, path)


def draw_transfer(path: Path, precision: Precision, links: Sequence[float], rate: float) -> None:
    """Draw Nakasato's Figure 7: rate with transfer against size, for each link.

    Parameters
    ----------
    path : Path
        An SVG file, which is replaced.
    precision : Precision
        Of the elements.
    links : sequence of float
        B_PCIe in bytes a second.
    rate : float
        F in FLOP/s.
    """
    pyplot = _pyplot()
    figure = pyplot.figure(figsize=(6, 3.6), layout="constrained")
    axes = figure.subplots()
    _lines(axes, {
        f"link of {link / 1e9:g} GB/s": [
            (n, y / 1e9) for n, y in curves.transfer_curve(precision, link, rate, _SIZES)
        ]
        for link in links
    })  # fmt: skip
    axes.axhline(rate / 1e9, color="gray", linewidth=0.8, linestyle="--", label="kernel alone")
    _label(axes, f"{precision.name} with transfer (Nakasato, equations 3 to 5)", "N", "GFLOP/s")
    _save(pyplot, figure, path)


def _lines(axes: Any, found: dict[str, list[tuple[float, float]]]) -> None:
    for name, points in found.items():
        axes.plot(*zip(*points, strict=True), label=name)


def _styles(axes: Any, known: dict[str, list[tuple[float, float]]]) -> list[Any]:
    """Return the colours of the lines that carry the same names."""
    colours = {line.get_label(): line.get_color() for line in axes.get_lines()}
    return [colours[name] for name in known]


def _tell(axes: Any, problem: ValueError) -> None:
    """Write why a panel is empty."""
    axes.text(0.05, 0.5, fill(str(problem), 48), transform=axes.transAxes, va="center", fontsize=7)


def _label(axes: Any, title: str, x: str, y: str) -> None:
    axes.set_title(title, fontsize=9)
    axes.set_xlabel(x, fontsize=8)
    axes.set_ylabel(y, fontsize=8)
    axes.set_ylim(bottom=0)
    axes.tick_params(labelsize=8)
    axes.spines[["top", "right"]].set_visible(False)
    if axes.get_legend_handles_labels()[0]:
        axes.legend(fontsize=7, frameon=False)


def _save(pyplot: Any, figure: Any, path: Path) -> None:
    text = io.BytesIO()
    figure.savefig(text, format="svg", metadata={"Date": None})
    pyplot.close(figure)
    write_atomically(path, text.getvalue())
