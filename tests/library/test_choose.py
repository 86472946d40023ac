"""Which config serves a problem: the nearest verified winner, else the default."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
from tilewright.library.choose import choose

import tilewright as tw
from tilewright.backend import device
from tilewright.backend.cuda.architecture import architecture_spec
from tilewright.problem import Problem
from tilewright.stencil import Variant
from tilewright.stencil.packed import Packed
from tilewright.stencil.portable import Portable
from tilewright.tuning.measurement import Measurement, Stage, Status
from tilewright.tuning.store import Store

PACKED = Packed()
PORTABLE = Portable()


@pytest.fixture
def here():
    """The CPU device that tests run on."""
    return device()


def winner(here, problem, seed, **changes):
    """Store a winner with some config of the space, and return the config."""
    space = PACKED.space(Variant.of(problem), here.spec)
    config = changes.pop("config", None) or space.sample(1, seed)[0]
    facts = {
        "config": config,
        "problem": problem,
        "device": here.fingerprint,
        "device_name": here.spec.name,
        "backend": here.backend,
        "stencil_version": PACKED.version,
        "status": Status.OK,
        "stage": Stage.WINNER,
        "times_ns": (1000,),
        "error": 0.0,
    }
    with Store() as store:
        store.add(Measurement(**(facts | changes)))
    return config


def test_default_where_nothing_was_tuned(here):
    chosen = choose(here, Problem(100, 100, 100, "s"))
    assert chosen.config == PACKED.default(Variant.of(Problem(1, 1, 1, "s")), here.spec)
    assert chosen.tuned_on == ""


def test_nearest_size_wins_and_new_results_count_at_once(here):
    small = winner(here, Problem(128, 128, 128, "s"), 1)
    assert choose(here, Problem(2000, 2000, 2000, "s")).config == small
    large = winner(here, Problem(2048, 2048, 2048, "s"), 2)
    assert choose(here, Problem(2000, 2000, 2000, "s")).config == large
    assert choose(here, Problem(100, 150, 120, "s")).config == small


def test_same_transposes_come_before_a_nearer_size(here):
    nn = winner(here, Problem(500, 500, 500, "s"), 1)
    tn = winner(here, Problem(64, 64, 64, "s", "T", "N"), 2)
    assert choose(here, Problem(500, 500, 500, "s", "T", "N")).config == tn
    assert choose(here, Problem(500, 500, 500, "s", "T", "T")).config in (nn, tn)


@pytest.mark.parametrize(
    "changes",
    [
        {"stencil_version": 999},
        {"device": "another"},
        {"stage": Stage.FINAL},
        {"status": Status.WRONG_RESULT, "reason": "wrong"},
    ],
    ids=str,
)
def test_what_is_no_winner_of_this_kernel_here_does_not_count(here, changes):
    winner(here, Problem(64, 64, 64, "s"), 1, **changes)
    assert choose(here, Problem(64, 64, 64, "s")).tuned_on == ""


def test_a_config_outside_the_space_never_reaches_the_compiler(here):
    """A store may hold what somebody else exported."""
    good = PACKED.default(Variant.of(Problem(1, 1, 1, "s")), here.spec)
    winner(here, Problem(64, 64, 64, "s"), 0, config=good.replace(block_m=2**30))
    assert choose(here, Problem(64, 64, 64, "s")).tuned_on == ""


def test_other_transposes_are_served_only_by_what_fits_them():
    """Threads that read A's tile evenly along m need not do so along k."""
    spec = architecture_spec("sm_90a")
    gpu = SimpleNamespace(fingerprint="a1b2c3d4e5f6", spec=spec, backend="cuda")
    asked = Problem(64, 64, 64, "s", "T", "N")
    offered = PORTABLE.space(Variant.of(Problem(1, 1, 1, "s")), spec).sample(200, 0)
    space = PORTABLE.space(Variant.of(asked), spec)
    unfit = next(config for config in offered if config not in space)
    fit = next(config for config in offered if config in space)
    changes = {"stencil_version": PORTABLE.version, "device_name": "a GPU"}
    winner(gpu, Problem(64, 64, 64, "s"), 0, config=unfit, **changes)
    assert choose(gpu, asked).tuned_on == ""
    winner(gpu, Problem(4096, 4096, 4096, "s"), 0, config=fit, **changes)
    assert choose(gpu, asked).config == fit
    assert choose(gpu, Problem(64, 64, 64, "s")).config == unfit


def test_tuning_serves_the_next_call(here):
    """The whole loop on a small budget: tune, then multiply with what was found."""
    result = tw.tune(Problem(96, 80, 64, "s"), here, budget="6s", strategy="random")
    chosen = choose(here, Problem(96, 80, 64, "s"))
    assert chosen.config == result.winner.config
    assert chosen.tuned_on == "SGEMM NN 96x80x64"
    a = np.arange(64 * 64, dtype="f4").reshape(64, 64) % 7
    assert np.array_equal(tw.gemm(a, a, device=here), a @ a)
