"""An exported library's calls: the launches that `gemm` itself would make, or a clear refusal."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from functools import lru_cache
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.export.building import needs_c
from tests.export.calling import COLUMNS, ROWS, A, B, C, nothing, plain
from tests.export.comparing import PretendedGPU, compare
from tests.export.conftest import HERE, KEY, OTHER, SPEC, Exported
from tests.tuning.measurement_examples import few
from tilewright.portfolio import choose
from tilewright.precision import PRECISIONS
from tilewright.problem import Problem
from tilewright.serve.routes.realigned import best_way

pytestmark = [needs_c, pytest.mark.usefixtures("drawn_portfolios")]


GPU, ANOTHER = PretendedGPU(SPEC, KEY), PretendedGPU(OTHER, KEY)

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


@pytest.mark.parametrize(("gpu", "context"), [(GPU, 1), (ANOTHER, 2)], ids=["measured", "another"])
@settings(few, max_examples=150)
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
    compare(exported, gpu, call, stream, said)


def large_calls(letters: str, count: int) -> Iterator[tuple]:
    """Yield calls with operands that may be worth copies, in all layouts."""
    rng = np.random.default_rng(0)
    for _ in range(count):
        letter, order = str(rng.choice(list(letters))), int(rng.choice([ROWS, COLUMNS]))
        ta, tb = (str(x) for x in rng.choice(list("NTC"), 2))
        m, n, k = (int(x) for x in np.exp(rng.uniform(4, 8.7, 3)))
        if rng.random() < 0.5:
            m, n, k = (-(-x // 64) * 64 for x in (m, n, k))
        if rng.random() < 0.1:
            m = n = k = max(m, n, k)
        pad, begin = int(rng.choice([0, 0, 1, 2])), PRECISIONS[letter].element_bytes

        def ld(rows, columns, op, row_major=order == ROWS, pad=pad):
            rows, columns = (columns, rows) if op != "N" else (rows, columns)
            return (columns if row_major else rows) + pad

        yield (
            letter, order, ta, tb, m, n, k, (1.0, 0.0), A + begin * int(rng.integers(2)),
            ld(m, k, ta), B, ld(k, n, tb), (0.0, 0.0), C, ld(m, n, "N"),
        )  # fmt: skip


def test_operands_are_copied_as_gemm_copies_them(exported: Exported):
    """Among some hundred calls are all ways, of real and of complex elements, in both orders."""
    seen = set()
    for call in large_calls("sz", 400):
        said = exported.call("gemm", *call, None)
        names = compare(exported, GPU, call, None, said)
        seen.add((call[0], *sorted(name.split("_")[-1] for name in names)))
    kinds = {one[1:] for one in seen}
    assert {
        (),
        ("straight",),
        ("transposed",),
        ("straight", "transposed"),
        ("conjugated",),
    } <= kinds
    assert {(letter, len(names)) for letter, *names in seen} == set(product("sz", (0, 1, 2)))


def test_the_public_choice_is_for_columns_without_gaps(exported: Exported):
    rng = np.random.default_rng(0)
    for _ in range(300):
        letter, ta, tb = (str(x) for x in (rng.choice(list("sdz")), *rng.choice(list("NTC"), 2)))
        m, n, k = (int(x) for x in np.exp(rng.uniform(0, 9, 3)))
        said = exported.call("choose", letter, COLUMNS, ta, tb, m, n, k)
        way = best_way(HERE, Problem(m, n, k, letter, ta, tb), (True, True))
        choice = choose(HERE, way.problem, way.aligned)
        kernel = next(x for x in exported.kernels.kernels.values() if said in x.codes.values())
        assert kernel.kernel.config == choice.config
        assert kernel.codes[choice.mode] == said
    assert exported.call("choose", "s", COLUMNS, "N", "N", 0, 8, 8) is None


def test_more_plans_than_are_kept_are_laid_out_again(exported: Exported):
    """The least recently used one makes room; what is launched stays the same."""
    call = exported.call

    def launches(k):
        return call("gemm", *plain(letter="d", m=30, n=30, k=k, lda=30, ldb=k, ldc=30))["launch"]

    first = launches(64)
    for k in range(1, 4200):
        assert launches(k)["arguments"][2] == k
    assert launches(64) == first


def test_a_plan_is_for_its_own_problem_only(exported: Exported):
    """One after another and again."""
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
    streams = [workspace(100 + i) for i in range(40)]
    assert len(set(streams)) >= 32
    before = call("counters")
    assert workspace(139) == streams[-1]
    assert call("counters")["fake_allocations"] == before["fake_allocations"]
    workspace(500)
    after = call("counters")
    for name in ("fake_allocations", "fake_frees"):
        assert after[name] - before[name] == 1, "of the one used longest ago"
    assert call("unload") == 0
    assert call("counters")["fake_frees"] - after["fake_frees"] == 32
    call("set", "fake_context", 1)


def test_a_captured_launch_has_a_workspace_of_its_graph(exported: Exported):
    """Which is allocated and freed in it."""
    call, sizes = exported.call, leaving()
    call("set", "fake_context", 51)
    assert call("gemm", *plain(stream=7, **sizes))["status"] == 0
    before = call("counters")
    call("set", "fake_capture", 1)
    assert call("gemm", *plain(stream=7, **sizes))["status"] == 0
    after = call("counters")
    for name in ("fake_allocations", "fake_frees"):
        assert after[name] - before[name] == 1
    call("set", "fake_capture", 0)
    assert call("gemm", *plain(stream=7, **sizes))["status"] == 0
    assert call("counters") == {**after, "fake_launches": call("counters")["fake_launches"]}
    call("set", "fake_context", 1)


def test_a_device_without_memory_for_parts_says_so(exported: Exported):
    call, sizes = exported.call, leaving()
    call("set", "fake_context", 52)
    call("set", "fake_allocate_result", 2)
    assert call("gemm", *plain(**sizes)) == nothing(1002)
    call("set", "fake_allocate_result", 0)
    assert call("gemm", *plain(**sizes))["status"] == 0
    call("set", "fake_context", 1)


def test_without_memory_for_copies_the_kernel_for_operands_as_they_lie_serves(exported: Exported):
    call, seen = exported.call, Counter()
    for n in range(512, 4096, 256):
        call("set", "fake_context", 53)
        sizes = {"letter": "s", "m": n, "n": n, "k": n, "lda": n + 1, "ldb": n + 1, "ldc": n}
        copied = call("gemm", *plain(**sizes))["copies"]
        call("unload")
        call("set", "fake_allocate_result", 2)
        said = call("gemm", *plain(**sizes))
        call("set", "fake_allocate_result", 0)
        choice = choose(HERE, Problem(n, n, n, "s", lda=n + 1, ldb=n + 1))
        parts = choice.portfolio.codes[choice.digest()].part_bytes if choice.digest() else 0
        if parts:
            assert said == nothing(1002)
        else:
            assert said["copies"] == []
            assert said["launch"]["arguments"][7] == n + 1
            if choice.digest():
                code = exported.kernels.codes[said["launch"]["name"]].code
                assert code.digest == choice.digest()
        seen[bool(copied), bool(parts)] += 1
    assert seen[True, False]
    call("set", "fake_context", 1)
