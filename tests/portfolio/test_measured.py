"""Times from a file, and from a store of measurements."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from tests.portfolio.times import SHAPES, STARTS, document, write_times
from tests.tuning.measurement_examples import example
from tilewright.portfolio.measured import from_store, joined, read_measured
from tilewright.problem import Problem, Trans
from tilewright.stencil import Variant
from tilewright.tuning.measurement import Stage

NN, TN = (Variant.of(Problem(1, 1, 1, "c", a)) for a in "NT")


def test_a_file_of_times_is_read(tmp_path):
    found = read_measured(write_times(tmp_path))
    assert (found.precision, found.multiprocessors, found.copying) == ("c", 132, (1202, 3096.7))
    assert found.made == {"date": "2026-11-23", "commit": "0123abc"}
    assert {(v.trans_a, v.trans_b) for v in found.cases} == {
        (Trans.N, Trans.N), (Trans.T, Trans.N), (Trans.N, Trans.T),
    }  # fmt: skip
    case = found.cases[TN]
    assert case.problems == tuple(Problem(*sizes, "c", "T") for sizes in SHAPES)
    assert case.configs == STARTS
    assert case.ns.shape == (4, 3)
    assert math.isinf(case.ns[1, 2])
    assert found.cases[NN].won == {Problem(2048, 2048, 2048, "c"): (STARTS[2], 1e6)}
    (one,) = found.rescheduled.items()
    assert one[0] == (NN, STARTS[0])
    assert (one[1].level, one[1].ratio, one[1].unstaged_from) == (5, 0.5, 150)


def test_columns_of_copies_are_aligned(tmp_path):
    found = read_measured(write_times(tmp_path, copied=True)).cases[NN]
    *_, ragged = found.problems
    assert ragged == Problem(999, 513, 777, "c", lda=1000, ldb=778)


def test_files_of_times_are_joined(tmp_path):
    one = read_measured(write_times(tmp_path))
    case = document()["cases"]["TN"]
    more = case | {
        "shapes": [[8, 8, 9999], SHAPES[1]], "configs": case["configs"][1:],
        "ns": [[7e3, None], [50e3, 80e3]],
    }  # fmt: skip
    other = read_measured(write_times(tmp_path, cases={"TN": more, "TT": more}))
    found = joined([one, other])
    assert found.cases[NN] is one.cases[NN]
    assert {(v.trans_a, v.trans_b) for v in found.cases} >= {(Trans.T, Trans.T)}
    both = found.cases[TN]
    assert both.problems == (*one.cases[TN].problems, Problem(8, 8, 9999, "c", "T"))
    assert both.configs == STARTS
    assert both.ns[[0, 2, 3]].tolist() == one.cases[TN].ns[[0, 2, 3]].tolist()
    assert both.ns[1].tolist() == [90e3, 50e3, 80e3]
    assert both.ns[4].tolist() == [math.inf, 7e3, math.inf]


@pytest.mark.parametrize(
    "changes",
    [{"cases": 3}, {"precision": "q"}, {"rescheduled": [{}]}, {"multiprocessors": None},
     {"cases": {"NN": {"shapes": [[1, 2]], "configs": [], "ns": [], "won": []}}},
     {"cases": {"NN": document()["cases"]["NN"] | {"ns": [[1.0]]}}}],
    ids=lambda changes: str(changes)[:40],
)  # fmt: skip
def test_what_is_no_file_of_times_is_named(tmp_path, changes):
    with pytest.raises(ValueError, match=r"c\.json is no file of times") as told:
        read_measured(write_times(tmp_path, **changes))
    assert "\n" not in str(told.value)


def test_a_store_says_the_least_time_of_each_config():
    small, large = (Problem(n, n, n, "c") for n in (64, 512))
    plain = example(config=STARTS[0], problem=small, times_ns=(30,))
    rows = [
        plain,
        replace(plain, times_ns=(20,), stage=Stage.FINAL),
        replace(plain, config=STARTS[1], times_ns=(25,), stage=Stage.WINNER),
        replace(plain, config=STARTS[1], times_ns=(22,), stage=Stage.WINNER),
        replace(plain, problem=large, times_ns=(900,)),
        replace(plain, problem=Problem(64, 64, 64, "s")),
        replace(plain, problem=Problem(64, 64, 64, "c", "T"), times_ns=(50,)),
    ]
    found = from_store(rows, "c", "a GPU", 90, 132)
    assert set(found.cases) == {NN, TN}
    case = found.cases[NN]
    assert (case.problems, case.configs) == ((small, large), STARTS[:2])
    assert case.ns.tolist() == [[20, 22], [900, math.inf]]
    assert case.won == {small: (STARTS[1], 22)}
    assert found.cases[TN].won == {}


def test_an_empty_store_says_nothing():
    assert from_store([], "c", "a GPU", 90, 132).cases == {}
