"""Operands that are copied before a product: when, and with the same results as without."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import tilewright as tw
from tests.portfolio.examples import H100, Hopper, costs, kernel
from tests.serve.test_boxes import laid
from tests.serve.test_gemm import draw_matrix, laid_out, layouts
from tilewright.backend import OutOfMemoryError
from tilewright.portfolio import choose
from tilewright.portfolio.portfolio import Copying
from tilewright.precision import PRECISIONS, SHORT
from tilewright.problem import Problem, Trans
from tilewright.serve.routes import realigned
from tilewright.serve.routes.realigned import best_way, expected_ns, ways
from tilewright.serve.scratch import Scratch
from tilewright.stencil import Variant, stencil
from tilewright.tuning.verify import error_bound

ALIGNED = (True, True)
LETTERS = ("s", "d", "c", "z")


# -- the ways ------------------------------------------------------------------------------


@given(
    sizes=st.tuples(*[st.integers(1, 300)] * 3),
    more=st.tuples(st.integers(0, 5), st.integers(0, 5)),
    letter=st.sampled_from(LETTERS),
    trans=st.tuples(st.sampled_from("NTC"), st.sampled_from("NTC")),
    aligned=st.tuples(st.booleans(), st.booleans()),
)
def test_a_way_reads_operands_along_m_and_n_that_are_aligned(sizes, more, letter, trans, aligned):
    """The one with all copies; the one without any is the problem itself."""
    problem = laid(Problem(*sizes, letter, *trans), *more)
    plain, *others = ways(problem, aligned)
    assert plain.problem == problem
    assert not plain.copies
    whole = others[-1] if others else plain
    size = problem.precision.element_bytes
    assert whole.aligned
    assert not whole.problem.trans_a.transposed
    assert whole.problem.trans_b.transposed
    assert whole.problem.lda * size % 16 == whole.problem.ldb * size % 16 == 0
    assert [*map(tuple, (w.copies for w in others))] in ([], [("a",)], [("b",)], [*_both()])


@given(
    sizes=st.tuples(*[st.integers(1, 300)] * 3),
    more=st.tuples(st.integers(0, 5), st.integers(0, 5)),
    letter=st.sampled_from([one for one in SHORT if SHORT[one].reads_along_k]),
    trans=st.tuples(st.sampled_from("NT"), st.sampled_from("NT")),
    aligned=st.tuples(st.booleans(), st.booleans()),
)
def test_what_is_read_along_k_is_copied_where_no_kernel_reads_it(
    sizes, more, letter, trans, aligned
):
    """By what is expected of the shipped kernels, or where nothing is known."""
    problem = laid(Problem(*sizes, letter, *trans), *more)
    way = best_way(Hopper(), problem, aligned)
    assert choose(Hopper(), way.problem, way.aligned).geometry.takes(way.problem, way.aligned)
    every = [one for one in ways(problem, aligned) if is_read(one)]
    known = [ns for one in every if (ns := expected_ns(Hopper(), one)) is not None]
    assert expected_ns(Hopper(), way) == min(known)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(realigned, "expected_ns", lambda *_: None)
        way = best_way(Hopper(), problem, aligned)
    size = problem.precision.element_bytes
    assert is_read(way)
    assert way.aligned
    assert way.problem.lda * size % 16 == way.problem.ldb * size % 16 == 0


def is_read(way):
    """Whether there are kernels for operands in such orders."""
    return way.problem.precision.reads(Variant.of(way.problem).k_fast)


@pytest.mark.parametrize(("sizes", "copied"), [((64, 32, 128), ("b",)), ((32, 64, 128), ("a",))])
def test_of_two_operands_across_k_the_shorter_is_copied_where_no_times_are_known(
    monkeypatch, sizes, copied
):
    """Of TF32 kernels read one operand across k; of bytes none."""
    monkeypatch.setattr(realigned, "expected_ns", lambda *_: None)
    across = "N", "T"
    assert tuple(best_way(Hopper(), Problem(*sizes, "tf32", *across), ALIGNED).copies) == copied
    assert len(best_way(Hopper(), Problem(*sizes, "int8", *across), ALIGNED).copies) == 2


def test_a_ways_time_is_its_kernels_and_its_passes(monkeypatch):
    portfolio = SimpleNamespace(copying=Copying(1000, 2000))
    monkeypatch.setattr(realigned, "shipped", lambda *_: portfolio)
    monkeypatch.setattr(realigned, "choose", lambda *_: SimpleNamespace(ns=500.0))
    way = ways(Problem(64, 64, 64, "e4m3", "N", "N"), ALIGNED)[-1]
    assert expected_ns(Hopper(), way) == 500 + 1000 + 2 * 64 * 64 / 2000
    portfolio.copying = None
    assert expected_ns(Hopper(), way) is None


def _both():
    return ("b",), ("a",), ("a", "b")


def test_a_conjugate_that_is_not_turned_stays_with_the_kernel():
    """op(A) is conjugated as it is transposed; op(B) is as long as its memory runs along n."""
    found = ways(Problem(64, 65, 66, "c", "C", "C"), ALIGNED)[-1]
    assert found.a.transposed
    assert found.a.conjugated
    assert found.problem.trans_a is Trans.N
    assert found.b is not None  # 65 elements are no whole 16 bytes
    assert not found.b.transposed
    assert not found.b.conjugated
    assert found.problem.trans_b is Trans.C


# -- the choice ----------------------------------------------------------------------------


@pytest.fixture
def h100(ship):
    """An H100 whose portfolio says what copies cost, and its memory.

    Threads that copy their operands take twice as long as kernels whose tiles come in boxes.
    """
    family, made = stencil("simt_async"), []
    for trans in ("NN", "NT", "TN", "TT"):
        of = Variant.of(Problem(1, 1, 1, "s", *trans))
        for one in family.starts(of, H100):
            if one in family.space(of, H100):
                made.append(kernel(of, one, costs=costs(200.0 if one.get("tma", 0) else 400.0)))
    ship(*made, copying=Copying(9300.0, 2850.0))
    ship(*[kernel(Problem(1, 1, 1, "d", "T"), name="mma_f64", costs=costs(9.0))], name="d")
    short = []
    for trans in ("NN", "NT", "TN", "TT"):
        of = Variant.of(Problem(1, 1, 1, "bf16", *trans))
        for name, ns in (("wgmma", 20.0), ("skinny", 300.0)):
            short.append(kernel(of, stencil(name).default(of, H100), costs=costs(ns)))
    of = Variant.of(Problem(1, 1, 1, "int8", "T"))
    for name, ns in (("wgmma", 20.0), ("skinny", 1.0)):
        short.append(kernel(of, stencil(name).default(of, H100), costs=costs(ns)))
    ship(*short, name="short", copying=Copying(9300.0, 2850.0))
    return Hopper(replace(H100, memory_bytes=80 << 30))


def test_large_products_are_worth_copies_and_small_ones_are_not(h100):
    for n, names in ((16384, ("a", "b")), (128, ())):
        way = best_way(h100, Problem(n, n, n, "s", "T", "N"), ALIGNED)
        assert tuple(way.copies) == names
    way = best_way(h100, Problem(*[9000] * 3, "s"), ALIGNED)
    assert choose(h100, way.problem, way.aligned).config["tma"]


def test_precisions_in_which_no_copies_were_timed_have_none(h100):
    assert not best_way(h100, Problem(*[16384] * 3, "d", "T", "N"), ALIGNED).copies


def test_16_bit_operands_are_copied_where_they_are_not_aligned_and_stay_in_their_order(h100):
    """Tensor cores read either order as fast."""
    sizes = 8192, 8192, 8190
    assert not best_way(h100, Problem(*[8192] * 3, "bf16", "T", "N"), ALIGNED).copies
    way = best_way(h100, Problem(*sizes, "bf16", "T", "N"), ALIGNED)
    assert tuple(way.copies) == ("a", "b")
    assert (way.a.inner, way.a.outer, way.a.transposed) == (8190, 8192, False)
    assert (way.problem.trans, way.problem.lda, way.problem.ldb) == ("TN", 8192, 8192)


def test_bytes_that_are_not_aligned_are_streamed_as_they_lie_where_that_is_faster(h100):
    assert not best_way(h100, Problem(4000, 1, 4001, "int8", "T", "N"), ALIGNED).copies
    assert best_way(h100, Problem(64, 8000, 8001, "int8", "T", "N"), ALIGNED).copies
    assert best_way(h100, Problem(4000, 1, 4001, "int8", "N", "N"), ALIGNED).copies  # none takes it
    way = best_way(h100, Problem(4000, 8, 4001, "int8", "T", "T"), ALIGNED)
    assert tuple(way.copies) == ("b",)  # what lies across k alone


def test_what_the_copy_engine_takes_is_not_copied(h100):
    assert not best_way(h100, Problem(*[16384] * 3, "s", "N", "T"), ALIGNED).copies


def test_copies_take_a_small_share_of_the_memory(h100):
    problem = Problem(*[16384] * 3, "s", "T", "N")
    small = Hopper(replace(h100.spec, memory_bytes=40 << 30))
    assert sum(one.size for one in best_way(small, problem, ALIGNED).copies.values()) <= 40 << 25
    assert not best_way(Hopper(replace(h100.spec, memory_bytes=None)), problem, ALIGNED).copies


def test_without_a_table_nothing_is_copied(live):
    assert not best_way(live, Problem(*[4096] * 3, "s", "T", "N"), (False, False)).copies


def expected_way(device, problem, aligned, copying):
    """Return the best way by the rule that `best_way` documents, in Python's numbers."""
    plain, *others = ways(problem, aligned)
    best, shortest = plain, None
    without = choose(device, problem, plain.aligned).ns
    for way in others if without is not None else ():
        copies = way.copies.values()
        passes = 0.0
        for one in copies:
            traffic = 2 * one.inner * one.outer * one.element_bytes
            passes += copying.begin_ns + traffic / copying.bytes_per_ns
        room = device.spec.memory_bytes / 32
        if passes > 0.3 * without or sum(one.size for one in copies) > room:
            continue
        ns = choose(device, way.problem, way.aligned).ns
        if ns is not None and ns + passes < (without * 0.995 if shortest is None else shortest):
            best, shortest = way, ns + passes
    return best


def test_the_core_decides_by_the_times_of_all_ways(h100):
    """As Python's arithmetic does, where times are close as well."""
    rng, seen = np.random.default_rng(0), set()
    copying = Copying(9300.0, 2850.0)
    small = Hopper(replace(h100.spec, memory_bytes=4 << 30))
    for _ in range(1500):
        sizes = [int(x) for x in np.exp(rng.uniform(2, 9.8, 3))]
        if rng.random() < 0.4:
            sizes = [-(-x // 64) * 64 for x in sizes]
        trans, letter = rng.choice(list("NT"), 2), str(rng.choice(["s", "bf16"]))
        problem = laid(Problem(*sizes, letter, *trans), *(int(x) for x in rng.integers(0, 5, 2)))
        aligned = bool(rng.random() < 0.8), bool(rng.random() < 0.8)
        device = small if rng.random() < 0.3 else h100
        found = best_way(device, problem, aligned)
        assert found == expected_way(device, problem, aligned, copying), problem
        seen.add(tuple(found.copies))
    assert seen == {(), ("a",), ("b",), ("a", "b")}


# -- the product ---------------------------------------------------------------------------


@pytest.fixture
def copying(monkeypatch):
    """Every operand that can be copied is."""
    monkeypatch.setattr(realigned, "best_way", lambda _, *what: ways(*what)[-1])


@settings(max_examples=60)
@given(
    sizes=st.tuples(*[st.integers(1, 90)] * 3),
    letter=st.sampled_from(LETTERS),
    trans=st.tuples(st.sampled_from("NTC"), st.sampled_from("NTC")),
    layout=st.tuples(layouts, layouts, layouts),
    scalars=st.sampled_from([(1, 0), (-0.5, 2), (0, 0.5)]),
    seed=st.integers(0, 2**32 - 1),
)
@example(
    (2, 2, 1), "c", ("C", "N"), ("row", "row", "row"), (1, 0), 0
)  # B is conjugated by its copy
def test_a_product_of_copies_is_right(copying, live, sizes, letter, trans, layout, scalars, seed):
    """Whatever lies how: compared with the product in a wider format."""
    rng, dtype = np.random.default_rng(seed), PRECISIONS[letter].dtype
    (m, n, k), (alpha, beta) = sizes, scalars
    shape_a, shape_b = ((m, k), (k, n))
    a = draw_matrix(rng, shape_a[::-1] if trans[0] != "N" else shape_a, dtype)
    b = draw_matrix(rng, shape_b[::-1] if trans[1] != "N" else shape_b, dtype)
    c = draw_matrix(rng, (m, n), dtype)
    given_c = laid_out(c, layout[2])
    tw.gemm(
        laid_out(a, layout[0]), laid_out(b, layout[1]), given_c,
        alpha=alpha, beta=beta, trans_a=trans[0], trans_b=trans[1], device=live,
    )  # fmt: skip
    wide = np.clongdouble if np.dtype(dtype).kind == "c" else np.longdouble
    x, y = (_operation(v.astype(wide), t) for v, t in zip((a, b), trans, strict=True))
    right = alpha * (x @ y) + beta * c
    size = abs(alpha) * (abs(x) @ abs(y)) + abs(beta) * abs(c)
    number = PRECISIONS[letter]
    bound = error_bound(k, number.unit_roundoff, number.is_complex) * size
    assert (abs(given_c - right) <= bound + np.finfo(dtype).tiny).all()


def _operation(x, trans):
    return {"N": x, "T": x.T, "C": x.conj().T}[trans]


def test_where_memory_is_short_the_kernel_without_copies_serves(copying, live, monkeypatch):
    def need(self, name, size, *, zeroed=False):
        raise OutOfMemoryError(f"no {size} bytes for {name}")

    monkeypatch.setattr(Scratch, "need", need)
    a = np.arange(12, dtype=np.float32).reshape(3, 4)
    np.testing.assert_array_equal(tw.gemm(a, a, trans_a="T", device=live), a.T @ a)
