"""Which candidates are worth timing, told by their machine code: no GPU needed."""

from __future__ import annotations

import pytest

from tests.reschedule.test_schedule import rescheduled
from tests.sass.compiled import kept
from tests.tuning.measurement_examples import example
from tilewright.backend.cuda.compiler import compile_cubin, nvrtc
from tilewright.sass import inspect_kernel, patch, read_cubin
from tilewright.stencil import Launch, Source
from tilewright.tuning.forecast import forecast
from tilewright.tuning.ready import ReadyQueue

H100 = 132  # multiprocessors
THREADS = 256


def expected(blocks: int) -> float:
    found = forecast(kept("sm_90a"), Launch((blocks, 1), (THREADS, 1)), H100)
    assert found is not None
    return found


def test_all_wait_for_the_multiprocessor_with_the_most_blocks():
    (kernel,) = read_cubin(kept("sm_90a")).kernels
    seen = inspect_kernel(kernel, THREADS)
    assert seen.cycles is not None
    assert expected(H100) == pytest.approx(seen.cycles.pipe_share)
    assert expected(3 * H100) == pytest.approx(expected(H100))
    assert expected(H100 + 1) == pytest.approx(expected(2 * H100) * (H100 + 1) / (2 * H100))
    assert expected(1) == pytest.approx(expected(H100) / H100)


@pytest.mark.skipif(nvrtc() is None, reason="NVRTC is not here: pip install 'tilewright[tune]'")
def test_a_kernel_without_multiply_adds_has_no_forecast():
    source = Source('extern "C" __global__ void fill(float *x) { x[threadIdx.x] = 1; }', {}, "fill")
    code = compile_cubin(source, "sm_90a").code
    assert forecast(code, Launch((H100, 1), (THREADS, 1)), H100) is None


def test_the_most_promising_candidate_is_timed_first_and_hopeless_ones_never():
    queue = ReadyQueue()
    names = {share: example(block=round(100 * share)) for share in (0.3, 0.8, 0.7)}
    for share, candidate in names.items():
        queue.add(candidate, share)
    assert queue.give_up() is names[0.3]
    assert queue.give_up() is None  # 0.7 may well beat 0.8: forecasts err
    assert [queue.take(), queue.take()] == [names[0.8], names[0.7]]
    assert not len(queue)


def test_without_forecasts_candidates_leave_in_the_order_they_came():
    queue = ReadyQueue()
    first, second, third = (example(block=x) for x in (1, 2, 3))
    for candidate in (first, second, third):
        queue.add(candidate)
    assert queue.give_up() is None
    assert [queue.take() for _ in range(3)] == [first, second, third]


def test_a_rescheduled_candidate_is_judged_by_its_own_code():
    """What the search took away of the loop's cycles counts, and nothing else changes."""
    code = patch(kept("sm_90a"), rescheduled())
    launch = Launch((H100, 1), (THREADS, 1))
    before, after = (forecast(one, launch, H100) for one in (kept("sm_90a"), code))
    shares = [
        inspect_kernel(read_cubin(one).kernels[0], THREADS).cycles.pipe_share
        for one in (kept("sm_90a"), code)
    ]
    assert after / before == pytest.approx(shares[1] / shares[0])
    assert after > before
