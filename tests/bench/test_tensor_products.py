"""Products on tensor cores: cases, what a device is given, samples of large results, errors."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.backend.streams import RecordedStream
from tests.bench.numpy_hopper import NumPyHopper
from tilewright.backend.cuda.architecture import architecture_spec
from tilewright.bench.tensor.accuracy import DATA, Exact, draw, errors
from tilewright.bench.tensor.cases import Case, candidates, tuned_as
from tilewright.bench.tensor.products import Matrices, timed
from tilewright.bounds.schemes import SCHEMES as BOUNDS
from tilewright.bounds.units import ARITHMETIC
from tilewright.library.split.product import Step
from tilewright.problem import Problem
from tilewright.stencil import Launch, Source
from tilewright.stencil.split import SCHEMES
from tilewright.stencil.wgmma import ARITHMETICS

ALL = ("f16", "bf16", "tf32", "fp16x3", "tf32x3", "bf16x6", "bf16x9")


def test_bounds_count_the_products_that_kernels_compute():
    for name, one in BOUNDS.items():
        made = ARITHMETICS[name]
        assert (one.parts, one.products) == (made.parts, len(made.products))
        assert one.part_bytes == made.element_bytes
        assert SCHEMES[name].part == one.stored


@pytest.mark.parametrize("trans", ["NN", "NT", "TN", "TT"])
@pytest.mark.parametrize("name", ALL)
def test_cases_know_their_kernel_library_and_bound(name: str, trans: str):
    case = Case(name, trans)
    assert case.bound in ARITHMETIC
    assert (case.peer == "s") == (name in BOUNDS)
    assert (case.scheme is None) == (name in ("f16", "bf16") or (name, trans) == ("tf32", "TN"))
    # What serves must be in the space that it is taken from.
    spec, tuned = architecture_spec("sm_90a"), tuned_as(case)
    first = candidates(tuned, spec)
    assert first
    assert set(first) & set(candidates(case, spec))
    around = candidates(tuned, spec, first[0])
    assert first[0] not in around
    assert all(sum(first[0][k] != one[k] for k in one) == 1 for one in around)
    if name in BOUNDS:  # plain types have no room for a second set of sums beside the largest
        every = {two["promote_k"] for one in first for two in candidates(tuned, spec, one)}
        assert every >= {32, 64, 128}
        assert 0 not in every  # cut at every step, sums are worse than SGEMM's


@pytest.mark.parametrize("pair", [("fp8", "NN"), ("bf16", "NC"), ("bf16", "N")])
def test_unknown_cases_are_refused(pair):
    with pytest.raises(ValueError, match="unknown"):
        Case(*pair)


@pytest.mark.parametrize("trans", ["NN", "NT", "TN", "TT"])
@pytest.mark.parametrize("name", ALL)
def test_every_way_computes_the_same_product(tmp_path: Path, name: str, trans: str):
    """Ours from split to result, and the library's, on one set of matrices."""
    live, case, n = NumPyHopper(tmp_path), Case(name, trans), 48
    rng = np.random.default_rng(0)
    a, b = (draw(rng, (n, n), "normal") for _ in "ab")
    matrices = Matrices(live, Problem(n, n, n, "s"), a, b)
    matrices.turn(trans)
    exact = Exact(matrices.problem, a, b)
    config = candidates(tuned_as(case), live.spec)[0]
    ours = errors(matrices.result(matrices.ours(case, config), case.result), exact)
    from tilewright.bench.peers.formats import format_peer

    theirs = errors(matrices.result(matrices.theirs(case, format_peer(live)), case.result), exact)
    most = {"f16": 2e-3, "bf16": 2e-2, "tf32": 2e-3}.get(name, 1e-6)
    assert ours["eta"] < most
    assert theirs["eta"] < most
    assert ours["median_relative"] < 20 * most
    if case.scheme is not None:
        alone = matrices.ours(case, config, split=False)
        again = errors(matrices.result(alone, case.result), exact)
        assert again == ours
        assert matrices.split(case)() > 0
    matrices.close()


def test_calls_that_are_raced_stay_whole(tmp_path: Path):
    """Each arithmetic has parts of its own: others of more or larger ones may come between."""
    live, n = NumPyHopper(tmp_path), 48
    a, b = (draw(np.random.default_rng(seed), (n, n), "normal") for seed in (0, 1))
    matrices = Matrices(live, Problem(n, n, n, "s"), a, b)
    calls = {}
    for name in ("fp16x3", "bf16x6", "tf32x3"):  # the parts of each are larger than before
        case = Case(name, "NN")
        config = candidates(tuned_as(case), live.spec)[0]
        calls[name] = matrices.ours(case, config)
        calls[name]()
        calls[f"{name} alone"] = matrices.ours(case, config, split=False)
        calls[f"{name} split"] = matrices.split(case)
    calls["guarded"] = matrices.guarded()
    exact = Exact(matrices.problem, a, b)
    for name, call in calls.items():
        if name.endswith("split"):
            call()
        else:
            assert errors(matrices.result(call, "float32"), exact)["eta"] < 1e-6, name
    matrices.close()


def test_the_stream_is_held_before_what_is_timed():
    """Events count from when the device comes to the first, with all launches behind it."""
    live = RecordedStream()
    steps = [Step(Source(f"text of {name}", {}, name), Launch((1, 1), (1, 1)), ()) for name in "xy"]
    call = timed(live, steps, "two")
    assert call() == call() == 1
    once = ["held for 2", "begin", "x", "y", "end"]
    assert live.order == ["prepare x", "prepare y", *once, *once]


def test_errors_by_hand():
    problem = Problem(2, 1, 2, "s")
    a, b = np.array([[1.0, 2], [3, 4]], "f4"), np.array([[1.0, -1]], "f4")
    exact = Exact(problem, a, b)  # op(A) has the columns (1, 2) and (3, 4)
    assert exact.product.tolist() == [[-2, -2]]
    assert exact.size.tolist() == [[4, 6]]
    found = errors(np.array([[-2.0, -1.0]]), exact)
    assert found["eta"] == pytest.approx(1 / 6)
    assert found["median_relative"] == pytest.approx(0.25)  # of 0 and 1/2
    assert found["frobenius"] == pytest.approx(1 / np.sqrt(8))
    assert np.isnan(errors(np.array([[np.nan, 1]]), exact)["eta"])


def test_a_sample_is_judged_as_all_is():
    rng = np.random.default_rng(0)
    problem = Problem(40, 30, 50, "s", "T", "N")
    a, b = draw(rng, (40, 50), "phi 1"), draw(rng, (30, 50), "phi 1")
    rows, columns = np.array([0, 7, 39]), np.array([3, 29])
    few, whole = Exact(problem, a, b, (rows, columns)), Exact(problem, a, b)
    assert np.allclose(few.product, whole.product[np.ix_(columns, rows)], rtol=1e-12)
    assert np.allclose(few.size, whole.part_of(whole.size)[np.ix_(columns, rows)], rtol=1e-12)
    wrong = whole.product.copy()
    wrong[29, 7] += 1
    assert errors(wrong, few)["eta"] == pytest.approx(1 / few.size[1, 1])


def test_large_problems_repeat_what_was_drawn(tmp_path: Path):
    """What every format holds is what the device was given."""
    drawn = draw(np.random.default_rng(0), (16, 16), "normal")
    matrices = Matrices(NumPyHopper(tmp_path), Problem(48, 48, 48, "s"), drawn, drawn)
    for name, storage in (("s", "f4"), ("f16", "f2")):
        held = matrices.operand("a", name).bytes.view(storage).reshape(48, 48)
        assert np.array_equal(held, matrices.values("a", name))
        assert len(np.unique(held.view("u2"), axis=0)) == 48


@pytest.mark.parametrize("trans", ["NN", "TT"])
def test_a_sample_needs_no_whole_matrices(tmp_path: Path, trans: str):
    """Neither of large operands, which repeat what was drawn, nor of C."""
    rng = np.random.default_rng(0)
    a, b = (draw(rng, (16, 16), "normal") for _ in "ab")
    matrices, case = Matrices(NumPyHopper(tmp_path), Problem(48, 48, 48, "s"), a, b), "bf16"
    matrices.turn(trans)
    sample = np.array([0, 17, 47]), np.array([5, 40])
    found = matrices.exact(case, sample)
    whole = Exact(matrices.problem, *(matrices.values(x, case) for x in "ab"), sample)
    assert np.allclose(found.product, whole.product)
    assert np.allclose(found.size, whole.size)
    config = candidates(tuned_as(Case(case, trans)), matrices.live.spec)[0]
    ours = matrices.ours(Case(case, trans), config)
    picked = matrices.picked(ours, "bfloat16", sample)
    assert np.array_equal(picked, whole.part_of(matrices.result(ours, "bfloat16")))
    assert errors(picked, found, picked=True)["eta"] < 1e-2


def test_data_of_the_field():
    rng = np.random.default_rng(0)
    spans = [np.ptp(np.log2(np.abs(draw(rng, (200, 200), data)))) for data in DATA[1:]]
    assert spans == sorted(spans)
    for data in ("uniform", "phi", "phi -1", "phi x"):
        with pytest.raises(ValueError, match="is unknown"):
            draw(rng, (2, 2), data)
