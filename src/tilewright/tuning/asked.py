"""What a tuning run is asked for: types are checked, and stencils found by their names."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any, cast

import numpy as np

from tilewright.backend import LiveDevice
from tilewright.problem import Problem
from tilewright.space import Constraint
from tilewright.stencil import Stencil, Variant, stencils_for
from tilewright.stencil import stencil as find_stencil
from tilewright.tuning.runner import Limits
from tilewright.tuning.store import Store

__all__ = ["PRUNINGS", "family_of", "look_at", "look_at_more"]

PRUNINGS = ("none", "thresholds", "learned")
"""What narrows the space besides what the device and the shapes allow."""


def look_at(
    problem: object, strategy: object, stencil: object, seed: object, store: object, modules: object
) -> None:
    """Refuse arguments of other types, before anything is started."""
    texts = isinstance(modules, tuple | list) and all(isinstance(one, str) for one in modules)
    whole = isinstance(seed, int | np.integer) and not isinstance(seed, bool) and bool(seed >= 0)
    _refuse_others(
        ("problem", problem, isinstance(problem, Problem), "a tilewright.Problem"),
        ("strategy", strategy, isinstance(strategy, str), "a name"),
        ("stencil", stencil, stencil is None or isinstance(stencil, str), "a name, or None"),
        ("seed", seed, whole, "a whole number of 0 or more"),
        (
            "store",
            store,
            store is None or isinstance(store, Store),
            "tilewright.tuning.store.Store(path)",
        ),
        ("modules", modules, texts, "a tuple of names"),
    )


def look_at_more(
    observer: object, limits: object, lessons: object, pruning: object, constraints: object
) -> None:
    """Refuse other types of the arguments that only accompany a run."""
    paths = isinstance(lessons, Sequence) and not isinstance(lessons, str | bytes)
    paths = paths and all(isinstance(one, str | os.PathLike) for one in cast(Any, lessons))
    rules = isinstance(constraints, Sequence)
    rules = rules and all(isinstance(one, Constraint) for one in cast(Any, constraints))
    _refuse_others(
        ("observer", observer, observer is None or callable(observer), "a function, or None"),
        (
            "limits",
            limits,
            limits is None or isinstance(limits, Limits),
            "tilewright.tuning.runner.Limits(), or None",
        ),
        ("lessons", lessons, paths, "a list of paths"),
        ("pruning", pruning, pruning in PRUNINGS, f"one of {', '.join(PRUNINGS)}"),
        ("constraints", constraints, rules, "a list of tilewright.space.Constraint"),
    )


def _refuse_others(*judged: tuple[str, object, bool, str]) -> None:
    """Refuse the first value that is not good: the error has its name and what is wanted."""
    for name, value, good, wanted in judged:
        if not good:
            raise ValueError(f"{name}={value!r} is none; give {wanted}")


def family_of(live: LiveDevice, name: str | None, problem: Problem) -> Stencil:
    """Return the stencil that was named, or that fits the device best."""
    if name is not None:
        return _named(live, name, problem)
    fitting = stencils_for(live.spec, Variant.of(problem))
    if not fitting:
        raise ValueError(
            f"device={live.id} has no stencil for {problem.precision.name}; use another device, or"
            " name a stencil"
        )
    return fitting[0]


def _named(live: LiveDevice, name: str, problem: Problem) -> Stencil:
    """Return a stencil, if it has anything to try; else refuse it before any candidate fails."""
    family = find_stencil(name)
    variant = Variant.of(problem)
    if not family.computes(variant):
        able = ", ".join(made.name for made in stencils_for(live.spec, variant))
        what = f"{problem.precision.name} {problem.trans}"
        instead = f"one of {able}" if able else "other transposes, or another device"
        raise ValueError(f"stencil={name!r} has no {what}; use {instead}")
    try:
        family.source(family.default(variant, live.spec), variant, live.dialect)
    except ValueError as error:
        raise ValueError(f"stencil={name!r} is not for {live.id}: {error}") from None
    return family
