"""The tensor-core stencil, its text run on the CPU: every way through it is right.

The emulator runs threads in a random order and each launch twice: copies as early and
multiplies as late as the text allows, and the reverse.
"""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.stencil.contract import faulty, thorough_but
from tests.stencil.emulator import EmulatedDevice, compiler
from tests.stencil.wgmma.harness import (
    EVERY,
    FAMILY,
    FP16X3,
    PLAIN,
    Case,
    Few,
    Run,
    assert_compensated,
    drawn,
    promoted,
    small,
    variant,
)
from tilewright.backend import LaunchError, Operand
from tilewright.stencil import TensorMap
from tilewright.stencil.wgmma import (
    Arithmetic,
    Parts,
    TensorCall,
    Wgmma,
)
from tilewright.tuning.verify import WrongResultError

pytestmark = pytest.mark.skipif(compiler() is None, reason="needs g++ or clang++")


@pytest.mark.parametrize("trans", thorough_but(["NT"], ["NN", "NT", "TN", "TT"]))
def test_either_order_of_either_operand(emulated: EmulatedDevice, trans: str) -> None:
    """Shared memory is read along k or across it; nothing needs to be a multiple of anything."""
    of = variant(trans, PLAIN["f16-f32"])
    Run(emulated, small(of, emulated), of).check(Case(70, 133, 150, padding=1))


ORDERS_OF_TF32 = [
    ("TT", {}),
    ("NN", {}),
    ("NN", {"block_n": 208, "instruction_m": 208, "cluster_m": 2, "beta": 2}),
    ("TT", {"consumers": 1, "cluster_n": 2, "beta": 2}),
    ("NN", {"block_k": 16, "pingpong": 1, "multiprocessors": 78}),
    ("TT", {"promote_k": 32, "partials": 1}),
]


@pytest.mark.every(2)
@pytest.mark.parametrize(("trans", "changes"), ORDERS_OF_TF32, ids=str)
def test_an_operand_of_tf32_may_lie_along_m_or_n(
    emulated: EmulatedDevice, trans: str, changes: dict[str, int]
) -> None:
    """Lanes read it into registers; where that is A, rows and columns change places."""
    of = variant(trans, PLAIN["tf32"])
    sides = {"block_m": 128, "block_n": 64} if trans == "NN" else {}
    config = {**sides, **changes}
    beta = config.pop("beta", 0)
    run = Run(emulated, small(of, emulated, **config), of)
    run.check(Case(150, 133, 100, -1, beta, padding=1, offset_c=1, padding_c=3))


@pytest.mark.parametrize("name", thorough_but(["s8", "e4m3", "e5m2-f32", "fp16x3"], EVERY))
def test_every_arithmetic(emulated: EmulatedDevice, name: str) -> None:
    of = variant("TN", EVERY[name])
    k = 300 // of.arithmetic.element_bytes
    changes = promoted(name)
    Run(emulated, small(of, emulated, **changes), of).check(Case(66, 131, k, 2, -1, padding=1))


@pytest.mark.parametrize("name", thorough_but(["bf16", "fp16x3"], EVERY))
def test_inner_tiles_of_a_c_that_is_only_written(emulated: EmulatedDevice, name: str) -> None:
    """They have a way of their own: no branches, and pairs of results rounded together."""
    of = variant("TN", EVERY[name])
    changes = promoted(name)
    run = Run(emulated, small(of, emulated, block_m=128, instruction_m=128, **changes), of)
    run.check(Case(260, 132, 70, alpha=-2))


CHOICES = [
    {"stages": 5, "block_k": 32},
    {"block_m": 128, "instruction_m": 128, "consumers": 1, "block_n": 128},
    {"block_m": 192, "instruction_m": 96, "consumers": 3, "block_n": 192},
    {"block_m": 208, "instruction_m": 208},
    {"cluster_m": 2, "cluster_n": 1, "multiprocessors": 78},
    {"cluster_m": 1, "cluster_n": 2, "swizzle_rows": 0},
    {"pingpong": 1, "multiprocessors": 78},
    {"cluster_k": 2, "tma": 0, "stages": 4},
    {"cluster_m": 2, "cluster_n": 2, "stages": 3},
]


@pytest.mark.parametrize("changes", thorough_but(CHOICES[-1:], CHOICES), ids=str)
def test_every_choice_of_tiles_and_clusters(
    emulated: EmulatedDevice, changes: dict[str, int]
) -> None:
    of = variant("TN", PLAIN["f16-f32"])
    Run(emulated, small(of, emulated, **changes), of).check(Case(150, 270, 200, beta=1))


@pytest.mark.parametrize(
    "changes",
    [
        pytest.param({"promote_k": 32, "partials": 2}, marks=pytest.mark.thorough),
        {"promote_k": 64, "block_m": 128, "instruction_m": 64, "partials": 2},
        pytest.param({"promote_k": 128, "block_k": 32}, marks=pytest.mark.thorough),
    ],
    ids=str,
)
def test_every_way_of_promotion(emulated: EmulatedDevice, changes: dict[str, int]) -> None:
    """Intervals within a stage, a stage, and several of which the last is cut short."""
    of = variant("NT", FP16X3)
    Run(emulated, small(of, emulated, **changes), of).check(Case(70, 130, 233, padding=2))


@pytest.mark.parametrize(
    "changes",
    [
        {"block_k": 32},
        pytest.param({"block_m": 128, "partials": 2, "block_k": 32}, marks=pytest.mark.thorough),
        pytest.param({"block_n": 64, "consumers": 1}, marks=pytest.mark.thorough),
    ],
    ids=str,
)
def test_roundings_of_promotions_are_made_up_for(
    emulated: EmulatedDevice, changes: dict[str, int]
) -> None:
    """What a plain sum would lose, 1 for each of 9 intervals, is there at the end."""
    of = variant("TN", FP16X3)
    assert_compensated(Run(emulated, small(of, emulated, promote_k=32, **changes), of))


def test_infinities_stay_where_nothing_is_made_up_for(emulated: EmulatedDevice) -> None:
    of = variant("TN", Arithmetic("float16"))
    config = small(of, emulated, promote_k=32, block_k=32)
    assert not FAMILY.compensates(config, of)
    case = Case(64, 8, 96)
    values = drawn(np.random.default_rng(0), case, of)
    values[0][:, 0], values[1][:] = np.inf, 1
    assert np.isposinf(Run(emulated, config, of).result(case, values)[0]).all()


def test_scalars_and_addresses(emulated: EmulatedDevice) -> None:
    """All classes of alpha and beta; C anywhere; operands are not read where nothing is summed."""
    of = variant("TN", FP16X3)
    run = Run(emulated, small(of, emulated, promote_k=32, block_k=32), of)
    for alpha in (0, 1, -3):
        for beta in (0, 1, 2):
            run.check(Case(19, 21, 70, alpha, beta, padding_c=3, offset_c=beta))
    for k in (0, 1):
        run.check(Case(64, 5, k, -2, 1))
    for apart in range(8):
        run.check(Case(37, 6, 5, beta=1, padding_c=apart, offset_c=apart % 5))
    values = drawn(np.random.default_rng(0), Case(8, 8, 8), of)
    values[0][:] = np.nan
    assert not run.result(Case(8, 8, 8, alpha=0), values).any()


@pytest.mark.parametrize("m", thorough_but([67], [1, 2, 3, 15, 16, 17, 64, 65, 67]))
def test_columns_of_two_byte_results_may_begin_anywhere(emulated: EmulatedDevice, m: int) -> None:
    """Those that are not aligned pass through other lanes, by any number of elements."""
    of = variant("TN", PLAIN["bf16"])
    run = Run(emulated, small(of, emulated, block_k=32), of)
    for apart in range(0, 17, 3):
        run.check(Case(m, 20, 5, alpha=2, padding_c=apart, offset_c=apart % 5))


@pytest.mark.parametrize(
    "name",
    thorough_but(
        ["bf16 NT", "bf16 TN", "tf32 NN", "tf32 TN"],
        [f"bf16 {trans}" for trans in ("NN", "NT", "TN", "TT")] + ["tf32 NN", "tf32 TN", "tf32 TT"],
    ),
)
def test_threads_bring_columns_of_any_alignment(emulated: EmulatedDevice, name: str) -> None:
    """Every distance of columns modulo 16 bytes; nothing outside an operand is used."""
    kind, trans = name.split()
    of = variant(trans, PLAIN[kind])
    run = Run(emulated, small(of, emulated, tma=0, stages=3, consumers=1 + (trans != "NN")), of)
    for padding in range(9):
        run.check(Case(66 + padding, 130, 71, -2, padding % 2, padding=padding))
    for sizes in ((1, 1, 1), (3, 200, 64), (64, 128, 0), (65, 7, 300)):
        run.check(Case(*sizes, padding=1))


@pytest.mark.parametrize("kind", ["f16-f32", "tf32"])
@pytest.mark.parametrize(
    "changes",
    [{"parallel_split_k": 1}, {"multiprocessors": 78},
     {"multiprocessors": 78, "pingpong": 1, "consumers": 2}],
    ids=str,
)  # fmt: skip
def test_threads_bring_slices_and_tile_after_tile(
    emulated: EmulatedDevice, changes: dict[str, int], kind: str
) -> None:
    of = variant("NN", PLAIN[kind])
    family = FAMILY if "parallel_split_k" in changes else Few()
    shape = {"tma": 0, "block_n": 64, "consumers": 1, "stages": 3}
    config = small(of, emulated, **shape | changes)
    Run(emulated, config, of, family).check(Case(150, 270, 1101, beta=1, padding=3))


CP_ASYNC_FAULTS = {
    "copies that are under way": ("wait_for_groups<UNDER_WAY>();", ";"),
    "a group that is missing": ("        end_group();", "        if (t < steps) end_group();"),
    "a stage that others read": ("wait_for(empty_of(arena, at->stage), at->round ^ 1);\n", ";\n"),
    "pieces of another line": ("^ (warp + line % 8)", "^ warp"),
    "lines that are outside": ("down < down_left && ", ""),
    "elements that are outside": (" && square * LINE_ELEMENTS < along_left", ""),
}


@pytest.mark.parametrize("fault", CP_ASYNC_FAULTS)
def test_the_emulator_finds_of_copied_elements(emulated: EmulatedDevice, fault: str) -> None:
    of = variant("TT", PLAIN["tf32"])
    config = small(of, emulated, tma=0, stages=3)
    with pytest.raises((WrongResultError, LaunchError)):
        Run(emulated, config, of, faulty(Wgmma, *CP_ASYNC_FAULTS[fault])).check(
            Case(66, 131, 171, padding=1)
        )


def test_threads_bring_whole_operands_of_16_and_32_bits_alone(emulated: EmulatedDevice) -> None:
    for name in ("s8", "e4m3", "fp16x3"):
        of = variant("TN", EVERY[name])
        with pytest.raises(ValueError, match="tma"):
            small(of, emulated, tma=0, **promoted(name))


PINGPONG = {"pingpong": 1, "stages": 3, "block_n": 64, "multiprocessors": 132}


@pytest.mark.thorough
@pytest.mark.parametrize(
    "changes",
    [
        {"cluster_m": 2, "stages": 3, "block_k": 32},
        PINGPONG,
        {"pingpong": 1, "stages": 4, "consumers": 3, "cluster_n": 1, "cluster_m": 2,
         "multiprocessors": 132, "block_k": 32},
    ],
    ids=str,
)  # fmt: skip
@pytest.mark.parametrize("k", [100, 290])
def test_persistent_blocks_go_through_all_tiles(
    emulated: EmulatedDevice, changes: dict[str, int], k: int
) -> None:
    """More tiles than blocks: the ring goes on from one tile to the next, for each its own."""
    of = variant("NN", PLAIN["f16"])
    Run(emulated, small(of, emulated, **changes), of, Few()).check(Case(330, 270, k, beta=1))


@pytest.mark.thorough
def test_a_word_in_device_memory_decides(emulated: EmulatedDevice) -> None:
    of = variant("TN", Arithmetic("float16", routed=True))
    run = Run(emulated, small(of, emulated), of)
    case = Case(64, 64, 64, beta=1)
    run.check(case)
    values = drawn(np.random.default_rng(1), case, of)
    assert np.array_equal(run.result(case, values, route=2), values[2])


@pytest.mark.thorough
def test_exponents_reach_the_ends_of_single_precision(emulated: EmulatedDevice) -> None:
    """Subnormal results are rounded once; what is too large is infinite."""
    of = variant("TN", Arithmetic("float16", scaled=True))
    run = Run(emulated, small(of, emulated), of)
    case = Case(40, 33, 64)
    a, b, c, _, _ = drawn(np.random.default_rng(2), case, of)
    ea, eb = np.linspace(-160, 130, case.m).astype(int), np.linspace(-40, 40, case.n).astype(int)
    got = run.result(case, (a, b, c, ea, eb))
    with np.errstate(over="ignore"):
        right = np.ldexp(a[0] @ b[0], ea[:, None] + eb[None, :]).astype(np.float32)
    assert np.array_equal(got, right)


@pytest.mark.thorough
def test_promotion_rounds_what_the_tensor_core_truncates(emulated: EmulatedDevice) -> None:
    """The emulated tensor core truncates: sums of ones and halves of a last place drift."""
    of = variant("TN", PLAIN["f16-f32"])
    case = Case(64, 128, 4096)
    rng = np.random.default_rng(3)
    a, b = rng.uniform(0.5, 1, (1, case.m, case.k)), rng.uniform(0.5, 1, (1, case.k, case.n))
    a, b = (x.astype(np.float16).astype(np.float64) for x in (a, b))
    none = np.zeros((case.m, case.n)), np.zeros(case.m, int), np.zeros(case.n, int)
    worst = {}
    for interval in (0, 64):
        config = small(of, emulated, promote_k=interval, stages=4)
        got = Run(emulated, config, of).result(case, (a, b, *none))
        worst[interval] = np.max(np.abs(got - a[0] @ b[0]) / (a[0] @ b[0]))
    assert worst[64] < worst[0] / 4
    assert worst[64] < 64 * 2.0**-24


@pytest.mark.thorough
@settings(max_examples=12, suppress_health_check=list(HealthCheck))
@given(
    trans=st.sampled_from(["NN", "TN", "TT"]),
    name=st.sampled_from(["f16", "fp16x3"]),
    sizes=st.tuples(st.integers(1, 150), st.integers(1, 140), st.integers(0, 300)),
    scalars=st.tuples(st.sampled_from([0, 1, -2]), st.sampled_from([0, 1, 3])),
    places=st.tuples(st.integers(0, 2), st.integers(0, 9), st.integers(0, 9)),
    seed=st.integers(0, 2**32 - 1),
)
def test_any_problem_is_computed_exactly(
    emulated: EmulatedDevice,
    trans: str,
    name: str,
    sizes: tuple[int, int, int],
    scalars: tuple[int, int],
    places: tuple[int, int, int],
    seed: int,
) -> None:
    of = variant(trans, EVERY[name])
    changes = {"promote_k": 32, "block_k": 32} if name == "fp16x3" else {}
    run = Run(emulated, small(of, emulated, **changes), of)
    run.check(Case(*sizes, *scalars, *places), seed)


FAULTS = {
    "operands are not waited for": (
        "wait_for(full_of(arena, at->stage), at->round);",
        "",
    ),
    "a stage is filled before it is empty": (
        "wait_for(empty_of(arena, at->stage), at->round ^ 1);",
        "",
    ),
    "the wrong parity of full": ("wait_for(full_of(arena, at->stage), at->round)",
                                 "wait_for(full_of(arena, at->stage), at->round ^ 1)"),
    "the wrong parity of empty": ("wait_for(empty_of(arena, at->stage), at->round ^ 1)",
                                  "wait_for(empty_of(arena, at->stage), at->round)"),
    "a stage is given back before it is read": ("wait_for_multiplies<1>();", ""),
    "sums are read before they are there": (
        "wait_for_multiplies<0>();\n    if",
        "if",
    ),
    "registers are not fenced": ("begin_multiplies();", ""),
    "too few bytes are expected": ("expect_bytes(full, stage_bytes)",
                                   "expect_bytes(full, stage_bytes / 2)"),
    "another pattern of exchanged pieces": ("8 * ROW_BYTES, ROW_BYTES)", "8 * ROW_BYTES, 32)"),
    "another stride of groups": ("8 * ROW_BYTES, ROW_BYTES)", "4 * ROW_BYTES, ROW_BYTES)"),
    "only one warp of a consumer reports": ("SHARERS * (GROUP / 32) * PEERS", "PEERS"),
    "shares overlap": ("to + share * own * ROW_BYTES", "to"),
    "a share goes to the wrong blocks": ("1u << (rank_m + r * CLUSTER_M)", "1u << (rank_m + r)"),
    "a block leaves its cluster early": ("if (CLUSTER_BLOCKS > 1)\n        cluster_barrier(); /*",
                                         "if (0)\n        cluster_barrier(); /*"),
    "one column of the cluster is not told": ("else if (lane < PEERS)", "else if (lane < 0)"),
}  # fmt: skip
QUICK = [
    "operands are not waited for", "a stage is given back before it is read",
    "another pattern of exchanged pieces", "one column of the cluster is not told",
]  # fmt: skip


@pytest.mark.parametrize("fault", thorough_but(QUICK, FAULTS))
def test_the_emulator_finds(emulated: EmulatedDevice, fault: str) -> None:
    """Each fault, put into the text, fails the check that the text passes."""
    old, new = FAULTS[fault]

    of = variant("TN", PLAIN["f16-f32"])
    config = small(of, emulated, cluster_m=2, cluster_n=2, stages=2, block_k=32)
    with pytest.raises((WrongResultError, LaunchError)):
        Run(emulated, config, of, faulty(Wgmma, old, new)).check(Case(130, 140, 400))


def test_boxes_end_with_operands_that_are_shorter_than_a_tile(emulated: EmulatedDevice) -> None:
    """Rows outside take the copy engine as long as rows inside; nothing is expected of them."""
    of, case = variant("TN", PLAIN["f16"]), Case(7, 9, 100)
    config = small(of, emulated)
    Run(emulated, config, of).check(case)
    whole = faulty(Wgmma, " && side < SIDE ?", " && side < 0 ?")
    with pytest.raises((WrongResultError, LaunchError)):
        Run(emulated, config, of, whole).check(case)


@pytest.mark.parametrize(
    ("clusters", "rows"), [((1, 1), [7, 9]), ((2, 1), [7, 64]), ((1, 2), [32, 9])]
)
def test_boxes_that_blocks_of_a_cluster_share_are_whole(
    emulated: EmulatedDevice, clusters: tuple[int, int], rows: list[int]
) -> None:
    of, memory = variant("TN", PLAIN["f16"]), emulated.allocate(4096)
    config = small(of, emulated, cluster_m=clusters[0], cluster_n=clusters[1])
    lies = Parts(memory, 0, 64)
    arguments = FAMILY.arguments(
        config, of, TensorCall(7, 9, 64, 1, lies, lies, 0, Operand(memory, 0, 8))
    )
    assert [x.box[1] for x in arguments if isinstance(x, TensorMap)] == rows


def test_consumers_that_do_not_wait_for_their_turn_are_found(emulated: EmulatedDevice) -> None:
    """A barrier's parity tells two rounds apart, not three."""
    of = variant("NN", PLAIN["f16"])
    hasty = faulty(Few, "wait_for(turn_of(arena, turn), round);", ";")
    with pytest.raises((WrongResultError, LaunchError)):
        Run(emulated, small(of, emulated, **PINGPONG), of, hasty).check(Case(330, 270, 290))


def test_operands_must_be_aligned(emulated: EmulatedDevice) -> None:
    of = variant("TN", PLAIN["f16"])
    memory = emulated.allocate(4096)
    lies = Parts(memory, 0, 64), Parts(memory, 4, 64)
    call = TensorCall(8, 8, 64, 1, *lies, 0, Operand(memory, 0, 8))
    with pytest.raises(ValueError, match="offset=4 of b"):
        FAMILY.arguments(small(of, emulated), of, call)
