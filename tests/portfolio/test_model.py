"""The cost model counts, for all kernels at once, what a loop over blocks and tiles counts."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.portfolio.examples import KINDS, geometries, problems
from tilewright.portfolio.model import TERMS, Model
from tilewright.problem import Problem
from tilewright.stencil.geometry import MODES, MOST_SHARES, Geometry
from tilewright.stencil.work import LEAST_SHARE, MOST_IN_TREE, MOST_SINGLE

MANY = st.integers(1, 200)


def up(x: int, by: int) -> int:
    return (x + by - 1) // by


def work(g: Geometry, p: Problem, many: int) -> dict[str, float]:
    """Return what a launch has to do, kernel by kernel and block by block."""
    size, resident = p.precision.element_bytes, max(1, g.resident)
    rows, columns = g.tiles(p.m, p.n)
    tiles, steps = rows * columns, up(p.k, g.tile_k)
    parts = 1
    if g.split_k is not None:
        parts = g.split_k.parts(steps, tiles, resident * many)
    reached = round(many * {4: 124 / 132, 8: 120 / 132}.get(g.cluster_k, 1.0)) or 1
    blocks = tiles * g.cluster_k * parts
    each = up(blocks, reached)
    long = each * up(steps, parts) * g.tile_k / g.cluster_k
    stored, added, waves, left = each, 0, 0, 0
    if g.persistent:
        steps_of, stored, added, waves, left = stays(g, p, tiles, steps, many)
        long = steps_of * g.tile_k
    chunk = max(1, 16 // size)
    scalar = replace(g, any_alignment=False).mode(p).scalar  # one instance has its ways, too
    if g.streamed:  # one instance finds out by itself
        scalar = (p.lda if g.streamed == 1 else p.ldb) % chunk > 0
    passed = p.k * (up(p.n, g.tile_n) * p.m + up(p.m, g.tile_m) * p.n)
    area = g.tile_m * g.tile_n
    reduced = g.split_k is not None and (parts > 1 or g.split_k.reduction_cycles == 0)
    if reduced:
        added = 1 if g.streamed else parts
    ragged = not g.streamed and not reduced and p.ldc % chunk > 0
    read_a = columns if g.streamed == 1 else 1
    read_b = rows if g.streamed == 2 else 1
    return {
        "launch": 1,
        "vector steps": 0 if scalar else long,
        "scalar steps": long if scalar else 0,
        "tiles": stored,
        "latencies": long / g.tile_k / min(resident, max(1, each)) / max(1, g.stages - 1),
        "memory": size * (read_a * p.m * p.k + read_b * p.k * p.n + p.m * p.n) / 1e6,
        "L2": size * (passed + 2 * left * area) / 1e6,
        "ragged C": p.m * p.n / 1e6 if ragged else 0,
        "parts": added,
        "split-K": size * blocks * area / 1e6 if reduced else 0,
        "waves": waves,
    }


def stays(
    g: Geometry, p: Problem, tiles: int, steps: int, many: int
) -> tuple[int, int, int, int, int]:
    """Deal tiles, and steps of shared ones, to blocks one by one."""
    resident = max(1, g.resident)
    blocks = min(tiles * (MOST_SHARES if g.stream_k else 1), resident * many)
    rest, shared = tiles % blocks, 0
    if g.stream_k and rest and steps:
        shared = rest + (blocks if g.stream_k > 1 and tiles > blocks else 0)
    if shared * steps >= 2**32:
        shared = 0
    most = MOST_SHARES
    if p.precision.letter == "s":
        most = MOST_IN_TREE if g.tree else MOST_SINGLE
    pieces = min(most, max(1, steps // max(1, LEAST_SHARE // g.tile_k)))
    workers = min(blocks, shared * pieces)
    begins = [shared * steps * x // workers for x in range(workers + 1)] if shared else [0]
    longest = max((b - a for a, b in itertools.pairwise(begins)), default=0)
    left = sum(begin % steps > 0 for begin in begins[:-1])
    # Blocks are dealt to multiprocessors round robin, whole tiles to blocks, shares to workers.
    whole = tiles - shared
    mine = [0] * many
    for block in range(blocks):
        mine[block % many] += whole // blocks + (block < whole % blocks)
    shares = [len(range(x, workers, many)) for x in range(many)] if shared else [0]
    waves = whole // blocks + (whole % blocks > 0 or shared > 0)
    added = 0
    if shared and workers != shared:
        added = max(1, up(steps, max(1, longest)))
    if g.tree:
        added = math.ceil(1.5 * math.log2(added + 1))
    busiest = max(mine) * steps + max(shares) * longest
    return busiest, max(mine) + max(shares), added, waves, left


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=60)
@given(st.data())
def test_work_is_what_a_loop_counts(kind, data):
    geometry = data.draw(geometries([kind]))
    problem, many = data.draw(problems()), data.draw(MANY)
    found = Model((geometry,), np.zeros((1, len(TERMS)))).work(problem, many)[0]
    for term, value in work(geometry, problem, many).items():
        assert found[TERMS.index(term)] == pytest.approx(value, rel=1e-12), term


@given(st.lists(geometries(), min_size=1, max_size=8), problems(), MANY)
def test_kernels_are_counted_together_as_each_alone(several, problem, many):
    """To the last bit, so that every caller chooses alike."""
    rng = np.random.default_rng(len(several))
    costs = rng.random((len(several), len(TERMS)))
    together = Model(several, costs).expected(problem, many)
    alone = [
        Model((one,), costs[at : at + 1]).expected(problem, many)[0]
        for at, one in enumerate(several)
    ]
    assert together.tolist() == alone


@given(st.lists(geometries(), min_size=1, max_size=8), problems())
def test_launch_modes_are_those_of_the_geometries(several, problem):
    model = Model(several, np.zeros((len(several), len(TERMS))))
    found = [MODES[number] for number in model.modes(problem)]
    assert found == [one.mode(problem) for one in several]


@given(
    st.lists(geometries(["split", "streamed"]), min_size=1, max_size=5), problems(most=20000), MANY
)
def test_parts_are_those_of_the_launch(several, problem, many):
    model = Model([Geometry(64, 64, (64, 1)), *several], np.zeros((len(several) + 1, len(TERMS))))
    steps, tiles = (
        np.array([1, *(of(one) for one in several)])
        for of in (
            lambda g: up(problem.k, g.tile_k),
            lambda g: math.prod(g.tiles(problem.m, problem.n)),
        )
    )  # fmt: skip
    found = model._parts(steps, tiles, many)
    wanted = [
        g.split_k.parts(int(steps[at + 1]), int(tiles[at + 1]), max(1, g.resident) * many)
        for at, g in enumerate(several)
    ]
    assert found.tolist() == [1, *wanted]


@given(geometries(), problems(), MANY)
def test_the_expected_time_is_the_sum_of_what_everything_costs(geometry, problem, many):
    costs = np.arange(1.0, len(TERMS) + 1)
    expected = Model((geometry,), costs[None]).expected(problem, many)[0]
    does = Model((geometry,), costs[None]).work(problem, many)[0]
    assert expected == pytest.approx(math.fsum(costs * does), rel=1e-12)
    assert (does >= 0).all()


def test_products_of_nothing_have_a_time():
    """k = 0 scales C alone."""
    several = [Geometry(64, 64, (64, 1), tile_k=16, persistent=True, stream_k=1, resident=2),
               Geometry(64, 64, (64, 1), tile_k=16)]  # fmt: skip
    ns = Model(several, np.ones((2, len(TERMS)))).expected(Problem(100, 100, 0, "s"), 132)
    assert np.isfinite(ns).all()
