"""Times of many kernels on one shape, in turns, each after a tuner's check."""

from __future__ import annotations

import statistics
from typing import Any

from shapes200 import LETTER, shared
from tilewright.library.choose import Choice, fitted
from tilewright.problem import Problem
from tilewright.space import Config
from tilewright.stencil import stencil

from .cases import variant_of
from .here import first_gpu

__all__ = ["ROUNDS", "Timer", "fit"]

# Of a kernel; fewer where half of them take longer.
ROUNDS, FEWER, LONG_NS = 5, 3, 1e6


def fit(config: Config, problem: Problem, spec: Any) -> Config:
    """Return a config as `gemm` serves a problem with it."""
    return fitted(Choice(stencil(config.stencil), config), problem, spec).config


class Timer:
    """The device, kernels that were checked, and matrices that all problems share.

    Parameters
    ----------
    letter : str
        The precision of all problems.
    """

    def __init__(self, letter: str = LETTER) -> None:
        self.letter = letter
        self.live: Any = first_gpu()
        self.memory = shared(self.live, letter)
        self.kernels: dict[tuple[str, Config], Any] = {}
        self.doing: Config | None = None  # whose fault it is if the device is lost

    def kernel(self, trans: str, config: Config) -> Any:
        """Return a kernel that passed a tuner's check, or the reason why there is none."""
        from tilewright.tuning.verify import screen

        key = (trans, config)
        self.doing = config
        if key not in self.kernels:
            family, variant = stencil(config.stencil), variant_of(self.letter, trans)
            try:
                made = self.live.compile(family.source(config, variant, "cuda"))
                screen(self.live, made, family, config, variant)
            except Exception as error:
                if getattr(self.live, "lost", None):
                    raise
                made = f"{type(error).__name__}: {error}".splitlines()[0]
            self.kernels[key] = made
        return self.kernels[key]

    def times(self, problem: Problem, configs: list[Config]) -> list[float | None]:
        """Return medians in nanoseconds; None for what failed its check, or is not for it.

        Configs take turns, because behind its own launch a kernel finds its text near by, which it
        does in no program that has others.
        """
        from tilewright.tuning.measure import Workload

        load = Workload(self.live, problem, self.memory)
        able = {}
        for config in configs:
            one = fit(config, problem, self.live.spec)
            made = None
            if stencil(config.stencil).takes(config, problem):
                made = self.kernel(problem.trans, one)
            if made is not None and not isinstance(made, str):
                able[config] = made, stencil(one.stencil), one
        first = [self.run(load, kernel) for kernel in able.values()]
        rounds = FEWER if first and statistics.median(first) > LONG_NS else ROUNDS
        taken = zip(
            *([self.run(load, x) for x in able.values()] for _ in range(rounds)), strict=True
        )
        medians = dict(zip(able, map(statistics.median, taken), strict=True))
        load.close()
        return [medians.get(config) for config in configs]

    def run(self, load: Any, kernel: tuple[Any, Any, Config]) -> int:
        """Return the time of one launch."""
        self.doing = kernel[2]
        return int(load.run(*kernel))
