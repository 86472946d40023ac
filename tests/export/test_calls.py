"""An exported library's calls: the launches that `gemm` itself would make, or a clear refusal."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tilewright.library.choose import choose

from tests.export.building import needs_c
from tests.export.conftest import FINGERPRINT, TARGET, Exported
from tests.tuning.measurement_examples import few
from tilewright.backend import Kernel, Operand
from tilewright.library.gemm import Request, prepare_gemm
from tilewright.precision import PRECISIONS
from tilewright.problem import Problem, Trans
from tilewright.stencil import STATIC_SHARED_BYTES, stencil

pytestmark = needs_c

ROWS, COLUMNS = 101, 102
A, B, C = 1 << 40, 2 << 40, 3 << 40
MOST = 2**63 - 1


class PretendedGPU:
    """What `prepare_gemm` asks of a device; compiling hands the source back."""

    fingerprint = FINGERPRINT
    spec = TARGET.spec
    dialect = "cuda"

    def compile(self, source):
        return Kernel(source, source.entry, 0.0)


GPU = PretendedGPU()

sizes = st.one_of(st.integers(0, 300), st.integers(1, 20000), st.sampled_from([2000, 724, 512]))
scalars = st.tuples(st.sampled_from([0.0, 1.0, -2.5]), st.sampled_from([0.0, 0.5]))


@st.composite
def calls(draw):
    """Draw a right call: letter, order, letters, sizes, scalars and leading dimensions."""
    letter = draw(st.sampled_from("sdz"))
    order = draw(st.sampled_from([ROWS, COLUMNS]))
    ta, tb = draw(st.sampled_from("NTCntc")), draw(st.sampled_from("NTC"))
    m, n, k = draw(sizes), draw(sizes), draw(sizes)
    alpha, beta = draw(scalars), draw(scalars)
    if letter != "z":
        alpha, beta = (alpha[0], 0.0), (beta[0], 0.0)

    def ld(rows, columns, op):
        rows, columns = (columns, rows) if op in "TCtc" else (rows, columns)
        return max(1, columns if order == ROWS else rows) + draw(st.integers(0, 9))

    return letter, order, ta, tb, m, n, k, alpha, ld(m, k, ta), ld(k, n, tb), beta, ld(m, n, "N")


# What says how operands are copied and results stored, not what is computed.
COPIES = {"NARROW": 0, "GUARDED": 0, "STAGED": 0}


def expected(call):
    """Return what `gemm` would launch for arrays on a device; None where it launches nothing."""
    letter, order, ta, tb, m, n, k, alpha, lda, ldb, beta, ldc = call
    alpha, beta = complex(*alpha), complex(*beta)
    if 0 in (m, n) or ((k == 0 or alpha == 0) and beta == 1):
        return None
    row = order == ROWS
    placed = tuple((Operand(at, 0, ld), row) for at, ld in ((A, lda), (B, ldb), (C, ldc)))
    request = Request(
        PRECISIONS[letter], m, n, k, alpha, beta, Trans.parse(ta), Trans.parse(tb), None, None, None
    )
    return prepare_gemm(GPU, request, placed)


def bits(arguments):
    """Return arguments as the driver reads them, as integers; numbers begin at the first byte."""
    return [
        int.from_bytes(x.tobytes(), "little") if isinstance(x, np.generic) else x for x in arguments
    ]


@few
@given(call=calls(), stream=st.sampled_from([None, 1, 0x7FFF0000]))
def test_every_call_launches_what_gemm_launches(exported: Exported, call, stream):
    """The same kernel, grid, shared memory and arguments, bit for bit.

    But for how operands are copied: `gemm` fits that to leading dimensions, a set of kernels
    has one way each.  What is computed is the same, in the same order.
    """
    letter, order, ta, tb, m, n, k, alpha, lda, ldb, beta, ldc = call
    said = exported.call(
        "gemm", letter, order, ta, tb, m, n, k, alpha, A, lda, B, ldb, beta, C, ldc, stream
    )
    assert said["status"] == 0
    made = expected(call)
    if made is None:
        assert said["launch"] is None
        return
    launch = said["launch"]
    kernel = exported.kernels.kernels[launch["name"]]
    source = made.kernel.handle
    family = stencil(kernel.config.stencil)
    defines = family.source(kernel.config, kernel.variant, "cuda").defines
    assert {**defines, **COPIES} == {**source.defines, **COPIES}
    assert launch["image"] == list(kernel.cubin)
    assert launch["grid"] == [*made.launch.grid, 1]
    assert launch["block"] == [*made.launch.block, 1]
    assert launch["shared_bytes"] == source.dynamic_shared_bytes
    assert launch["arguments"] == bits(made.call.arguments())
    assert launch["stream"] == stream
    assert exported.call("choose", letter, order, ta, tb, m, n, k) == launch["name"]


def test_choices_agree_with_gemm_on_two_thousand_problems(exported: Exported):
    """Sizes over five decades, many exactly between two tuned ones."""
    rng = np.random.default_rng(0)
    between = [200, 316, 2000, 500, 512, 724, 1024]
    chosen = set()
    for _ in range(2000):
        letter, ta, tb = rng.choice(list("sdz")), *rng.choice(list("NTC"), 2)
        wide = np.exp(rng.uniform(0, 11, 3)).astype(int)
        m, n, k = (int(x) for x in np.where(rng.random(3) < 0.3, rng.choice(between, 3), wide))
        problem = Problem(m, n, k, str(letter), str(ta), str(tb))
        name = exported.call("choose", letter, COLUMNS, ta, tb, m, n, k)
        kernel = exported.kernels.kernels[name]
        assert kernel.config == choose(GPU, problem).config, problem
        assert (kernel.variant.trans_a, kernel.variant.trans_b) == (
            problem.trans_a,
            problem.trans_b,
        )
        chosen.add(name)
    assert chosen == set(exported.kernels.kernels)


def test_a_remembered_choice_is_for_its_own_sizes_only(exported: Exported):
    """More sizes than a thread remembers, one after another and again."""
    found = {}
    for k in (*range(1, 40000, 97), *range(1, 40000, 97)):
        name = exported.call("choose", "s", COLUMNS, "N", "N", 30, 30, k)
        config = choose(GPU, Problem(30, 30, k, "s")).config
        assert exported.kernels.kernels[name].config == config
        found.setdefault(name, k)
    assert len(found) > 1


def test_large_tiles_ask_for_their_shared_memory(exported: Exported):
    """The fake driver refuses a launch with more than the function was allowed."""
    said = exported.call("gemm", *plain(m=4000, n=4000, k=4000, lda=4000, ldb=4000, ldc=4000))
    assert said["launch"]["shared_bytes"] > STATIC_SHARED_BYTES


def plain(**changes):
    """Return a right call of tw_sgemm as a list; changes are by name."""
    call = {
        "letter": "tw_sgemm", "order": COLUMNS, "transa": "N", "transb": "N",
        "m": 8, "n": 6, "k": 4, "alpha": (1, 0), "a": A, "lda": 8, "b": B, "ldb": 4,
        "beta": (0, 0), "c": C, "ldc": 8, "stream": None,
    }  # fmt: skip
    assert set(changes) <= set(call)
    return list((call | changes).values())


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
    assert said == {"status": -argument, "launch": None}
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
    assert exported.call("gemm", *plain(**changes)) == {"status": 0, "launch": None}


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
    assert exported.call("gemm", *plain(**changes)) == {"status": 5, "launch": None}


def test_precisions_left_out_and_unknown_ones_are_told_apart_from_wrong_arguments(exported):
    for letter in ("c", "tw_cgemm", "q", "\0"):
        assert exported.call("gemm", *plain(letter=letter)) == {"status": 3, "launch": None}
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
        assert call("gemm", *plain())["status"] == 0
    assert call("counters")["fake_loads"] == before["fake_loads"] + 1
    call("set", "fake_context", 78)
    assert call("gemm", *plain())["status"] == 0
    assert call("load") == 0
    count = len(exported.kernels.kernels)
    assert call("counters")["fake_loads"] == before["fake_loads"] + 1 + count
    assert call("unload") == 0
    assert call("counters")["fake_unloads"] == before["fake_unloads"] + count
    assert call("gemm", *plain())["status"] == 0
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
    said = {status: exported.call("strerror", status) for status in range(-14, 7)}
    assert len(set(said.values())) == len(said)
    assert TARGET.arch in said[4]
    for status in (-15, 7, 1000, 1999, 2**31 - 1, -(2**31)):
        assert exported.call("strerror", status) == "not a status of this library"


def test_the_pretended_gpu_stands_for_a_device():
    """What tests compare with is `gemm`'s own way from a call to a launch."""
    assert choose(GPU, Problem(1000, 1000, 1000, "s")).tuned_on == "SGEMM NN 1000"
    assert choose(GPU, Problem(1000, 1000, 1000, "d")).tuned_on == ""
