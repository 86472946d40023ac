"""What a microbenchmark is: a name, the backends it runs on, and a function that emits rows.

An experiment measures one thing about a device at many points.  Each point is a row of plain
values, so that a table, a JSON file and a device's TOML can all be written from the same rows.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tilewright.backend import LiveDevice

__all__ = ["Experiment", "Row"]

Row = dict[str, str | int | float | None]
"""One measured point.  Units are in the key's name: ``read_bytes_per_second``,
``cycles_per_ffma``.  A point that could not be measured has ``"error"``: the reason."""


@dataclass(frozen=True)
class Experiment:
    """Something that can be measured on a device.

    Parameters
    ----------
    name : str
        How the command line and result files name it.
    title : str
        One line for people: what is measured.
    backends : tuple of str
        Backends whose devices it runs on, such as ``("cuda", "opencl")``.
    run : callable
        ``run(device, emit, seconds)`` measures, calls ``emit(row)`` for each point and returns
        when all points are done or `seconds` are up.  One failing point is a row with
        ``"error"``; it does not end the run.
    """

    name: str
    title: str
    backends: tuple[str, ...]
    run: Callable[[LiveDevice, Callable[[Row], None], float], None]
