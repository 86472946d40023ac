"""The tensor-core stencil on a Hopper GPU: what the emulator proved, on the device itself."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tests.stencil.wgmma.harness import (
    EVERY,
    FAMILY,
    PLAIN,
    Case,
    Run,
    assert_compensated,
    drawn,
    small,
    variant,
)
from tests.stencil.wgmma.test_stencil import CHOICES
from tilewright.backend import LiveDevice
from tilewright.stencil.wgmma import Arithmetic

pytestmark = pytest.mark.gpu

ORDERS = [
    (name, trans)
    for name, made in EVERY.items()
    for trans in ("NN", "NT", "TN", "TT")
    if made.reads((trans[0] == "T", trans[1] == "N"))
]


@pytest.fixture
def hopper(cuda: LiveDevice) -> LiveDevice:
    if not FAMILY.suits(cuda.spec):
        pytest.skip(f"{cuda} is no Hopper GPU")
    return cuda


@pytest.mark.parametrize(("begin", "name", "trans"), [(i % 3, *of) for i, of in enumerate(ORDERS)])
def test_every_third_start_computes_the_product(
    hopper: LiveDevice, begin: int, name: str, trans: str
) -> None:
    """Inner tiles and edges, a remainder of k, and several tiles for each persistent block.

    A third, each type and order another: 490 kernels would compile as long as all other tests run.
    """
    of = variant(trans, EVERY[name])
    space = FAMILY.space(of, hopper.spec)
    starts = [config for config in FAMILY.starts(of, hopper.spec) if config in space]
    for config in starts[begin::3]:
        run = Run(hopper, config, of)
        run.check(Case(515, 389, 331, 2, -1, padding=1, padding_c=3))
        run.check(Case(3072, 2560, 200, beta=1))
        run.check(Case(1024, 1280, 100))  # inner tiles, only written


@pytest.mark.parametrize("changes", CHOICES, ids=str)
def test_every_choice_of_tiles_and_clusters(hopper: LiveDevice, changes: dict[str, int]) -> None:
    of = variant("TN", PLAIN["f16-f32"])
    Run(hopper, small(of, hopper, **changes), of).check(Case(150, 270, 200, beta=1))


@pytest.mark.parametrize("name", EVERY)
def test_slices_of_k_compute_the_product(hopper: LiveDevice, name: str) -> None:
    """As many as the launch has for these sizes: all of k, a few slices, one for each SM."""
    of = variant("TN", EVERY[name])
    space = FAMILY.space(of, hopper.spec)
    sliced = {"multiprocessors": 0, "parallel_split_k": 1}
    starts = dict.fromkeys(config.replace(**sliced) for config in FAMILY.starts(of, hopper.spec))
    for config in [config for config in starts if config in space]:
        run = Run(hopper, config, of)
        run.check(Case(515, 389, 2331, 2, -1, padding=1, padding_c=3))
        run.check(Case(30, 20, 20000, offset_c=1))
        run.check(Case(300, 200, 0, beta=2))
        run.check(Case(2000, 1000, 70))


@pytest.mark.parametrize("name", PLAIN)
def test_slices_within_a_cluster_compute_the_product(hopper: LiveDevice, name: str) -> None:
    """More steps than slices, and fewer."""
    for trans in ("TN", "NN") if PLAIN[name].either_order else ("TN",):
        of = variant(trans, PLAIN[name])
        space = FAMILY.space(of, hopper.spec)
        starts = [x for x in FAMILY.starts(of, hopper.spec) if "cluster_k" in x and x in space]
        assert len(starts) > 3
        for config in (*starts, starts[0].replace(cluster_k=8)):
            run = Run(hopper, config, of)
            run.check(Case(515, 389, 2331, 2, -1, padding=1, padding_c=3))
            run.check(Case(30, 20, 20000, offset_c=1))
            run.check(Case(300, 200, 0, beta=2))
            run.check(Case(2000, 1000, 70))


@pytest.mark.parametrize("apart", range(8))
def test_columns_of_two_byte_results_may_begin_anywhere(hopper: LiveDevice, apart: int) -> None:
    of = variant("NT", EVERY["bf16"])
    run = Run(hopper, FAMILY.default(of, hopper.spec), of)
    run.check(Case(1031, 515, 40, padding_c=apart, offset_c=apart * 3 % 8))
    run.check(Case(1024, 512, 40, padding_c=apart, offset_c=apart))


TRIANGLES = [
    *(
        ("bf16", "NT"),
        ("f16-f32", "NT"),
        ("f16", "TN"),
        ("tf32", "TN"),
        ("s8", "TN"),
        ("e4m3", "TN"),
    ),
    *(("fp16x3", "TN"), ("bf16x6", "TN")),
]


@pytest.mark.parametrize("begin", range(3))
@pytest.mark.parametrize(("name", "trans"), TRIANGLES)
def test_a_triangle_is_written_and_nothing_else(
    hopper: LiveDevice, begin: int, name: str, trans: str
) -> None:
    """All starts, a third at a time: compiling them takes longer than running them."""
    made = EVERY[name]
    of = variant(trans, replace(made, triangle=True, routed=made.parts > 1))
    space = FAMILY.space(of, hopper.spec)
    starts = [config for config in FAMILY.starts(of, hopper.spec) if config in space]
    for config in starts[begin::3]:
        run = Run(hopper, config, of)
        for lower in (False, True):
            run.check(Case(2100, 2100, 200, lower=lower))
            run.check(Case(1031, 1031, 331, 2, -1, padding_c=3, offset_c=1, lower=lower))
            run.check(Case(777, 777, 72, padding_c=7, lower=lower))
            run.check(Case(70, 70, 8, beta=1, lower=lower))


@pytest.mark.parametrize("name", ["fp16x3", "bf16x6"])
def test_roundings_of_promotions_are_made_up_for(hopper: LiveDevice, name: str) -> None:
    """By all configs that serve small results."""
    of = variant("TN", EVERY[name])
    space = FAMILY.space(of, hopper.spec)
    starts = [one for one in FAMILY.starts(of, hopper.spec) if one in space]
    some = [one for one in starts if FAMILY.compensates(one, of)]
    assert len(some) == 3
    for config in some:
        assert_compensated(Run(hopper, config, of))


def test_a_word_in_device_memory_decides(hopper: LiveDevice) -> None:
    of = variant("TN", Arithmetic("float16", routed=True))
    run = Run(hopper, small(of, hopper), of)
    case = Case(64, 64, 64, beta=1)
    run.check(case)
    values = drawn(np.random.default_rng(1), case, of)
    assert np.array_equal(run.result(case, values, route=2), values[2])


def test_the_same_bits_in_every_run(hopper: LiveDevice) -> None:
    of = variant("NT", EVERY["fp16x3"])
    run = Run(hopper, FAMILY.default(of, hopper.spec), of)
    case = Case(1000, 1000, 3000)
    rng = np.random.default_rng(5)
    a, b = rng.standard_normal((2, case.m, case.k)), rng.standard_normal((2, case.k, case.n))
    c, zero = np.zeros((case.m, case.n)), np.zeros(case.m, int)
    first = run.result(case, (a, b, c, zero, zero))
    for _ in range(5):
        assert np.array_equal(run.result(case, (a, b, c, zero, zero)), first)
