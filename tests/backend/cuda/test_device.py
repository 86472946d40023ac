"""The CUDA device behind the backend protocol: the numerics contract, memory, errors, time."""

from __future__ import annotations

import threading

import numpy as np
import pytest

from tests.backend.cuda.naive_cuda import NAIVE
from tilewright.backend import CompileError, LaunchError, OutOfMemoryError, device
from tilewright.backend.cuda.device import CUDADevice
from tilewright.microbench.peak import measured_peak
from tilewright.precision import PRECISIONS
from tilewright.problem import Trans, transposes_of
from tilewright.stencil import Launch, Source, Variant
from tilewright.tuning.verify import WrongResultError, certify, screen

pytestmark = pytest.mark.gpu

VARIANTS = [
    Variant(precision, *trans)
    for precision in PRECISIONS.values()
    for trans in transposes_of(precision)
]
VARIANTS.append(Variant(PRECISIONS["z"], Trans.R, Trans.R))

SPIN = """
extern "C" __global__ void spin(long long cycles, int *out) {
    const long long start = clock64();
    while (clock64() - start < cycles) {}
    if (out) *out = 1;
}"""


def built(cuda, variant, fault=0):
    config = NAIVE.config(fault)
    return cuda.compile(NAIVE.source(config, variant, "cuda")), NAIVE, config, variant


@pytest.mark.parametrize("variant", VARIANTS, ids=str)
def test_the_whole_contract_holds_for_a_naive_kernel(cuda, variant):
    kernel, *rest = built(cuda, variant)
    screen(cuda, kernel, *rest)
    assert certify(cuda, kernel, *rest) > 0


def test_a_wrong_kernel_is_found_out(cuda):
    with pytest.raises(WrongResultError, match=r"should be"):
        screen(cuda, *built(cuda, VARIANTS[0], fault=2))


def test_the_spec_is_complete_and_the_device_is_found_by_name(cuda):
    spec = cuda.spec
    assert all(value is not None for value in vars(spec).values())
    assert spec.kind == "gpu"
    assert spec.warp_size == 32
    assert spec.shared_bytes_per_block >= 48 * 1024  # with what a launch may ask for
    assert spec.vector_bytes == 16
    assert spec.clock_hz > 5e8
    assert cuda.id == "cuda:0"
    assert device("cuda") is cuda
    assert device("cuda:0") is cuda
    assert cuda.arch in cuda.environment()["arch"]
    assert len(cuda.fingerprint) == 12
    assert CUDADevice(0).fingerprint == cuda.fingerprint


def test_copies_go_there_and_back_at_offsets(cuda):
    values = np.arange(1000, dtype=np.float64)
    memory = cuda.upload(values)
    cuda.write(memory, np.array([-1.0, -2.0]), offset=80)
    back = np.empty(5)
    cuda.download(memory, back, offset=72)
    assert back.tolist() == [9, -1, -2, 12, 13]
    cuda.download(memory, np.empty(0))
    cuda.free(memory)
    cuda.free(cuda.allocate(0))


def test_too_much_memory_is_an_error_of_its_own_and_passes(cuda):
    with pytest.raises(OutOfMemoryError, match=r"cuda:0 cannot allocate \d+ bytes") as caught:
        cuda.allocate(1 << 46)
    assert "\n" not in str(caught.value)
    cuda.free(cuda.allocate(1 << 20))


def test_a_refused_launch_is_an_error_and_the_device_goes_on(cuda):
    kernel = built(cuda, VARIANTS[0])[0]
    arguments = [np.int64(0)] * 16
    with pytest.raises(LaunchError, match="launching on cuda:0"):
        cuda.launch(kernel, Launch((1, 1), (64, 64)), arguments)
    for grid in ((0, 1), (1, 65536), (2**31, 1)):
        with pytest.raises(LaunchError, match="grid="):
            cuda.launch(kernel, Launch(grid, (16, 16)), arguments)
    assert cuda.lost is None
    cuda.launch(kernel, Launch((1, 1), (16, 16)), arguments).wait()


def test_a_compile_error_names_the_first_mistake(cuda):
    with pytest.raises(CompileError, match="NVRTC refused the kernel") as caught:
        built(cuda, VARIANTS[0], fault=3)
    assert "\n" not in str(caught.value)


def test_a_cached_kernel_runs(cuda):
    for _ in range(2):
        kernel = cuda.compile(Source(SPIN, {}, "spin"))
        out = cuda.upload(np.zeros(1, np.int32))
        cuda.launch(kernel, Launch((1, 1), (1, 1)), (np.int64(1000), out)).wait()
        back = np.zeros(1, np.int32)
        cuda.download(out, back)
        assert back[0] == 1
        cuda.free(out)


@pytest.mark.alone
def test_events_measure_the_kernel(cuda):
    kernel = cuda.compile(Source(SPIN, {}, "spin"))
    for _ in range(30):  # an idle GPU takes a while to reach its clock
        cuda.launch(kernel, Launch((1, 1), (1, 1)), (np.int64(20_000_000), None)).wait()
    short, long = (
        min(
            cuda.launch(kernel, Launch((1, 1), (1, 1)), (np.int64(cycles), None)).nanoseconds()
            for _ in range(5)
        )
        for cycles in (2_000_000, 20_000_000)
    )
    assert 8 < long / short < 12
    # Between the lowest clock a GPU runs at and a little over the highest it states.
    assert 20e6 / (1.05 * cuda.spec.clock_hz) < long * 1e-9 < 20e6 / 1e8


def test_launches_on_another_stream_wait_for_events(cuda):
    kernel = cuda.compile(Source(SPIN, {}, "spin"))
    with cuda.current():
        stream = int(cuda.check(cuda.api.cuStreamCreate(1), "making a stream"))
    first = cuda.launch(kernel, Launch((1, 1), (1, 1)), (np.int64(50_000_000), None))
    second = cuda.launch(
        kernel, Launch((1, 1), (1, 1)), (np.int64(1), None), queue=stream, after=(first,)
    )
    second.wait()
    with cuda.current():
        (status,) = cuda.api.cuEventQuery(first._pair[1])
    assert int(status) == 0
    cuda.finish()


def test_the_callers_context_is_left_as_it_was(cuda):
    """On a thread without any context, and on one that already has one."""
    seen = []

    def fresh():
        memory = cuda.upload(np.ones(10))
        cuda.free(memory)
        seen.append(int(cuda.api.cuCtxGetCurrent()[1]))

    thread = threading.Thread(target=fresh)
    thread.start()
    thread.join()
    assert seen == [0]
    with cuda.current():
        cuda.free(cuda.upload(np.ones(10)))
        assert int(cuda.api.cuCtxGetCurrent()[1]) == cuda.context


def test_many_kernels_come_and_go(cuda):
    for number in range(200):
        text = f'extern "C" __global__ void gemm(float *x) {{ if (x) *x = {number}; }}'
        kernel = cuda.compile(Source(text, {}))
        cuda.launch(kernel, Launch((1, 1), (1, 1)), (None,)).wait()


@pytest.mark.alone
def test_the_peak_is_near_what_the_numbers_say(cuda):
    peak = measured_peak(cuda, PRECISIONS["s"])
    # 64 or 128 lanes, two operations each, since Pascal.
    lanes = peak / (2 * cuda.spec.multiprocessors * cuda.spec.clock_hz)
    assert 30 < lanes < 140
