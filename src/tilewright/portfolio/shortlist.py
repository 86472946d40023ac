"""Configs worth timing on a device that nobody tuned for, beside what a stencil begins with."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import numpy as np

from tilewright.hardware import DeviceSpec
from tilewright.portfolio.drawn import KINDS
from tilewright.portfolio.find import shipped_for
from tilewright.problem import Problem
from tilewright.space import Config
from tilewright.stencil import Stencil, Variant
from tilewright.tuning.background import FEATURES, features_on, forecast_on

__all__ = ["of_other_devices", "shortlist"]

# Points drawn of the space; shapes of each kind; configs of each shape.
_DRAWN, _SHAPES, _EACH = 2000, 5, 3
_SEED = 11

# A side of a product that fills any device; steps along k at a time that suit sums of a few.
_LARGE, _SHORT_K = 8192, 8


def shortlist(family: Stencil, variant: Variant, spec: DeviceSpec) -> list[Config]:
    """Return what a static model expects most of, on shapes as users have them.

    The model counts multiply-adds.  Sums so short that C takes the time want whatever keeps most
    copies and stores on their way: of each size of a block what has the most warps besides, of all
    configs, and of those whose blocks share no sum and take few steps at a time.

    Parameters
    ----------
    family : Stencil
        Whose configs.
    variant : Variant
        Precision and transposes.
    spec : DeviceSpec
        Where they are to run.
    """
    drawn = family.space(variant, spec).sample(_DRAWN, _SEED)
    found: dict[Config, None] = {}
    for sides in _shapes(variant):
        problem = Problem(*sides, variant.precision, variant.trans_a, variant.trans_b)
        forecast = forecast_on(family, problem, spec)
        assert forecast is not None  # a portfolio has machine code of a GPU
        expected = forecast(drawn)
        best = np.argsort(-expected, kind="stable")[:_EACH]
        found |= dict.fromkeys(drawn[at] for at in best.tolist())
    large = Problem(_LARGE, _LARGE, _LARGE, variant.precision, variant.trans_a, variant.trans_b)
    features = features_on(family, large, spec)(drawn)
    order = np.lexsort([-features[:, FEATURES.index(name)] for name in ("forecast", "warps")])
    most: dict[tuple[bool, int, int], Config] = {}
    for config in (drawn[at] for at in order.tolist()):
        tile = family.geometry(config)
        if tile.tma:  # which takes aligned columns alone
            continue
        most.setdefault((False, tile.tile_m, tile.tile_n), config)
        if tile.tile_k <= _SHORT_K and not (tile.cluster_k > 1 or tile.stream_k or tile.split_k):
            most.setdefault((True, tile.tile_m, tile.tile_n), config)
    return list(found | dict.fromkeys(most.values()))


def _shapes(variant: Variant) -> Iterator[tuple[int, int, int]]:
    for kind in KINDS.values():
        yield from islice(kind(_SEED, variant.precision), _SHAPES)


def of_other_devices(
    name: str, family: Stencil, variant: Variant, spec: DeviceSpec
) -> list[Config]:
    """Return the configs of shipped portfolios of any architecture that this device takes.

    Parameters
    ----------
    name : str
        Of the portfolio.
    family, variant, spec
        As of `shortlist`.
    """
    space = family.space(variant, spec)
    found: dict[Config, None] = {}
    for folder in sorted(Path(__file__).parent.glob("sm_*")):
        portfolio = shipped_for(int(folder.name.removeprefix("sm_")), name)
        for kernel in portfolio.of_variant(variant) if portfolio else ():
            if kernel.modes and kernel.config.stencil == family.name and kernel.config in space:
                found[kernel.config] = None
    return list(found)
