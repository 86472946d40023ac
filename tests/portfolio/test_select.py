"""What a portfolio is to hold: few kernels of everything measured, in the modes that are wanted."""

from __future__ import annotations

from dataclasses import replace
from itertools import islice

import numpy as np
import pytest

from tests.portfolio.examples import H100
from tests.portfolio.times import FAMILY, STARTS, write_times
from tilewright.portfolio.batches import _usual
from tilewright.portfolio.build import instances_of
from tilewright.portfolio.drawn import drawn_sides
from tilewright.portfolio.instances import lacking, slower
from tilewright.portfolio.kernel import BATCHED, ROUTED
from tilewright.portfolio.measured import Case, Measured, read_measured
from tilewright.portfolio.model import TERMS, Model
from tilewright.portfolio.select import (
    select,
    variants_with_conjugates,
)
from tilewright.problem import Problem, Trans
from tilewright.stencil import Variant, stencil
from tilewright.stencil.geometry import MODES, PLAIN


@pytest.fixture(scope="module")
def selected(tmp_path_factory):
    found = read_measured(write_times(tmp_path_factory.mktemp("times")))
    return select(found, H100)


def of(selected, trans: str):
    """Return a variant's selected kernels by config."""
    ops = tuple(Trans(one) for one in trans)
    return {
        one.kernel.config: one
        for one in selected
        if (one.kernel.variant.trans_a, one.kernel.variant.trans_b) == ops
    }


def test_the_kernels_that_keep_losses_small_are_picked(selected):
    assert set(of(selected, "TN")) == set(STARTS[:2])
    assert of(selected, "TT") == {}  # nothing was measured


def test_what_won_a_race_is_there_besides(selected):
    found = of(selected, "NN")
    assert set(found) == set(STARTS)
    assert found[STARTS[2]].kernel.won == {(2048, 2048, 2048): 1e6}
    assert not found[STARTS[0]].kernel.won


def test_every_kernel_has_costs_or_races_that_it_won_and_its_plain_mode(selected):
    for one in selected:
        assert len(one.kernel.costs) == len(TERMS) or (one.kernel.won and not one.kernel.costs)
        assert min(one.kernel.costs, default=0) >= 0
        assert PLAIN in one.kernel.modes
        assert not one.kernel.routed


def test_kernels_can_be_compiled_in_their_modes(selected):
    for one in selected:
        able = FAMILY.modes(one.kernel.config, one.kernel.variant, H100)
        assert set(one.kernel.modes) <= set(able)


@pytest.mark.parametrize("trans", ["NN", "TN"])
def test_instances_that_are_left_out_cost_little_on_shapes_as_users_have_them(selected, trans):
    kernels = [one.kernel for one in of(selected, trans).values() if one.kernel.costs]
    model = Model([one.geometry for one in kernels], np.array([one.costs for one in kernels]))
    compiled = np.array([[mode in one.modes for mode in MODES] for one in kernels])
    for m, n, k in islice(drawn_sides(31), 300):
        problem = Problem(m, n, k, "c", *trans)
        expected = model.expected(problem, H100.multiprocessors)
        found = slower(expected, lacking(compiled, model.modes(problem)), m * n)
        assert found.min() <= 1.2 * expected.min()


@pytest.mark.parametrize(
    ("trans", "like"), [("CN", "TN"), ("NC", "NT"), ("RN", "NN"), ("NR", "NN"), ("CR", "TN")]
)
def test_conjugates_take_the_kernels_of_their_transposes(selected, trans, like):
    plain, found = of(selected, like), of(selected, trans)
    assert found
    assert set(found) <= set(plain)
    for config, one in found.items():
        assert one.kernel.variant.trans_a.conjugated == (trans[0] in "CR")
        assert one.kernel.geometry == plain[config].kernel.geometry
    if "R" not in trans:
        assert set(found) == set(plain)


def test_a_loop_is_rescheduled_where_that_was_faster(selected):
    first = of(selected, "NN")[STARTS[0]]
    assert first.level == 5
    assert first.kernel.geometry.stages_k == 149
    assert of(selected, "RN")[STARTS[0]].level == 5
    assert of(selected, "TN")[STARTS[0]].level == 0
    instances = {(one.kernel.config, one.mode): one.level for one in instances_of([first])}
    assert {mode: level is not None for (_, mode), level in instances.items()} == {
        mode: mode == PLAIN for mode in first.kernel.modes
    }


def test_instances_have_names_of_their_own(selected):
    names = [one.name for one in instances_of(selected)]
    assert len(set(names)) == len(names) == sum(len(one.kernel.modes) for one in selected)


def test_single_precision_has_kernels_for_a_guard():
    family = stencil("simt_async")
    variant = Variant.of(Problem(1, 1, 1, "s"))
    starts = family.starts(variant, H100)[:2]
    problems = tuple(Problem(n, n, n, "s") for n in (512, 1024, 4096))
    ns = np.array([[n.flops / 3e4, n.flops / 4e4] for n in problems])
    measured = Measured("s", H100.name, 90, 132, {variant: Case(problems, starts, ns)})
    (one,) = select(measured, H100)
    assert one.kernel.config == starts[1]
    assert one.kernel.routed == one.kernel.modes
    names = [instance.name for instance in instances_of([one])]
    assert sum(name.endswith("-routed") for name in names) == len(one.kernel.routed)
    assert all(
        ("RUN_IF" in instance.source.defines) == (instance.form == ROUTED)
        for instance in instances_of([one])
    )


def test_all_operations_are_named():
    assert len(variants_with_conjugates("c")) == 16
    assert len(variants_with_conjugates("s")) == 4


def test_times_of_sums_that_a_kernel_is_not_for_say_nothing():
    """Where such a kernel is the fastest, and where none is for a sum."""
    of = Variant.of(Problem(1, 1, 1, "s"))
    outer = stencil("outer")
    long, short = (
        next(one for one in outer.space(of, H100) if (one["block_k"], one["block_n"]) == point)
        for point in ((8, 32), (2, 32))
    )
    problems = [Problem(500 + m, 700, k, "s") for k in (2, 6, 50) for m in range(8)]
    ns = np.array([[5e3, 9e3] if one.k <= 6 else [9e3, 5e3] for one in problems])
    case = Case(tuple(problems), (long, short), ns)
    found = select(_measured({}), H100, others=[_measured({of: case})])
    assert {one.kernel.config for one in found} == {long}


def test_times_of_kernels_that_take_aligned_columns_alone_count_at_any_shape(monkeypatch):
    """They are of columns as copies have them, whatever the sides are."""
    fitted = _fitted(monkeypatch)
    variant = Variant.of(Problem(1, 1, 1, "bf16", "T", "N"))
    wgmma = stencil("wgmma")
    config = next(one for one in wgmma.starts(variant, H100) if wgmma.geometry(one).tma)
    problems = tuple(Problem(77 + n, 99, 333, "bf16", "T", "N") for n in range(5))
    measured = replace(
        _measured({variant: Case(problems, (config,), np.full((5, 1), 7e3))}), precision="bf16"
    )
    select(measured, H100)
    assert (True, 5) in [(geometry.tma, len(times)) for geometry, times, _ in fitted]


def test_what_streams_16_bits_is_not_fitted_to_products_that_are_not_for_it(monkeypatch):
    fitted = _fitted(monkeypatch)
    of = Variant.of(Problem(1, 1, 1, "bf16"))
    streams_a = next(one for one in stencil("skinny").space(of, H100) if not one["short_m"])
    problems = tuple(Problem(m, 8, 512, "bf16") for m in (4, 7, 300, 4096))
    case = Case(problems, (streams_a,), np.full((4, 1), 7e3))
    select(replace(_measured({of: case}), precision="bf16"), H100)
    [(_, times, _)] = [one for one in fitted if one[0].streamed]
    assert [one.m for one in times] == [300, 4096]


def test_times_far_above_what_a_rival_is_expected_to_take_count_less(monkeypatch):
    """Of stencils for some problems only; a rival is the usual stencil's kernel."""
    fitted = _fitted(monkeypatch)
    of = Variant.of(Problem(1, 1, 1, "s"))
    streams = next(iter(stencil("skinny").space(of, H100)))
    near, far = Problem(900, 4, 512, "s"), Problem(900, 800, 512, "s")
    usual = Case((Problem(64, 64, 64, "s"),), (STARTS[0],), np.array([[5e3]]))
    other = Case((near, far), (streams,), np.array([[40.0], [9e9]]))
    select(_measured({of: usual}), H100, others=[_measured({of: other})])
    [(_, _, best)] = [one for one in fitted if one[0].streamed]
    assert best[near] == 40.0
    assert best[far] < 9e9


def test_what_is_for_some_problems_is_picked_by_itself_whichever_file_has_its_times(monkeypatch):
    """For those where it is the fastest; its costs are of all that it was timed on."""
    fitted = _fitted(monkeypatch)
    of = Variant.of(Problem(1, 1, 1, "s"))
    streams = next(iter(stencil("skinny").space(of, H100)))
    near, far = Problem(900, 4, 512, "s"), Problem(900, 8, 512, "s")
    raced = Problem(4096, 4, 512, "s")
    ns = np.array([[9e3, 5e3], [6e3, 7e3]])
    case = Case((near, far), (STARTS[0], streams), ns, {raced: (streams, 4e3)})
    chosen = [x.kernel for x in select(_measured({of: case}), H100) if x.kernel.variant == of]
    assert sorted(x.config.stencil for x in chosen) == ["simt_async", "skinny"]
    assert [x.won for x in chosen if x.config == streams] == [{(4096, 4, 512): 4e3}]
    [(_, times, best)] = [one for one in fitted if one[0].streamed]
    assert times == {near: 5e3, far: 7e3}
    assert best[far] <= 6e3


def test_a_race_is_won_by_what_is_not_the_fastest_of_what_was_timed():
    of = Variant.of(Problem(1, 1, 1, "s"))
    streams = next(iter(stencil("skinny").space(of, H100)))
    timed, raced = Problem(900, 4, 512, "s"), Problem(4096, 4, 512, "s")
    slow = Case((timed,), (STARTS[0], streams), np.array([[5e3, 6e3]]), {raced: (streams, 4e3)})
    alone = Case((timed,), (streams,), np.array([[6e3]]), {raced: (STARTS[0], 4e3)})
    for case, winner in ((slow, streams), (alone, STARTS[0])):
        chosen = select(_measured({of: case}), H100)
        won = {x.kernel.config: x.kernel.won for x in chosen if x.kernel.variant == of}
        assert won[winner] == {(4096, 4, 512): 4e3}


def test_what_takes_columns_that_are_not_aligned_is_picked_by_itself():
    wgmma, of = stencil("wgmma"), Variant.of(Problem(1, 1, 1, "bf16", "T", "N"))
    starts = wgmma.starts(of, H100)
    by_tma, by_threads = (
        next(one for one in starts if wgmma.geometry(one).tma == tma) for tma in (True, False)
    )
    problem = Problem(512, 512, 512, "bf16", "T", "N")
    slow = Case((problem,), (by_threads,), np.array([[9e3]]))
    fast = Case((problem,), (by_tma, by_threads), np.array([[5e3, 9e3]]))
    odd = Case((Problem(513, 77, 99, "bf16", "T", "N"),), (by_threads,), np.array([[8e3]]))

    def chosen(case, *others):
        one, *rest = (replace(_measured({of: x}), precision="bf16") for x in (case, *others))
        found = select(one, H100, others=rest)
        return sorted(str(x.kernel.config) for x in found if x.kernel.variant == of)

    both = sorted(map(str, (by_tma, by_threads)))
    assert chosen(fast) == [str(by_tma)]  # nothing else is faster anywhere
    assert chosen(fast, odd) == both
    assert chosen(Case((problem,), (by_tma,), np.array([[5e3]])), slow) == [str(by_tma)]


def _fitted(monkeypatch) -> list:
    """Return where each fit of costs leaves its geometry, times and least times."""
    found: list = []

    def costs_of(geometry, times, best, many):
        found.append((geometry, dict(times), dict(best)))
        return np.ones(len(TERMS))

    monkeypatch.setattr("tilewright.portfolio.select.fitted_costs", costs_of)
    return found


def _measured(cases) -> Measured:
    return Measured("s", H100.name, 90, 132, cases)


def test_what_is_worse_everywhere_is_not_there(tmp_path):
    found = read_measured(write_times(tmp_path))
    cases = {v: replace(case, won={}) for v, case in found.cases.items()}
    assert STARTS[2] not in {one.kernel.config for one in select(replace(found, cases=cases), H100)}


def test_each_config_for_batches_has_its_plain_instance_and_loops_as_they_were_timed(tmp_path):
    of = Variant.of(Problem(1, 1, 1, "c"))
    configs = stencil("simt_async").batch_configs(of)[-3:]
    shapes = [[64, 64, 64, 900], [128, 128, 128, 200], [500, 70, 90, 30]]
    ns = [[5e3, 9e3, 9e3], [9e3, 5e3, 9e3], [9e3, 9e3, 5e3]]
    case = {
        "shapes": shapes, "configs": [{**one, "schedule": 5} for one in configs], "ns": ns,
        "won": [],
    }  # fmt: skip
    batches = read_measured(write_times(tmp_path, cases={"NN": case}, rescheduled=[]))
    chosen = select(replace(_measured({}), precision="c"), H100, batches=[batches])
    plain = [one for one in chosen if PLAIN in one.kernel.batched]
    assert {one.kernel.config for one in plain if one.kernel.variant == of} == set(configs)
    for one in instances_of(plain):
        assert (one.level is not None) == (one.mode == PLAIN and one.form == BATCHED)


def test_files_of_times_of_batches_are_picked_from_together(tmp_path):
    """Two of aligned columns as one; those for others by themselves."""
    of = Variant.of(Problem(1, 1, 1, "bf16"))
    every = stencil("wgmma").batch_configs(of)
    kinds = [
        [one for one in every if stencil("wgmma").geometry(one).reads_unaligned == unaligned][:2]
        for unaligned in (False, True)
    ]
    batches = []
    for number, configs in enumerate((kinds[0], kinds[0], kinds[1])):
        case = {
            "shapes": [[64 + 8 * number, 64, 64, 900]], "won": [],
            "configs": [{**one, "stencil": "wgmma"} for one in configs],
            "ns": [[5e3, 9e3]],
        }  # fmt: skip
        written = write_times(tmp_path, cases={"NN": case}, rescheduled=[], precision="bf16")
        batches.append(read_measured(written))
    chosen = select(replace(_measured({}), precision="bf16"), H100, batches=batches)
    mine = [one.kernel.config for one in chosen if one.kernel.variant == of]
    assert sorted(map(str, mine)) == sorted(map(str, [kinds[0][0], kinds[1][0]]))  # each once


@pytest.mark.parametrize("letter", ["s", "d", "bf16"])
def test_the_kernel_for_a_group_is_the_one_of_its_usual_product(letter):
    problems = [Problem(m, 512, 256, letter, "T", "N") for m in (5, 90, 3000)]
    usual = _usual(problems)
    assert (usual.n, usual.k) == (512, 256)
    assert 2000 < usual.m <= 3008
    assert usual.flops == pytest.approx(sum(one.flops for one in problems), rel=0.35)
