"""Everything measured on a device: times of configs on problems, of which a portfolio is picked."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tilewright.portfolio.kernel import variant_of
from tilewright.precision import precision
from tilewright.problem import Problem, Trans
from tilewright.reschedule.levels import SCHEDULE, unscheduled
from tilewright.space import Config
from tilewright.stencil import Variant
from tilewright.stencil.geometry import with_aligned_operands
from tilewright.text import reason
from tilewright.tuning.measurement import Measurement

__all__ = [
    "Case",
    "Measured",
    "Rescheduled",
    "check_pace",
    "from_store",
    "joined",
    "measured_at_pace",
    "read_measured",
]


@dataclass(frozen=True, eq=False)
class Case:
    """Times of one variant.

    Parameters
    ----------
    problems : tuple of Problem
        What was timed.
    configs : tuple of Config
        Of what.
    ns : array
        A row a problem, a column a config; infinite where one was not timed.
    won : Mapping
        Races of exactly one problem: what won, and its nanoseconds.
    """

    problems: tuple[Problem, ...]
    configs: tuple[Config, ...]
    ns: NDArray[np.float64]
    won: Mapping[Problem, tuple[Config, float]] = field(default_factory=dict)

    @property
    def best(self) -> dict[Problem, float]:
        """The least time of each problem; infinite where nothing was timed."""
        return dict(zip(self.problems, self.ns.min(axis=1, initial=np.inf), strict=True))

    def times(self, column: int) -> dict[Problem, float]:
        """Return the times of a column's config, by the problems that it was timed on."""
        every = zip(self.problems, self.ns[:, column], strict=True)
        return {problem: float(ns) for problem, ns in every if math.isfinite(ns)}

    def of(self, is_one: Callable[[Config], bool]) -> Case:
        """Return the times of some configs, of the problems that one of them was timed on."""
        columns = [at for at, one in enumerate(self.configs) if is_one(one)]
        ns = self.ns[:, columns]
        rows = np.flatnonzero(np.isfinite(ns).any(axis=1))
        won = {problem: pair for problem, pair in self.won.items() if is_one(pair[0])}
        problems = tuple(self.problems[row] for row in rows)
        return Case(problems, tuple(self.configs[at] for at in columns), ns[rows], won)

    def fastest(self, count: int, stencil: str) -> Iterator[Config]:
        """Yield a stencil's configs that were among so many of the fastest on a problem, once."""
        order = np.argsort(self.ns, axis=1)[:, :count]
        timed = np.isfinite(np.take_along_axis(self.ns, order, axis=1))
        found = dict.fromkeys(unscheduled(self.configs[at]) for at in order[timed])
        yield from (one for one in found if one.stencil == stencil)


@dataclass(frozen=True)
class Rescheduled:
    """A config whose main loop may be rescheduled.

    Parameters
    ----------
    level : int
        Of the schedule.
    ratio : float
        Its time over that of the compiler's own code, in races of both.
    unstaged_from : float
        From so many steps along k on it is faster than staged results, too.
    """

    level: int
    ratio: float
    unstaged_from: float = math.inf


@dataclass(frozen=True, eq=False)
class Measured:
    """Everything measured in one precision on one device.

    Parameters
    ----------
    precision : str
        Its letter.
    device : str
        The model's name.
    compute_capability : int or None
        Ten times CUDA's.
    multiprocessors : int
        Of the device.
    cases : Mapping
        By variant.
    rescheduled : Mapping
        By variant and config.
    copying : tuple of float, optional
        Nanoseconds that a copy of an operand begins with, and its bytes in a nanosecond.
    made : Mapping
        When, by which commit, how.
    arithmetic : str
        Of tensor cores, by its name, where that is not the precision's own.
    """

    precision: str
    device: str
    compute_capability: int | None
    multiprocessors: int
    cases: Mapping[Variant, Case]
    rescheduled: Mapping[tuple[Variant, Config], Rescheduled] = field(default_factory=dict)
    copying: tuple[float, float] | None = None
    made: Mapping[str, Any] = field(default_factory=dict)
    arithmetic: str = ""

    def of(self, is_one: Callable[[Config], bool]) -> Measured:
        """Return the times of some configs alone, without variants that have none of them."""
        cases = {of: case.of(is_one) for of, case in self.cases.items()}
        return replace(self, cases={of: x for of, x in cases.items() if x.configs or x.won})


def read_measured(path: Path, letter: str = "") -> Measured:
    """Return what a file of times says, as ``benchmarks/portfolio`` has them.

    Parameters
    ----------
    path : Path
        The file.
    letter : str, optional
        The precision that it is read for, where that is another of the same pace, such as bf16 and
        fp16.

    Raises
    ------
    ValueError
        If the file is something else, or of a precision of another pace; the message names it.
    """
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
        of = str(document["precision"])
        if letter and precision(letter).pace != precision(of).pace:
            raise ValueError(f"it has times of {of!r}, not of {letter!r}")
        return _measured(document, letter or of)
    except (LookupError, TypeError, ValueError, AttributeError, OverflowError) as error:
        raise ValueError(f"{path} is no file of times: {reason(error)}") from None


def check_pace(paths: Iterable[Path], letters: Sequence[str]) -> None:
    """Refuse files of times that are of none of some precisions' paces.

    Raises
    ------
    ValueError
        Naming the file.
    """
    paces = {precision(letter).pace for letter in letters}
    for path in paths:
        if precision(read_measured(path).precision).pace not in paces:
            read_measured(path, letters[0])


def measured_at_pace(paths: Iterable[Path], letter: str) -> list[Measured]:
    """Return what those of some files say that have times of a precision's pace.

    Raises
    ------
    ValueError
        As of `read_measured`.
    """
    pace = precision(letter).pace
    alike = (path for path in paths if precision(read_measured(path).precision).pace == pace)
    return [read_measured(path, letter) for path in alike]


def joined(files: Sequence[Measured]) -> Measured:
    """Return all that some files of one precision say, as one; the first tells what is not times.

    Parameters
    ----------
    files : sequence of Measured
        One or more, of other problems each or of the same.
    """
    first, *others = files
    cases = dict(first.cases)
    for variant, case in (pair for one in others for pair in one.cases.items()):
        cases[variant] = _both(cases[variant], case) if variant in cases else case
    return replace(first, cases=cases)


def _both(case: Case, other: Case) -> Case:
    """Return the problems and configs of both; of what both timed, the least time."""
    rows = {one: at for at, one in enumerate(dict.fromkeys((*case.problems, *other.problems)))}
    columns = {one: at for at, one in enumerate(dict.fromkeys((*case.configs, *other.configs)))}
    ns = np.full((len(rows), len(columns)), np.inf)
    for one in (case, other):
        at = np.ix_([rows[x] for x in one.problems], [columns[x] for x in one.configs])
        np.minimum.at(ns, at, one.ns)
    return Case(tuple(rows), tuple(columns), ns, {**case.won, **other.won})


def _measured(document: Any, letter: str) -> Measured:
    family = str(document["stencil"])

    def config(values: Mapping[str, Any]) -> Config:
        values = dict(values)
        return Config(str(values.pop("stencil", family)), values)

    cases = {}
    for trans, found in document["cases"].items():
        variant = variant_of(letter, trans)

        def problem(sizes: list[int], of: str = trans) -> Problem:
            m, n, k, *batch = sizes
            ops = Trans(of[0]), Trans(of[1])
            found = Problem(m, n, k, letter, *ops, batch=sum(batch) or 1)  # type: ignore[arg-type]
            return with_aligned_operands(found) if document.get("copied") else found

        ns = [[math.inf if x is None else float(x) for x in row] for row in found["ns"]]
        shape = len(found["shapes"]), len(found["configs"])
        cases[variant] = Case(
            tuple(map(problem, found["shapes"])),
            tuple(map(config, found["configs"])),
            np.array(ns, np.float64).reshape(shape),
            {problem(w["size"]): (config(w["config"]), float(w["ns"])) for w in found["won"]},
        )
    rescheduled = {}
    for row in document["rescheduled"]:
        made = config(row["config"])
        late = row["unstaged_from"]
        rescheduled[variant_of(letter, row["trans"]), unscheduled(made)] = Rescheduled(
            made.integer(SCHEDULE), float(row["ratio"]), math.inf if late is None else float(late)
        )
    kept = ("date", "commit", "driver", "compiler", "method")
    copying = document.get("copying")
    return Measured(
        letter,
        str(document["device"]),
        document["compute_capability"],
        int(document["multiprocessors"]),
        cases,
        rescheduled,
        None if copying is None else (float(copying[0]), float(copying[1])),
        {name: document[name] for name in kept if name in document},
        str(document.get("arithmetic", "")),
    )


def from_store(
    rows: list[Measurement], letter: str, device: str, capability: int | None, many: int
) -> Measured:
    """Return what a store's measurements of a device say of a precision.

    Parameters
    ----------
    rows : list of Measurement
        Right results with times, of any stage; the least time of a config on a problem counts.
    letter, device, capability, many
        Precision, and the device's name, compute capability and multiprocessors.
    """
    times: dict[Variant, dict[Problem, dict[Config, float]]] = {}
    won: dict[Variant, dict[Problem, tuple[Config, float]]] = {}
    for row in rows:
        if row.problem.precision.letter != letter or not row.times_ns:
            continue
        variant = Variant.of(row.problem)
        if row.stage == "winner":
            before = won.setdefault(variant, {}).get(row.problem)
            if before is None or row.median_ns < before[1]:
                won[variant][row.problem] = row.config, row.median_ns
        found = times.setdefault(variant, {}).setdefault(row.problem, {})
        found[row.config] = min(row.median_ns, found.get(row.config, math.inf))
    cases = {}
    for variant, by_problem in times.items():
        configs = tuple(dict.fromkeys(one for of in by_problem.values() for one in of))
        ns = [[of.get(config, math.inf) for config in configs] for of in by_problem.values()]
        cases[variant] = Case(tuple(by_problem), configs, np.array(ns), won.get(variant, {}))
    return Measured(letter, device, capability, many, cases)
