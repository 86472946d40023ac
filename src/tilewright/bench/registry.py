"""The benchmarks that anybody may run again: one file each in ``bench/benchmarks``."""

from __future__ import annotations

import pkgutil
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any

from tilewright.backend import LiveDevice
from tilewright.bench.peers import UnavailableError

__all__ = ["Asked", "Benchmark", "Cell", "Row", "benchmark", "names"]

Cell = str | int | float | None
Row = Mapping[str, Any]


@dataclass(frozen=True)
class Asked:
    """What one run of a benchmark was asked for.

    Parameters
    ----------
    live : LiveDevice
        The device.
    precision, trans, size : str
        Lists as on the command line; the benchmark's own where nothing was given.
    seed, count : int
        Of what is drawn.
    """

    live: LiveDevice
    precision: str = ""
    trans: str = ""
    size: str = ""
    seed: int = 0
    count: int = 0


class Benchmark(ABC):
    """Something that is measured again and again.

    Attributes
    ----------
    measures, against, takes : str
        What, beside whom, and how long, in a few words each.
    options : mapping of str to str
        Which of ``precision``, ``trans``, ``size``, ``seed`` and ``count`` it reads, with the value
        where none is given.
    needs : str
        The devices that it runs on, by their backend or their kind; all by default.
    """

    measures: str
    against: str
    takes: str
    options: Mapping[str, str]
    needs: str = ""

    def check(self, live: LiveDevice) -> None:
        """Refuse a device that is none of those.

        Raises
        ------
        UnavailableError
            Naming one that would do.
        """
        if self.needs not in ("", live.backend, live.spec.kind):
            raise UnavailableError(f"it is not measured on {live.id}; use --device {self.needs}")

    @abstractmethod
    def rows(self, asked: Asked) -> Iterator[Row]:
        """Yield rows of plain data, each once it is measured; what fails is a row with ``error``.

        Raises
        ------
        UnavailableError
            If the device, or a library, is not one that it can be run with.
        """

    @abstractmethod
    def line(self, row: Row) -> str:
        """Return a row in a line, for people who wait."""

    @abstractmethod
    def table(self, rows: Sequence[Row]) -> tuple[Sequence[str], list[list[Cell]]]:
        """Return the heads of a table for people, and its lines; of rows without ``error``."""


def names() -> list[str]:
    """Return the benchmarks' names; nothing is imported for them."""
    from tilewright.bench import benchmarks as folder

    return sorted(one.name.replace("_", "-") for one in pkgutil.iter_modules(folder.__path__))


def benchmark(name: str) -> Benchmark:
    """Return a benchmark by its name: ``BENCHMARK`` of its module.

    Raises
    ------
    ValueError
        If there is none of that name.
    """
    if name not in names():
        raise ValueError(f"benchmark={name!r} is unknown; use one of {', '.join(names())}")
    module = import_module(f"tilewright.bench.benchmarks.{name.replace('-', '_')}")
    found: Benchmark = module.BENCHMARK
    return found
