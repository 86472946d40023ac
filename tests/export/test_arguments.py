"""What an exported library makes of its arguments, and of the driver's failures."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.export.building import needs_c
from tests.export.calling import COLUMNS, ROWS, A, B, C, nothing, plain
from tests.export.conftest import TARGET, Exported
from tests.tuning.measurement_examples import few

pytestmark = needs_c

MOST = 2**63 - 1


@pytest.mark.parametrize(
    ("changes", "argument", "name"),
    [
        ({"order": 0}, 1, "order"),
        ({"transa": "X"}, 2, "transa"),
        ({"transb": "\0"}, 3, "transb"),
        ({"m": -1}, 4, "(m)"),
        ({"n": -(2**63)}, 5, "(n)"),
        ({"k": -1}, 6, "(k)"),
        ({"alpha": None}, 7, "alpha"),
        ({"a": None}, 8, "(a)"),
        ({"a": A + 2}, 8, "(a)"),
        ({"lda": 7}, 9, "lda"),
        ({"lda": 0, "m": 0}, 9, "lda"),
        ({"b": None}, 10, "(b)"),
        ({"ldb": 3}, 11, "ldb"),
        ({"ldb": 5, "order": ROWS}, 11, "ldb"),
        ({"beta": None}, 12, "beta"),
        ({"c": None}, 13, "(c)"),
        ({"c": C + 1}, 13, "(c)"),
        ({"c": A}, 13, "(c)"),
        ({"c": B + 4}, 13, "(c)"),
        ({"ldc": 7}, 14, "ldc"),
        ({"lda": 1, "ldb": 1}, 9, "lda"),
        ({"lda": 1, "ldb": 1, "order": ROWS}, 9, "lda"),
    ],
)
def test_a_wrong_argument_is_named_and_nothing_is_launched(exported, changes, argument, name):
    said = exported.call("gemm", *plain(**changes))
    assert said == nothing(-argument)
    assert exported.call("strerror", -argument).startswith(f"argument {argument} ")
    assert name in exported.call("strerror", -argument)


@pytest.mark.parametrize("letter", ["d", "z", "tw_dgemm", "tw_zgemm", "D"])
def test_elements_must_be_aligned_to_their_size(exported, letter):
    size = {"d": 8, "z": 16}[letter[-5] if letter.startswith("tw_") else letter.lower()]
    assert exported.call("gemm", *plain(letter=letter, b=B + size))["status"] == 0
    assert exported.call("gemm", *plain(letter=letter, b=B + size // 2))["status"] == -10


@pytest.mark.parametrize(
    "changes",
    [
        {"m": 0}, {"n": 0}, {"m": 0, "a": None, "c": None},
        {"k": 0, "beta": (1, 0)}, {"alpha": (0, 0), "beta": (1, 0), "c": None},
    ],
)  # fmt: skip
def test_what_changes_nothing_launches_nothing(exported, changes):
    assert exported.call("gemm", *plain(**changes)) == nothing(0)


@pytest.mark.parametrize("changes", [{"alpha": (0, 0)}, {"k": 0, "lda": 8, "ldb": 1}])
def test_what_only_scales_reads_neither_a_nor_b(exported, changes):
    """Both may be null, and may overlap C: the kernel is told k = 0."""
    for beta in ((0, 0), (2, 0)):
        for a, b in ((None, None), (C, C)):
            said = exported.call("gemm", *plain(beta=beta, a=a, b=b, **changes))
            assert said["status"] == 0
            assert said["launch"]["arguments"][2] == 0


def test_complex_scalars_are_zero_only_with_both_parts(exported):
    said = exported.call("gemm", *plain(letter="z", alpha=(0, 1), beta=(1, 0)))
    assert said["launch"]["arguments"][2] == 4
    said = exported.call("gemm", *plain(letter="z", alpha=(0, 0), beta=(1, -1)))
    assert said["launch"]["arguments"][2] == 0


def test_not_a_number_is_neither_zero_nor_one(exported):
    said = exported.call("gemm", *plain(alpha=(float("nan"), 0)))
    assert said["launch"]["arguments"][2] == 4
    assert exported.call("gemm", *plain(k=0, beta=(float("nan"), 0)))["launch"]


@pytest.mark.parametrize(
    "changes",
    [
        {"m": 2**40, "n": 2**40, "k": 0, "lda": 2**40, "ldb": 1, "ldc": 2**40},
        {"lda": MOST},
        {"ldc": MOST, "ldb": 6, "order": ROWS},
        {"m": 2**61, "n": 1, "k": 1, "lda": 2**61, "ldb": 1, "ldc": 2**61},
        {"m": 2**40, "n": 2**18, "k": 0, "lda": 2**40, "ldc": 2**40},
        {"m": MOST, "n": MOST, "k": MOST, "lda": MOST, "ldb": MOST, "ldc": MOST},
        {"c": 2**64 - 64},
    ],
)
def test_what_no_machine_holds_is_refused(exported, changes):
    assert exported.call("gemm", *plain(**changes)) == nothing(5)


@pytest.mark.parametrize(
    ("changes", "steps", "status"),
    [
        ({"ldb": 2**62}, (0, 24, 48, 2), 5),
        ({"ldc": 2**62}, (32, 24, 48, 2), 5),
        ({"ldc": 2**40}, (0, 0, 8, 2**62), -18),
        ({"k": 0}, (2**62, 2**62, 48, 2), 0),
    ],
)
def test_batches_that_no_machine_holds_are_refused_unless_nothing_is_read(
    exported, changes, steps, status
):
    """Nothing overflows: the library would end the process."""
    call = plain(letter="s", **changes)
    assert exported.call("batch", *call, *steps)["status"] == status


def test_precisions_left_out_and_unknown_ones_are_told_apart_from_wrong_arguments(exported):
    for letter in ("c", "tw_cgemm", "q", "\0"):
        assert exported.call("gemm", *plain(letter=letter)) == nothing(3)
    assert "no kernel" in exported.call("strerror", 3)
    assert exported.call("choose", "c", COLUMNS, "N", "N", 8, 8, 8) is None
    assert exported.call("choose", "s", COLUMNS, "N", "X", 8, 8, 8) is None


def elements(at, rows, columns, ld):
    return {at + i + j * ld for j in range(columns) for i in range(rows)}


corner = st.integers(0, 60)
side = st.integers(1, 6)
pad = st.integers(0, 7)


@few
@given(at=st.tuples(corner, corner), m=side, n=side, k=side, pads=st.tuples(pad, pad), same=...)
def test_overlap_is_decided_element_by_element(exported: Exported, at, m, n, k, pads, same: bool):
    """Parts of one matrix that lie within each other's extent share nothing."""
    lda = m + pads[0]
    ldc = lda if same else m + pads[1]
    share = elements(at[0], m, k, lda) & elements(at[1], m, n, ldc)
    where = {"a": C + 4 * at[0], "c": C + 4 * at[1], "lda": lda, "ldc": ldc, "ldb": k}
    said = exported.call("gemm", *plain(m=m, n=n, k=k, **where))
    assert said["status"] == (-13 if share else 0)


def test_kernels_are_loaded_once_a_context(exported: Exported):
    call = exported.call
    before = call("counters")
    call("set", "fake_context", 77)
    for _ in range(3):
        assert call("gemm", *plain(letter="d"))["status"] == 0
    assert call("counters")["fake_loads"] == before["fake_loads"] + 1
    call("set", "fake_context", 78)
    assert call("gemm", *plain(letter="d"))["status"] == 0
    assert call("load") == 0
    count = len(exported.kernels.codes)
    assert call("counters")["fake_loads"] == before["fake_loads"] + 1 + count
    assert call("unload") == 0
    assert call("counters")["fake_unloads"] == before["fake_unloads"] + count
    assert call("gemm", *plain(letter="d"))["status"] == 0
    call("set", "fake_context", 1)


def test_the_drivers_failures_reach_the_caller(exported: Exported):
    call = exported.call
    call("set", "fake_context", 0)
    assert call("gemm", *plain())["status"] == 2
    assert call("load") == call("unload") == 2
    call("set", "fake_context", 99)
    for result, status in ((209, 4), (2, 1002)):
        call("set", "fake_load_result", result)
        assert call("gemm", *plain())["status"] == status
    call("set", "fake_load_result", 0)
    call("set", "fake_launch_result", 719)
    assert call("gemm", *plain())["status"] == 1719
    assert call("strerror", 1719) == "unspecified launch failure"
    call("set", "fake_launch_result", 0)
    assert call("gemm", *plain())["status"] == 0
    call("set", "fake_context", 1)


def test_every_status_has_a_sentence_and_others_are_told_so(exported: Exported):
    said = {status: exported.call("strerror", status) for status in range(-19, 7)}
    assert len(set(said.values())) == len(said)
    assert TARGET.arch in said[4]
    for status in (-20, 7, 1000, 1999, 2**31 - 1, -(2**31)):
        assert exported.call("strerror", status) == "not a status of this library"
