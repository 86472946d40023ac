"""Configs that are timed beside what `gemm` chooses: those that are expected to be fast."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from tilewright.hardware import DeviceSpec
from tilewright.library.choose import Choice, fitted
from tilewright.library.waves import effort
from tilewright.problem import Problem
from tilewright.space import Config
from tilewright.stencil import Variant, stencil

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
    """

    named: Mapping[str, list[Config]] = field(default_factory=dict)
    each: int = 0
    _checked: dict[tuple[str, str], str] = field(default_factory=dict)

    def wanted(self, spec: DeviceSpec, problem: Problem) -> dict[str, Choice]:
        """Return the configs of least expected time, copies fitted to the problem, by id."""
        configs = [one for one in self.named.get(problem.trans, ()) if one.stencil == COMPARED]
        many = spec.multiprocessors or 1
        configs.sort(key=lambda config: effort(config, problem, spec, many))
        chosen = (
            fitted(Choice(stencil(one.stencil), one), problem, spec) for one in configs[: self.each]
        )
        return {one.config.id: one for one in chosen}

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
