"""An exported library's calls: the launches that `gemm` itself would make, or a clear refusal."""

from __future__ import annotations

import hashlib
from functools import lru_cache

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.export.building import needs_c
from tests.export.calling import COLUMNS, ROWS, A, B, C, plain
from tests.export.conftest import HERE, KEY, OTHER, SPEC, Exported
from tests.tuning.measurement_examples import few
from tilewright.backend import Kernel, Operand
from tilewright.portfolio import choose
from tilewright.precision import PRECISIONS
from tilewright.problem import Problem, Trans
from tilewright.serve.gemm import Request, column_major_call
from tilewright.serve.routes import direct
from tilewright.stencil import Source, TensorMap

pytestmark = [needs_c, pytest.mark.usefixtures("drawn_portfolios")]


class PretendedGPU:
    """What `direct` asks of a device; compiling hands the source back, loading the code."""

    portfolio_key = KEY
    dialect = "cuda"

    def __init__(self, spec):
        self.spec = spec

    def compile(self, source):
        return Kernel(source, source.entry, 0.0)

    def load(self, code, text):
        return Kernel(code, code.symbol, 0.0)


GPU, ANOTHER = PretendedGPU(SPEC), PretendedGPU(OTHER)

sizes = st.one_of(
    st.integers(0, 300), st.integers(1, 20000), st.integers(1, 40).map(lambda x: 64 * x),
    st.sampled_from([512, 1000, 4096, 64]),
)  # fmt: skip
scalars = st.tuples(st.sampled_from([0.0, 1.0, -2.5]), st.sampled_from([0.0, 0.5]))


@st.composite
def calls(draw):
    """Draw a right call: letter, order, letters, sizes, scalars, matrices."""
    letter = draw(st.sampled_from("sdz"))
    order = draw(st.sampled_from([ROWS, COLUMNS]))
    ta, tb = draw(st.sampled_from("NTCntc")), draw(st.sampled_from("NTC"))
    m, n, k = draw(sizes), draw(sizes), draw(sizes)
    alpha, beta = draw(scalars), draw(scalars)
    if letter != "z":
        alpha, beta = (alpha[0], 0.0), (beta[0], 0.0)
    pad = draw(st.sampled_from([0, 0, 64, 4, 1, 7]))

    def ld(rows, columns, op):
        rows, columns = (columns, rows) if op in "TCtc" else (rows, columns)
        return max(1, columns if order == ROWS else rows) + pad

    begin = draw(st.sampled_from([0, 0, 0, 1])) * PRECISIONS[letter].element_bytes
    return (
        letter, order, ta, tb, m, n, k, alpha, A + begin, ld(m, k, ta), B, ld(k, n, tb), beta, C,
        ld(m, n, "N"),
    )  # fmt: skip


def expected(gpu, call):
    """Return what `gemm` would launch for arrays on a device; None where it launches nothing."""
    letter, order, ta, tb, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc = call
    alpha, beta = complex(*alpha), complex(*beta)
    if 0 in (m, n) or ((k == 0 or alpha == 0) and beta == 1):
        return None
    row = order == ROWS
    placed = tuple((Operand(at, 0, ld), row) for at, ld in ((a, lda), (b, ldb), (c, ldc)))
    request = Request(
        PRECISIONS[letter], m, n, k, alpha, beta, Trans.parse(ta), Trans.parse(tb), None, None, None
    )
    problem, made, _ = column_major_call(request, placed)
    return direct(gpu, problem, made)


def bits(arguments):
    """Return arguments as the driver reads them, as integers; numbers begin at the first byte."""
    return [
        int.from_bytes(x.tobytes(), "little") if isinstance(x, np.generic) else x for x in arguments
    ]


def as_made(tensor: TensorMap):
    """Return a tensor map as the fake driver remembers it."""

    def padded(numbers, count):
        return [*numbers, *[0] * (count - len(numbers))]

    return {
        "address": tensor.memory + tensor.offset,
        "type": {"float32": 7, "float64": 8}[tensor.element],
        "rank": len(tensor.sizes),
        "swizzle": {0: 0, 128: 3}[tensor.swizzle],
        "promotion": 2,
        "sizes": padded(tensor.sizes, 3),
        "strides": padded(tensor.strides, 2),
        "box": padded(tensor.box, 3),
    }


@pytest.mark.parametrize(("gpu", "context"), [(GPU, 1), (ANOTHER, 2)], ids=["measured", "another"])
@settings(few, suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=150)
@given(call=calls(), stream=st.sampled_from([None, 1, 0x7FFF0000]))
def test_every_call_launches_what_gemm_launches(exported: Exported, gpu, context, call, stream):
    """The same machine code, grid, shared memory, arguments and tensor maps, bit for bit.

    Where neither A nor B is read the library launches a kernel without tensor maps.
    """
    exported.call("set", "fake_name", gpu.spec.name)
    exported.call("set", "fake_multiprocessors", gpu.spec.multiprocessors)
    exported.call("set", "fake_context", context)
    said = exported.call("gemm", *call, stream)
    exported.call("set", "fake_context", 1)
    # Contexts that other tests make are on the first GPU again.
    exported.call("set", "fake_name", GPU.spec.name)
    exported.call("set", "fake_multiprocessors", GPU.spec.multiprocessors)
    made = expected(gpu, call)
    if made is None:
        assert said == {"status": 0, "launch": None, "second": None}
        return
    kernel, planned, arguments = made
    wanted = planned.on(gpu.spec.multiprocessors)
    if wanted.grid[1] >= 1 << 16:
        assert said["status"] == 5
        return
    assert said["status"] == 0
    launch = said["launch"]
    assert launch["arguments"] == bits(arguments[:16])
    assert launch["stream"] == stream
    if call[6] == 0 or complex(*call[7]) == 0:
        assert launch["maps"][0]["rank"] == 0
        return
    code = exported.kernels.codes[launch["name"]].code
    handle = kernel.handle
    if isinstance(handle, Source):
        assert code.digest == hashlib.sha256(handle.identity.encode()).hexdigest()
        assert launch["shared_bytes"] == handle.dynamic_shared_bytes
    else:
        assert code.digest == handle.digest
        assert launch["shared_bytes"] == handle.shared_bytes
    assert launch["symbol"] == code.symbol
    assert launch["grid"] == [*wanted.grid, 1]
    assert launch["block"] == [*wanted.block, 1]
    assert not launch["early"]
    maps = [as_made(x) for x in arguments[16:]]
    assert launch["maps"][: len(maps)] == maps
    assert (launch["workspace"] > 0) == (code.part_bytes > 0)
    second = said["second"]
    assert (second is not None) == bool(code.second)
    if second is not None:
        behind = wanted.second
        assert second["symbol"] == code.second
        assert second["grid"] == [*behind.grid, 1]
        assert second["block"] == [*behind.block, 1]
        assert (second["shared_bytes"], second["early"], second["stream"]) == (0, 1, stream)
        assert second["arguments"] == launch["arguments"]
        assert second["workspace"] == launch["workspace"]


def test_the_public_choice_is_for_columns_without_gaps(exported: Exported):
    rng = np.random.default_rng(0)
    for _ in range(300):
        letter, ta, tb = (str(x) for x in (rng.choice(list("sdz")), *rng.choice(list("NTC"), 2)))
        m, n, k = (int(x) for x in np.exp(rng.uniform(0, 9, 3)))
        said = exported.call("choose", letter, COLUMNS, ta, tb, m, n, k)
        choice = choose(HERE, Problem(m, n, k, letter, ta, tb))
        kernel = next(x for x in exported.kernels.kernels.values() if said in x.codes.values())
        assert kernel.kernel.config == choice.config
        assert kernel.codes[choice.mode] == said
    assert exported.call("choose", "s", COLUMNS, "N", "N", 0, 8, 8) is None


def test_a_remembered_choice_is_for_its_own_problem_only(exported: Exported):
    """More problems than a thread remembers, one after another and again."""
    found = set()
    for k in (*range(1, 40000, 997), *range(1, 40000, 997)):
        for pad in (0, 1):
            call = plain(letter="d", m=30, n=30, k=k, lda=30 + pad, ldb=k, ldc=30)
            said = exported.call("gemm", *call)
            choice = choose(HERE, Problem(30, 30, k, "d", lda=30 + pad))
            code = exported.kernels.codes[said["launch"]["name"]].code
            assert code.digest == choice.digest()
            found.add(code.digest)
    assert len(found) > 2


@lru_cache(maxsize=1)
def leaving() -> dict:
    """Return sizes of a product whose blocks leave parts of sums."""
    for n in range(64, 4096, 64):
        choice = choose(HERE, Problem(n, n, n, "d"))
        if choice.portfolio is not None and choice.portfolio.codes[choice.digest()].part_bytes:
            return {"letter": "d", "m": n, "n": n, "k": n, "lda": n, "ldb": n, "ldc": n}
    raise AssertionError("no kernel leaves parts")


def test_each_stream_has_a_workspace_of_its_own(exported: Exported):
    call, sizes = exported.call, leaving()

    def workspace(stream):
        said = call("gemm", *plain(stream=stream, **sizes))
        assert said["status"] == 0
        return said["launch"]["workspace"]

    call("set", "fake_context", 50)
    first = workspace(None)
    assert workspace(None) == first
    assert workspace(7) not in (0, first)
    assert workspace(None) == first
    before = call("counters")
    streams = [workspace(100 + i) for i in range(40)]
    assert len(set(streams)) >= 32
    after = call("counters")
    made = after["fake_allocations"] - before["fake_allocations"]
    freed = after["fake_frees"] - before["fake_frees"]
    assert (made, freed) == (40, 10), "of those used longest ago"
    assert call("unload") == 0
    assert call("counters")["fake_frees"] - after["fake_frees"] == 32
    call("set", "fake_context", 1)


def test_a_captured_launch_has_a_workspace_of_its_graph(exported: Exported):
    call, sizes = exported.call, leaving()
    call("set", "fake_context", 51)
    found = []
    for capture in (0, 5, 5, 6, 0):
        call("set", "fake_capture", capture)
        said = call("gemm", *plain(stream=7, **sizes))
        assert said["status"] == 0
        found.append(said["launch"]["workspace"])
    assert found[1] == found[2]
    assert found[0] == found[4]
    assert len(set(found)) == 3
    call("set", "fake_context", 1)


def test_a_device_without_memory_for_parts_says_so(exported: Exported):
    call, sizes = exported.call, leaving()
    call("set", "fake_context", 52)
    call("set", "fake_allocate_result", 2)
    assert call("gemm", *plain(**sizes)) == {"status": 1002, "launch": None, "second": None}
    call("set", "fake_allocate_result", 0)
    assert call("gemm", *plain(**sizes))["status"] == 0
    call("set", "fake_context", 1)
