"""Calls as the table sees them, and a plan that is told all that differs between them."""

from __future__ import annotations

import numpy as np

from tests.core.inside.driver import loaded
from tilewright.serve import warm
from tilewright.serve.laid_out import ALPHA, BETA, A, B, C, Space
from tilewright.serve.plan import Plan
from tilewright.stencil import Launch

MOST = float(np.finfo(np.float32).max)
DEFAULTS = {
    "alpha": 1, "beta": 0, "trans_a": "N", "trans_b": "N", "accuracy": "ieee", "out_dtype": None,
    "device": None,
}  # fmt: skip


def plan_of(driver, device, scratch=0):
    space = Space()
    pieces = [space.need("x", scratch)] if scratch else []
    scalars = [np.float64(x) for x in (ALPHA.real, ALPHA.imag, BETA.real, BETA.imag)]
    arguments = (A, B, C, *scalars, *pieces)
    made = (loaded(driver.function(len(arguments))), Launch((1, 1), (32, 1)), arguments)
    return Plan(device, [made], space)


def order(given):
    """Return gemm's arguments in order."""
    return tuple((DEFAULTS | given).values())


def again(a, b, c=None, **given):
    return warm.again(a, b, c, *order(given))


def remember(plan, a, b, c=None, *, used=None, where=0, exchanged=False, **given):
    """Remember a call, with C in memory of its own unless it is given."""
    m, n = a.shape[0], b.shape[1]
    about = {"complex": False, "whole": False, "most": MOST}
    about |= {name: given.pop(name) for name in tuple(about) if name in given}
    used = used or c or type(a)((m, n), a.dtype)
    sizes = [4 * x.shape[0] * x.shape[1] for x in (a, b, used)]
    warm.remember(
        (a, b, c, *order(given)), used, plan, (m, n), a.dtype, where, exchanged,
        *about.values(), *sizes,
    )  # fmt: skip


def pair(kind, **options):
    return kind((8, 6), **options), kind((6, 4), **options)
