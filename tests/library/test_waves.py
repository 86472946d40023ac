"""What the wave model expects of blocks that share tiles: no cliff but padding's."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tilewright.library.choose import choose
from tilewright.library.cycles import COSTS, cycles, work
from tilewright.library.waves import Timed, doubted, effort, expected_ns, timed_nearby

from tilewright.backend.cuda.architecture import architecture_spec
from tilewright.library import choose as choosing
from tilewright.precision import precision
from tilewright.problem import Problem, Trans
from tilewright.stencil import Variant, stencil
from tilewright.stencil.asynchronous.division import MOST_SINGLE, divide
from tilewright.stencil.simt_async import SimtAsync

FAMILY = SimtAsync()
H100 = replace(
    architecture_spec("sm_90a"), name="NVIDIA H100 80GB HBM3", multiprocessors=132
)  # as its driver reports it, so that the shipped table serves
NN = Variant(precision("s"), Trans.N, Trans.N)
WHOLE = FAMILY.starts(NN, H100)[:3]
SINGLE = COSTS["simt_async", "s"]
SHARING = [one.replace(persistent=1, stream_k=how) for one in WHOLE for how in (1, 2)]


def square(n: int) -> Problem:
    return Problem(n, n, n, "s")


def aligned(n: int) -> Problem:
    """Columns that begin on 16 bytes at any size, so that copies and stores are the same."""
    return Problem(n, n, n, "s", lda=20000, ldb=20000, ldc=20000)


def padded(config, problem: Problem) -> int:
    """Multiply-adds of all tiles, those at the edges counted as whole ones."""
    sides = (config.integer("block_m"), config.integer("block_n"))
    m, n = (-(-x // side) * side for x, side in zip((problem.m, problem.n), sides, strict=True))
    return m * n * problem.k


@given(
    config=st.sampled_from(SHARING),
    sizes=st.tuples(*(st.integers(1, 9000),) * 3),
    multiprocessors=st.integers(1, 200),
)
def test_every_step_of_every_tile_is_somebodys(config, sizes, multiprocessors) -> None:
    launch = FAMILY.launch(config, *sizes[:2]).on(multiprocessors)
    d = divide(config, sizes, launch.grid[0])
    m, n, k = (-(-x // config.integer(f"block_{s}")) for x, s in zip(sizes, "mnk", strict=True))
    assert (d.whole + d.shared, d.steps) == (m * n, k)
    assert d.whole % d.blocks == 0 or not d.shared
    assert d.workers <= d.blocks
    if d.shared:
        shares = [d.share_at(x + 1) - d.share_at(x) for x in range(d.workers)]
        assert d.share_at(0) == 0
        assert sum(shares) == d.shared * d.steps
        assert min(shares) > 0
        assert max(shares) == d.longest_share <= min(shares) + 1
        # Nobody leaves parts of two tiles: a worker begins at most one that it does not own.
        assert d.workers >= min(d.shared, d.blocks)


@pytest.mark.parametrize("config", SHARING, ids=lambda config: config.id)
@given(n=st.integers(8, 128).map(lambda blocks: 128 * blocks), beside=st.sampled_from([-4, 4]))
def test_a_size_beside_a_multiple_costs_what_its_tiles_hold_and_5_percent(config, n, beside):
    """From 1024 on, 2052 most; without shares the same step may cost a whole wave.

    Sides of whole 16 bytes: others are copied by single elements.
    """
    multiple, other = aligned(n), aligned(n + beside)
    more = effort(config, other, H100, 132) / effort(config, multiple, H100, 132)
    assert more <= 1.051 * max(1.0, padded(config, other) / padded(config, multiple))


def test_without_shares_one_more_tile_costs_a_wave() -> None:
    """What the property above forbids is what blocks for each tile do."""
    config = WHOLE[0]
    more = effort(config, square(2049), H100, 132) / effort(config, square(2048), H100, 132)
    assert more > 1.6 * padded(config, square(2049)) / padded(config, square(2048))


@pytest.mark.parametrize("n", [2049, 2176, 3000, 4097])
def test_shares_are_chosen_where_waves_end_badly(n: int) -> None:
    """Two configs as fast at 2048 and 4096: the sharing one is expected to be faster beside."""
    rate = {square(2048): 350e3, square(4096): 2.7e6}
    whole, sharing = Timed(WHOLE[0], rate), Timed(WHOLE[0].replace(**SHARING[0]), rate)
    times = [expected_ns(one, square(n), H100, 132) for one in (whole, sharing)]
    assert times[1] < times[0]


@given(config=st.sampled_from(SHARING), n=st.integers(600, 9000))
def test_shares_leave_nobody_idle(config, n: int) -> None:
    """The busiest multiprocessor has its part of all tiles, a step, and the ends."""
    problem = square(n)
    even = padded(config, problem) / 132
    area = config.integer("block_m") * config.integer("block_n")
    resident = config.integer("resident")
    ends = area * resident * (config.integer("block_k") + 64 * 2 + 72)
    # Half as much again: what a block of four warps cannot hide of its only tile.
    assert effort(config, problem, H100, 132) <= (even + ends) * 1.5


@given(n=st.integers(64, 2000))
def test_the_last_tile_along_k_is_a_whole_one(n: int) -> None:
    config = WHOLE[0]
    depth = config.integer("block_k")
    least, most = (
        Problem(512, 512, k, "s") for k in (n // depth * depth + 1, -(-(n + 1) // depth) * depth)
    )
    assert work(config, least, 1, 132).steps == work(config, most, 1, 132).steps


def test_what_was_not_timed_nearby_has_lost() -> None:
    """A search takes only the best of small sizes to large ones: hopes of the others end there."""
    both = Timed(WHOLE[0], {square(2048): 100.0, square(8192): 6400.0})
    dropped = Timed(WHOLE[1], {square(2048): 101.0})
    assert timed_nearby([dropped, both], square(2500)) == [dropped, both]
    assert timed_nearby([dropped, both], square(6000)) == [both]


def test_parts_cost_little_beside_a_step_of_pairs() -> None:
    """What a config gains from a small size to a large one is less where steps are longer."""
    config = SHARING[0].replace(block_m=32, block_n=32, tile_m=4, tile_n=4, lanes_m=8, resident=4)
    gains = []
    for letter in "se":
        per = [effort(config, Problem(n, n, n, letter), H100, 132) / n**3 for n in (1056, 8448)]
        gains.append(per[0] / per[1] - 1)
    assert 0 < gains[1] < gains[0] / 4


def owners_add(config, sizes: tuple[int, int, int]) -> int:
    """The most parts that the owner of a tile adds up, counted share by share."""
    launch = FAMILY.launch(config, *sizes[:2]).on(132)
    d = divide(config, sizes, launch.grid[0], most=MOST_SINGLE)
    begins = [d.share_at(x) for x in range(d.workers)] if d.shared else []
    inside = [begin // d.steps for begin in begins if begin % d.steps]
    return max((inside.count(tile) for tile in set(inside)), default=0)


@given(
    config=st.sampled_from(SHARING),
    sizes=st.tuples(st.integers(1, 3000), st.integers(1, 3000), st.integers(1, 9000)),
)
def test_no_owner_adds_up_more_parts_than_a_tile_has_shares(config, sizes) -> None:
    """49 parts of the only tile, one after another, were most of the time of 87 x 118 x 3126."""
    parts = owners_add(config, sizes)
    assert parts <= MOST_SINGLE
    # The model counts them but for one that the rounding of shares makes more or less.
    counted = work(config, Problem(*sizes, "s"), config.integer("resident"), 132).parts
    assert abs(parts - counted) <= 1


@given(
    config=st.sampled_from(SHARING),
    sizes=st.tuples(st.integers(1, 3000), st.integers(1, 3000), st.integers(1, 9000)),
)
def test_parts_pass_the_l2_out_and_in(config, sizes) -> None:
    """Of each block whose share begins within a tile: all of its sums are written, and read."""
    shared, alone = (
        work(one, Problem(*sizes, "s"), config.integer("resident"), 132).l2
        for one in (config, config.replace(stream_k=0))
    )
    d = divide(config, sizes, FAMILY.launch(config, *sizes[:2]).on(132).grid[0], most=MOST_SINGLE)
    begins = [d.share_at(x) for x in range(d.workers)] if d.shared else []
    area = config.integer("block_m") * config.integer("block_n")
    assert shared - alone == 2 * 4 * area * sum(at % d.steps > 0 for at in begins)


def test_far_beyond_what_was_timed_the_nearest_speak() -> None:
    """A config that was slow for its effort at small sizes alone is not thought slow at large."""
    large = {square(n): effort(WHOLE[0], square(n), H100, 132) / 1.9 for n in (6144, 7168, 8192)}
    small = {
        Problem(64 + n, 64 + n, 64, "s"): 2 * effort(WHOLE[0], square(64), H100, 132)
        for n in range(40)
    }
    both = Timed(WHOLE[0], {**small, **large})
    problem = square(32768)
    fair = effort(WHOLE[0], problem, H100, 132) / 1.9
    assert expected_ns(both, problem, H100, 132) == pytest.approx(fair, rel=0.01)


CASES = st.sampled_from(["NN", "NT", "TN", "TT"])
LIVE = SimpleNamespace(spec=H100, fingerprint="")


@settings(max_examples=30, deadline=None)  # a first choice reads a table
@given(CASES, st.integers(64, 400), st.integers(64, 400), st.integers(2000, 6000))
def test_few_tiles_and_long_sums_are_divided(trans, m, n, k) -> None:
    """In clusters, whose blocks send each other their parts at once, by halves, in slices that all
    multiprocessors add up, or by layers of a block's warps: not by an owner that adds one part
    after another.
    """
    config = choose(LIVE, Problem(m, n, k, "s", *trans)).config
    divided = config["split_k"] > 1 or config.get("sliced") or config.get("warps_k", 1) > 1
    assert divided or config.get("tree")


@settings(max_examples=30, deadline=None)  # a first choice reads a table
@given(CASES, st.integers(2500, 8192), st.integers(2500, 8192), st.integers(64, 300))
def test_many_tiles_of_short_sums_are_not_cut_up(trans, m, n, k) -> None:
    """What an owner waits for parts of its tile is less than a third of what the tile takes, but
    where the same blocks are expected to take longer with whole tiles only.
    """
    problem = Problem(m, n, k, "s", *trans)
    config = choose(LIVE, problem).config
    area = config.integer("block_m") * config.integer("block_n")
    part = SINGLE.part + SINGLE.part_element * area / FAMILY.threads(config)
    parts = owners_add(config, (m, n, k)) if config.get("stream_k") else 0
    shared, whole = (
        cycles(work(one, problem, config.integer("resident"), 132), SINGLE)
        for one in (config, config.replace(stream_k=0, tree=0))
    )
    assert parts * part < area * k / 128 / 3 or shared < whole


def test_a_tree_of_parts_is_waited_for_as_long_as_it_is_high() -> None:
    """Nine tiles for 132 multiprocessors: more shares of each, and fewer waits of its owner."""
    config = SHARING[0].replace(block_m=128, block_n=128)
    problem = Problem(368, 340, 6373, "s")
    chain, tree = (
        work(one, problem, config.integer("resident"), 132)
        for one in (config, config.replace(tree=1))
    )
    assert chain.parts == MOST_SINGLE
    assert tree.parts < chain.parts
    assert tree.steps < chain.steps
    assert cycles(tree, SINGLE) < cycles(chain, SINGLE)


def test_squares_alone_say_less_of_odd_sides_than_random_shapes_do() -> None:
    """What they say is compared as it is at sides like theirs, of boxes, and among themselves."""
    odd, even = Problem(901, 1203, 700, "s"), Problem(904, 1204, 700, "s")
    squares = Timed(WHOLE[0], {square(1024): 50e3})
    boxes = Timed(WHOLE[0].replace(tma=1), {square(1024): 50e3})
    every = Timed(WHOLE[1], {odd: 40e3, even: 40e3, square(1024): 55e3})
    rows = [squares, boxes, every]
    doubts = doubted(rows, odd)
    assert doubts[0] > 1
    assert doubts[1:] == [1, 1]
    assert doubted(rows, even) == [1, 1, 1]
    assert doubted([squares, boxes], odd) == [1, 1]


def test_operands_along_k_are_told_by_their_steps_where_they_are_not_turned() -> None:
    """Matrix units copy them 16 bytes at once; `simt_async` single elements, whatever k is."""
    family = stencil("mma_f64")
    of = Variant(precision("d"), Trans.T, Trans.N)
    units = Timed(family.default(of, H100), {Problem(512, 512, 512, "d", "T", "N"): 50e3})
    threads = Timed(WHOLE[0], {Problem(512, 512, 512, "d", "T", "N"): 50e3})
    for k, whole in ((700, True), (701, False)):
        problem = Problem(901, 1203, k, "d", "T", "N")
        assert units.copies_whole_chunks(problem) is whole
        assert threads.copies_whole_chunks(problem)


def test_a_choice_doubts_squares_at_odd_sides() -> None:
    """Expected to be 3 % faster by squares alone, a config is chosen at even sides only."""
    odd, even = Problem(901, 1203, 700, "s"), Problem(904, 1204, 700, "s")
    table = choosing.shipped(H100, Variant.of(odd))
    assert table is not None
    for problem, first in ((even, True), (odd, False)):
        known = Timed(WHOLE[1], {odd: 40e3, even: 40e3, square(1024): 55e3})
        squares = Timed(WHOLE[0], {square(1024): 50e3})
        for _ in range(30):  # cycles weigh beside times, so that one does not follow the other
            ahead = 0.97 * 40e3 / expected_ns(squares, problem, H100, 132)
            squares = replace(squares, ns={square(1024): squares.ns[square(1024)] * ahead})
        found, _ = choosing.of_table(H100, problem, replace(table, rows=(squares, known)))
        assert (found.config == squares.config) is first
