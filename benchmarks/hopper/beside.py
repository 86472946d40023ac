"""Configs that are timed beside what `gemm` chooses: those that are expected to be fast."""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from tilewright.hardware import DeviceSpec
from tilewright.library.choose import Choice, fitted
from tilewright.library.waves import effort
from tilewright.problem import Problem
from tilewright.space import Config
from tilewright.stencil import Variant, stencil

from .cases import variant_of

LETTER = "s"
# Sizes that a search times its candidates on.
SQUARES, ROUNDS = (512, 1024, 2048, 4096, 4800, 8192), 5
# Times the rate of what `gemm` chose: less may be chance.
WON = 1.02
# Whose effort is in cycles, so that it says which is faster.
COMPARED = "simt_async"


@dataclass
class Beside:
    """Configs by case, of which a shape gets some.

    Parameters
    ----------
    named : Mapping
        Configs of each case, as `hopper.named.named_in` returns them.
    each : int
        So many of a shape at most.
    alone : bool
        Whether a choice is timed without its twins.
    """

    named: Mapping[str, list[Config]] = field(default_factory=dict)
    each: int = 0
    alone: bool = False
    _checked: dict[tuple[str, str], str] = field(default_factory=dict)
    _named_as: dict[tuple[str, str], Config] = field(default_factory=dict)

    def wanted(self, spec: DeviceSpec, problem: Problem) -> dict[str, Choice]:
        """Return the configs of least expected time, copies fitted to the problem, by id."""
        configs = [one for one in self.named.get(problem.trans, ()) if one.stencil == COMPARED]
        many = spec.multiprocessors or 1
        times = {one: effort(one, problem, spec, many) for one in configs}
        # Where they do the same (all tiles of fewer than a wave are shared) one is enough.
        apart = {(ns, one["block_m"], one["block_n"]): one for one, ns in reversed(times.items())}
        configs = sorted(apart.values(), key=times.__getitem__)
        found = {}
        for one in configs[: self.each]:
            choice = fitted(Choice(stencil(one.stencil), one), problem, spec)
            found[choice.config.id] = choice
            self._named_as[problem.trans, choice.config.id] = one
        return found

    def all(self) -> list[tuple[str, Config]]:
        """Return every config as it was named, with its case."""
        return [(trans, one) for trans, configs in self.named.items() for one in configs]

    def winners(self, rows: Iterable[Mapping[str, Any]]) -> list[tuple[str, Config]]:
        """Return cases and configs, as they were named, that beat the choice at some shape."""
        won: dict[tuple[str, Config], None] = {}
        for row in rows:
            for key in row.get("others", ()):
                if row["tflops"][key] > WON * row["tflops"]["tilewright"]:
                    won[row["trans"], self._named_as[row["trans"], key]] = None
        return list(won)

    def squares(
        self, live: Any, memory: Mapping[str, Any], rows: Iterable[Mapping[str, Any]], until: float
    ) -> list[dict[str, Any]]:
        """Return the times of `winners` at squares, as a search has them, until a time.

        What comes with the package is chosen by such times (`ship.py`).
        """
        found = []
        for trans, config in self.winners(rows):
            one: dict[str, Any] = {"trans": trans, "config": dict(config)}
            try:
                one["ns"] = _square_times(live, memory, trans, config, until)
            except Exception as error:
                if getattr(live, "lost", None):
                    raise
                one["reason"] = f"{type(error).__name__}: {error}".splitlines()[0]
            if one.get("ns") != {}:
                found.append(one)
        return found

    def sound(
        self, live: Any, problem: Problem, known: Iterable[Choice]
    ) -> tuple[dict[str, Choice], dict[str, str]]:
        """Return what of that passes a tuner's check and is not known, and why others do not."""
        taken = {one.config for one in known}
        found: dict[str, Choice] = {}
        refused: dict[str, str] = {}
        for key, choice in self.wanted(live.spec, problem).items():
            if choice.config in taken:
                continue
            reason = self._reason(live, problem, choice)
            if reason:
                refused[key] = reason
            else:
                found[key] = choice
        return found, refused

    def _reason(self, live: Any, problem: Problem, choice: Choice) -> str:
        """Return why a kernel is wrong, or nothing; checked once."""
        from tilewright.tuning.verify import screen

        key = (problem.trans, choice.config.id)
        if key not in self._checked:
            family, config, variant = choice.stencil, choice.config, Variant.of(problem)
            try:
                kernel = live.compile(family.source(config, variant, live.dialect))
                screen(live, kernel, family, config, variant)
                self._checked[key] = ""
            except Exception as error:
                if getattr(live, "lost", None):
                    raise
                self._checked[key] = f"{type(error).__name__}: {error}".splitlines()[0]
        return self._checked[key]


def _square_times(
    live: Any, memory: Mapping[str, Any], trans: str, config: Config, until: float
) -> dict[int, float]:
    """Return a config's median times at squares; none, once the time is up before the last."""
    from tilewright.tuning.measure import Workload

    family, variant = stencil(config.stencil), variant_of(LETTER, trans)
    ns: dict[int, float] = {}
    if time.time() < until:
        kernel = live.compile(family.source(config, variant, live.dialect))
        for n in SQUARES:
            if time.time() > until:
                return {}
            load = Workload(live, Problem(n, n, n, LETTER, *trans), memory)
            ns[n] = statistics.median(load.run(kernel, family, config) for _ in range(ROUNDS))
            load.close()
    return ns
