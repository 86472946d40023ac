"""Rescheduled kernels on a GPU: the bits of the compiler's own code, alone and disturbed."""

from __future__ import annotations

import numpy as np
import pytest

from tests.reschedule.proving import PROBLEMS, Pair, disturbed, many_launches, quiet
from tests.reschedule.rescheduled import FAMILY, TN, small
from tilewright.backend import LiveDevice
from tilewright.problem import Problem
from tilewright.reschedule.cubin import compile_kernel
from tilewright.reschedule.levels import level_of, unscheduled
from tilewright.tuning.measure import Workload, interleaved
from tilewright.tuning.same_bits import same_bits
from tilewright.tuning.verify import WrongResultError, certify, classes

pytestmark = pytest.mark.gpu

LAUNCHES = 16


@pytest.fixture
def pair(cuda: LiveDevice) -> Pair:
    if cuda.spec.compute_capability != 90:
        pytest.skip(f"{cuda}: the scheduler knows compute capability 9.0 only")
    config, *_ = small()
    source = FAMILY.source(unscheduled(config), TN, "cuda")
    plain, made = (compile_kernel(cuda, source, level) for level in (None, level_of(config)))
    assert plain.code != made.code
    return Pair(FAMILY, config, plain, made)


def test_the_contract_and_its_baselines_bits_in_every_class(cuda: LiveDevice, pair: Pair) -> None:
    certify(cuda, pair.made, FAMILY, pair.config, TN)
    compared = same_bits(cuda, (pair.plain, pair.made), FAMILY, pair.config, TN)
    assert compared == sum(check.m * check.n for check in classes(FAMILY, pair.config))


@pytest.mark.parametrize("beside", ["alone", "disturbed"])
def test_the_same_bits_in_many_launches(cuda: LiveDevice, pair: Pair, beside: str) -> None:
    """Disturbed: copies fill the memory's pipe, and another kernel shares multiprocessors."""
    with disturbed(cuda, pair, "TN", "s") as feed:
        for m, n, k in PROBLEMS:
            problem = Problem(m, n, k, "s", "T", "N")
            found = many_launches(
                cuda, pair, problem, LAUNCHES, feed=feed if beside == "disturbed" else quiet
            )
            assert found.launches == 2 * LAUNCHES


def test_a_kernel_with_one_stale_operand_is_found(cuda: LiveDevice, pair: Pair) -> None:
    """One multiply-add of the loop reads another register: what a stale reuse copy would do."""
    import dataclasses

    from tilewright.backend import Kernel
    from tilewright.backend.cuda.device import LoadedKernel
    from tilewright.sass import decode, edit, main_loop, patch, read_cubin

    loaded = pair.made.handle
    kernel = read_cubin(loaded.cubin.code).kernels[0]
    loop = main_loop(decode(kernel.code, kernel.arch))
    assert loop is not None
    adds = [one for one in loop.instructions if one.opcode == 0x223]
    wrong = edit(adds[0], 90, a=adds[-1].srcs[0].value)
    code = patch(loaded.cubin.code, [wrong], kernel.name)
    cubin = dataclasses.replace(loaded.cubin, code=code)
    spoiled = LoadedKernel(cuda, cubin, "gemm", loaded.dynamic_shared_bytes)
    made = dataclasses.replace(pair, made=Kernel(spoiled, "gemm", 0.0, code))
    with pytest.raises(WrongResultError, match="words of C differ"):
        many_launches(cuda, made, Problem(1000, 1028, 540, "s", "T", "N"), 8)
    with pytest.raises(WrongResultError, match="have other bits"):
        same_bits(cuda, (made.plain, made.made), FAMILY, made.config, TN)


def test_both_run_interleaved(cuda: LiveDevice, pair: Pair) -> None:
    load = Workload(cuda, Problem(512, 512, 512, "s", "T", "N"))
    both = [(pair.made, FAMILY, pair.config), (pair.plain, FAMILY, pair.config)]
    times = interleaved(load, both, 0.0)
    load.close()
    assert len(times[0]) == len(times[1]) > 1
    assert np.min(times) > 0


def test_a_small_one_for_the_sanitizer(cuda: LiveDevice, pair: Pair) -> None:
    """Few launches of few blocks: `make gpu-sanitize` runs this under compute-sanitizer."""
    found = many_launches(cuda, pair, Problem(100, 132, 70, "s", "T", "N"), 8)
    assert found.launches == 16
