"""Which kernel serves a problem: raced sizes, then the shortest expected time, then the nearest."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.portfolio.examples import EVERY_MODE, H100, Hopper, costs, kernel, problems, write
from tests.tuning.measurement_examples import example
from tilewright import reload
from tilewright.backend import device
from tilewright.backend.cuda.architecture import architecture_spec
from tilewright.portfolio import choose, held, own_folder, shipped
from tilewright.portfolio.batches import choose_batched, choose_grouped
from tilewright.portfolio.choose import choices, default_choice
from tilewright.portfolio.instances import NOT_SCALAR
from tilewright.portfolio.kernel import BATCHED, GROUPED
from tilewright.problem import Problem, Trans
from tilewright.space import Config
from tilewright.stencil import Variant, stencil
from tilewright.stencil.geometry import PLAIN, Mode
from tilewright.tuning.measurement import Stage
from tilewright.tuning.store import Store

KEY = "here"
SQUARE = Problem(4096, 4096, 4096, "s")
NN = Variant.of(SQUARE)
FAMILY = stencil("simt_async")
FIRST, SECOND = FAMILY.starts(NN, H100)[:2]


def square(n: int, trans: str = "NN", letter: str = "s") -> Problem:
    return Problem(n, n, n, letter, *trans)


def config_of(problem: Problem, key: str = "", spec=H100, **more) -> Config:
    return choose(Hopper(spec, key), problem, **more).config


# -- what ships --------------------------------------------------------------------------


def test_the_default_serves_where_there_is_nothing(ship):
    chosen = choose(Hopper(), SQUARE)
    assert chosen.config == FAMILY.default(NN, H100)
    assert (chosen.kernel, chosen.tuned_on, chosen.ns, chosen.digest()) == (None, "", None, "")
    assert chosen.launch(SQUARE) == FAMILY.launch(chosen.config, 4096, 4096, 4096)


def test_a_default_takes_the_operands_as_they_lie(ship):
    """Of 16-bit operands tensor cores' where columns are aligned, else one that needs no such."""
    assert config_of(square(256, letter="bf16")).stencil == "wgmma"
    assert config_of(square(255, letter="bf16")).stencil == "skinny"
    for wide in (Problem(9, 4095, 65, "bf16"), Problem(9, 4095, 65, "bf16", "N", "T")):
        assert config_of(wide).stencil == "skinny"  # which is meant for tall ones
    assert config_of(square(256, letter="bf16"), aligned=False).stencil == "skinny"


def test_a_precision_without_a_stencil_is_named():
    cpu = device("opencl")
    with pytest.raises(ValueError, match="has no stencil for BF16 GEMM"):
        choose(cpu, square(64, letter="bf16"))


def test_the_default_is_fitted_to_its_problem(ship):
    odd = square(4097)
    chosen = choose(Hopper(), odd)
    assert chosen.config == FAMILY.default(NN, H100)
    assert chosen.mode == FAMILY.geometry(chosen.config).mode(odd) != PLAIN


def test_the_shortest_expected_time_serves(ship):
    slow = kernel(SQUARE, FIRST, costs=costs(10.0))
    fast = kernel(SQUARE, SECOND, costs=costs(9.0, launch=1e4), geometry=slow.geometry)
    ship(slow, fast)
    assert config_of(SQUARE) == SECOND
    assert config_of(square(128)) == FIRST  # its launch takes less
    chosen = choose(Hopper(), SQUARE)
    assert chosen.ns is not None
    assert chosen.ns > 1e4
    assert (chosen.kernel, chosen.tuned_on) == (fast, "")
    assert chosen.launch(SQUARE) == fast.geometry.launch(4096, 4096, 4096)


def test_choices_are_all_that_could_serve_each_in_its_mode(ship):
    slow = kernel(SQUARE, FIRST, [PLAIN, Mode(scalar=True)], costs=costs(10.0))
    fast = kernel(SQUARE, SECOND, [PLAIN], costs=costs(9.0), geometry=slow.geometry)
    none = kernel(SQUARE, FAMILY.starts(NN, H100)[2], [], costs=costs(1.0))
    ship(slow, fast, none)
    found = list(choices(Hopper(), square(4097)))
    assert [(one.kernel, one.mode) for one in found] == [(slow, Mode(scalar=True)), (fast, PLAIN)]
    aligned = list(choices(Hopper(), SQUARE))
    assert [one.mode for one in aligned] == [PLAIN, PLAIN]
    assert min(aligned, key=lambda one: one.ns).kernel == choose(Hopper(), SQUARE).kernel
    assert aligned[0].ns > aligned[1].ns > 0


def test_of_equal_times_the_first_serves(ship):
    ship(kernel(SQUARE, SECOND, costs=costs(1.0), geometry=FAMILY.geometry(FIRST)),
         kernel(SQUARE, FIRST, costs=costs(1.0)))  # fmt: skip
    assert config_of(SQUARE) == SECOND


def test_what_won_a_race_of_this_size_comes_first(ship):
    raced = kernel(SQUARE, FIRST, costs=costs(50.0), won={(4096, 4096, 4096): 9e5})
    ship(raced, kernel(SQUARE, SECOND, costs=costs(1.0)))
    chosen = choose(Hopper(), SQUARE)
    assert (chosen.config, chosen.ns, chosen.tuned_on) == (FIRST, 9e5, "SGEMM NN 4096")
    assert config_of(square(4095)) == SECOND
    assert config_of(replace(SQUARE, lda=5000)) == SECOND  # columns are not contiguous
    assert config_of(SQUARE, spec=replace(H100, name="NVIDIA H200")) == FIRST  # as many
    assert config_of(SQUARE, spec=replace(H100, multiprocessors=114)) == SECOND


def test_of_two_races_of_one_size_the_faster_counts(ship):
    size = (4096, 4096, 4096)
    ship(kernel(SQUARE, FIRST, costs=costs(1.0), won={size: 9e5}),
         kernel(SQUARE, SECOND, costs=costs(1.0), won={size: 8e5}))  # fmt: skip
    assert config_of(SQUARE) == SECOND


def test_other_transposes_and_precisions_have_their_own(ship):
    ship(kernel(square(1, "NN"), FIRST, costs=costs(1.0)),
         kernel(square(1, "TN"), SECOND, costs=costs(1.0)))  # fmt: skip
    assert config_of(square(512)) == FIRST
    assert config_of(square(512, "TN")) == SECOND
    assert config_of(square(512, "TT")) == FAMILY.default(Variant.of(square(1, "TT")), H100)
    assert choose(Hopper(), square(512, "NN", "d")).kernel is None


@pytest.mark.parametrize(
    ("changes", "serves"),
    [
        ({"name": "NVIDIA H200"}, True),
        ({"multiprocessors": 114}, True),
        ({"multiprocessors": 132, "name": "NVIDIA GH200"}, True),
        ({"name": "a slice", "multiprocessors": 16}, False),
        ({"compute_capability": 80}, False),
        ({"compute_capability": None}, False),
    ],
    ids=str,
)
def test_like_devices_are_served_and_others_are_not(ship, changes, serves):
    ship(kernel(SQUARE, SECOND, costs=costs(1.0)))
    spec = replace(H100, **changes)
    assert (shipped(spec, "s") is not None) == serves
    assert (choose(Hopper(spec), SQUARE).kernel is not None) == serves


def test_kernels_of_another_version_of_their_stencil_do_not_serve(ship, monkeypatch):
    ship(kernel(SQUARE, SECOND, costs=costs(1.0)))
    monkeypatch.setattr(type(FAMILY), "version", FAMILY.version + 1)
    ship(replace(kernel(SQUARE, SECOND, costs=costs(1.0)), version=FAMILY.version - 1))
    assert choose(Hopper(), SQUARE).kernel is None


def test_kernels_whose_launches_were_cut_otherwise_do_not_serve(ship):
    """What a block does with its part of k is compiled into it."""
    now = kernel(SQUARE, FIRST.replace(parallel_split_k=1), costs=costs(1.0))
    ship(now)
    assert choose(Hopper(), SQUARE).kernel == now
    before = replace(now.geometry.split_k, reduction_cycles=0.0)
    ship(replace(now, geometry=replace(now.geometry, split_k=before)))
    assert choose(Hopper(), SQUARE).kernel is None


def test_the_copy_engine_is_given_what_it_takes(ship):
    of = square(4096, "NT")
    boxed = next(one for one in FAMILY.starts(Variant.of(of), H100) if one.get("tma", 0))
    ship(kernel(of, boxed, costs=costs(1.0)), kernel(of, FIRST, costs=costs(9.0)))
    assert config_of(of) == boxed
    assert config_of(of, aligned=False) == FIRST
    assert config_of(replace(of, lda=4097)) == FIRST
    ship(kernel(of, boxed, costs=costs(1.0)))
    assert choose(Hopper(), of, aligned=False).kernel is None


# -- launch modes ------------------------------------------------------------------------

ODD = square(4097)


def mode_of(problem: Problem, key: str = "", **more) -> str:
    return str(choose(Hopper(H100, key), problem, **more).mode)


@pytest.mark.parametrize("slower", [0.9 * NOT_SCALAR, 1.1 * NOT_SCALAR])
def test_an_instance_of_another_mode_counts_as_slower(ship, slower):
    """So that what has the mode's own serves, unless it is slower still."""
    nothing = costs(0.0, launch=1000.0)
    fast = kernel(SQUARE, FIRST, [PLAIN], costs=nothing)
    wanted = FAMILY.geometry(SECOND).mode(ODD)
    slow = kernel(SQUARE, SECOND, [PLAIN, wanted], costs=costs(0.0, launch=1000.0 * slower))
    ship(fast, slow)
    assert config_of(SQUARE) == FIRST
    found = choose(Hopper(), ODD)
    if slower < NOT_SCALAR:
        assert found.digest() == slow.modes[wanted]
    else:
        assert (found.digest(), found.ns) == (fast.modes[PLAIN], 1000.0 * NOT_SCALAR)


@pytest.mark.parametrize(
    ("there", "found"),
    [
        (["plain"], "plain"),
        (["plain", "scalar+clamped+staged"], "scalar+clamped+staged"),
        (["plain", "scalar", "staged"], "scalar"),
        (["plain", "scalar+clamped", "scalar+staged"], "scalar+clamped"),
        (["plain", "scalar+staged", "scalar"], "scalar+staged"),
        (["plain", "clamped"], "plain"),
    ],
)
def test_without_the_wanted_mode_the_next_best_instance_serves(ship, there, found):
    """Any is right for any problem; copies of single elements weigh most."""
    problem = Problem(63, 101, 101, "s")
    assert str(FAMILY.geometry(FIRST).mode(problem)) == "scalar+clamped+staged"
    ship(kernel(SQUARE, FIRST, [Mode.parse(one) for one in there], costs=costs(1.0)))
    assert mode_of(problem) == found
    assert choose(Hopper(), problem).config == FIRST


def test_kernels_that_a_guard_holds_back_are_those_that_ship_so(ship):
    ship(kernel(SQUARE, FIRST, costs=costs(1.0)),
         kernel(SQUARE, SECOND, costs=costs(9.0), routed=[PLAIN]))  # fmt: skip
    assert config_of(SQUARE) == FIRST
    chosen = choose(Hopper(), SQUARE, routed=True)
    assert chosen.config == SECOND
    assert chosen.digest(routed=True) == chosen.kernel.routed[PLAIN]


@given(problem=problems(letters="sd"), aligned=st.booleans())
def test_every_choice_reads_its_operands_with_code_that_is_there(ship, problem, aligned):
    of = Variant.of(problem)
    if not held(Hopper(), of):
        for letter in "sd":
            made = []
            for a in Trans.N, Trans.T:
                for b in Trans.N, Trans.T:
                    every = Variant(Problem(1, 1, 1, letter).precision, a, b)
                    for at, one in enumerate(FAMILY.starts(every, H100)):
                        some = {PLAIN, *EVERY_MODE[at % 5 :: 3]}
                        made.append(kernel(every, one, sorted(some, key=str), costs=costs(5 + at)))
            ship(*made, name=letter)
    chosen = choose(Hopper(), problem, aligned)
    assert chosen == choose(Hopper(), problem, aligned)
    assert chosen.kernel is not None
    assert chosen.kernel.geometry.takes(problem, aligned)
    assert chosen.mode in chosen.kernel.modes


# -- the user's own ----------------------------------------------------------------------


def own(problem: Problem, config: Config, ns: float, modes=(PLAIN,), **more):
    return kernel(problem, config, modes, won={(problem.m, problem.n, problem.k): ns}, **more)


def test_the_nearest_size_serves_where_nothing_has_costs(keep):
    spec = replace(H100, compute_capability=None)
    keep(KEY, own(square(128), FIRST, 1e4), own(square(2048), SECOND, 1e6))
    assert config_of(square(2000), KEY, spec) == SECOND
    assert config_of(Problem(100, 150, 120, "s"), KEY, spec) == FIRST
    assert choose(Hopper(spec, KEY), square(2000)).tuned_on == "SGEMM NN 2048"
    assert choose(Hopper(spec, "another"), square(2000)).kernel is None
    assert choose(Hopper(spec, ""), square(2000)).kernel is None


def test_same_transposes_come_before_a_nearer_size(keep):
    spec = replace(H100, compute_capability=None)
    fit = FAMILY.default(Variant.of(square(1, "TT")), H100)
    keep(KEY, own(square(500), fit, 1e4), own(square(64, "TN"), SECOND, 1e3))
    assert config_of(square(500, "TN"), KEY, spec) == SECOND
    chosen = choose(Hopper(spec, KEY), square(500, "TT"))
    assert chosen.config == fit
    assert chosen.digest() == ""  # the machine code is for other transposes


def test_other_transposes_are_served_only_by_points_of_their_space(keep):
    """Threads that read A's tile evenly along m need not do so along k."""
    portable, asked = stencil("portable"), square(64, "TN")
    space = portable.space(Variant.of(asked), H100)
    offered = portable.space(NN, H100).sample(200, 0)
    unfit = next(one for one in offered if one not in space)
    fit = next(one for one in offered if one in space)
    keep(KEY, own(square(64), unfit, 1.0, ()))
    assert choose(Hopper(H100, KEY), asked).kernel is None
    keep(KEY, own(square(64), unfit, 1.0, ()), own(square(4096), fit, 1.0, ()))
    assert config_of(asked, KEY) == fit
    assert config_of(square(64), KEY) == unfit


def test_a_stencil_serves_the_transposes_that_it_computes(keep, monkeypatch):
    """Its space may know nothing of transposes."""
    spec, config = replace(H100, name="like no other test's"), FAMILY.default(NN, H100)
    keep(KEY, own(square(64), config, 1.0, ()))
    assert choose(Hopper(spec, KEY), square(64, "TN")).kernel is not None
    monkeypatch.setattr(type(FAMILY), "computes", lambda self, variant: variant == NN)
    keep(KEY, own(square(64), config, 1.0, ()))
    assert choose(Hopper(spec, KEY), square(64, "TN")).kernel is None
    assert config_of(square(64), KEY, spec) == config


def test_a_config_outside_the_space_never_reaches_the_compiler(keep):
    """A folder may hold what somebody else gave away."""
    bad = FIRST.replace(block_m=2**30)
    keep(KEY, own(square(64), bad, 1.0, (), geometry=FAMILY.geometry(FIRST)))
    assert choose(Hopper(H100, KEY), square(64)).kernel is None


def test_races_are_compared_on_one_model_and_otherwise_ones_own_come_first(ship, keep):
    ship(kernel(SQUARE, FIRST, costs=costs(1.0), won={(4096,) * 3: 8e5}))
    keep(KEY, own(SQUARE, SECOND, 9e5))
    assert config_of(SQUARE, KEY) == FIRST
    keep(KEY, own(SQUARE, SECOND, 7e5))
    assert config_of(SQUARE, KEY) == SECOND
    other = replace(H100, name="NVIDIA H200")
    keep(KEY, own(SQUARE, SECOND, 9e9), device="NVIDIA H200")
    assert config_of(SQUARE, KEY, other) == SECOND


def test_what_is_tuned_is_expected_to_take_its_time_at_other_sizes_too(ship, keep):
    """Costs of the most similar kernel, scaled to what was measured."""
    ship(kernel(SQUARE, FIRST, costs=costs(500.0)))
    shipped_ns = choose(Hopper(), SQUARE).ns
    keep(KEY, own(SQUARE, SECOND, 0.5 * shipped_ns))
    assert config_of(square(4000), KEY) == SECOND
    keep(KEY, own(SQUARE, SECOND, 2.0 * shipped_ns))
    assert config_of(square(4000), KEY) == FIRST


def test_of_equal_times_ones_own_serves(ship, keep):
    ship(kernel(SQUARE, FIRST, costs=costs(1.0)))
    keep(KEY, kernel(SQUARE, SECOND, costs=costs(1.0), geometry=FAMILY.geometry(FIRST)))
    assert config_of(SQUARE, KEY) == SECOND


def test_ones_own_serves_in_any_mode_which_is_compiled(keep):
    keep(KEY, own(SQUARE, FIRST, 1.0))
    chosen = choose(Hopper(H100, KEY), ODD)
    assert chosen.mode == FAMILY.geometry(FIRST).mode(ODD) != PLAIN
    assert (chosen.digest(), chosen.config) == ("", FIRST)


def test_what_was_built_for_a_device_serves_by_its_instances(keep):
    """Nothing is compiled while it serves; the nearest instance counts as slower."""
    alike = {"geometry": FAMILY.geometry(FIRST)}
    both = (PLAIN, alike["geometry"].mode(ODD))
    keep(KEY, kernel(SQUARE, FIRST, costs=costs(1.0), **alike),
         kernel(SQUARE, SECOND, both, costs=costs(1.1), **alike))  # fmt: skip
    for problem, config in ((SQUARE, FIRST), (ODD, SECOND)):
        chosen = choose(Hopper(H100, KEY), problem)
        assert (chosen.config, bool(chosen.digest())) == (config, True)


def test_many_products_are_compiled_for_where_a_portfolio_was_built_that_has_none(ship, keep):
    ship()
    keep(KEY, kernel(SQUARE, FIRST, costs=costs(1.0)))
    assert choose(Hopper(H100, KEY), square(64)).digest()
    chosen = choose_batched(Hopper(H100, KEY), replace(square(64), batch=9, step_c=4096))
    grouped = choose_grouped(Hopper(H100, KEY), [square(64)] * 3)
    for one, form in ((chosen, BATCHED), (grouped, GROUPED)):
        assert (one.form, one.digest()) == (form, "")


@pytest.mark.parametrize(
    ("aligned", "boxed_ns", "has_maps"),
    [(True, 1.0, True), (True, 9.0, False), (False, 1.0, False)],
)
def test_products_of_a_group_are_read_by_threads_where_that_takes_less(
    ship, aligned, boxed_ns, has_maps
):
    of, family = square(64, letter="bf16"), stencil("wgmma")
    starts = [
        one for one in family.starts(Variant.of(of), H100)
        if family.grouped_config(one, Variant.of(of)) is not None
    ]  # fmt: skip
    boxed, by_threads = (
        next(one for one in starts if family.geometry(one).tma == tma) for tma in (True, False)
    )
    kernels = [
        replace(kernel(of, config, costs=costs(ns)), grouped={PLAIN: "0" * 64})
        for config, ns in ((boxed, boxed_ns), (by_threads, 3.0))
    ]
    ship(*kernels, name="short")
    chosen = choose_grouped(Hopper(), [of] * 100, aligned)
    assert (chosen.geometry.tma, chosen.form) == (has_maps, GROUPED)


def test_a_block_that_cannot_copy_single_elements_may_still_stage_results(keep):
    """A warp that copies eight doubles side by side has fewer than eight rows at once."""
    units, problem = stencil("mma_f64"), Problem(213, 60, 35, "d", "T", "T")
    of = Variant.of(problem)
    config = units.default(of, H100).replace(
        block_m=32, block_n=32, warp_m=32, warp_n=32, block_k=8, mma_k=4, stages=2, min_blocks=4
    )
    assert config in units.space(of, H100)
    assert units.geometry(config).mode(problem) not in units.modes(config, of, H100)
    keep(KEY, own(problem, config, 1.0, ()), name="d")
    chosen = choose(Hopper(H100, KEY), problem)
    assert (chosen.config, chosen.mode) == (config, Mode(staged=True))


def test_what_is_added_serves_after_a_reload(keep):
    keep(KEY, own(square(64), FIRST, 1.0))
    here = Hopper(replace(H100, compute_capability=None), KEY)
    assert choose(here, square(64)).config == FIRST
    write(own_folder(KEY), [own(square(64), SECOND, 1.0)])
    assert choose(here, square(64)).config == FIRST  # equal calls give equal bits
    reload()
    assert choose(here, square(64)).config == SECOND


def test_nothing_comes_from_the_store_of_measurements():
    here = device()
    with Store() as store:
        packed = stencil("packed")
        config = packed.space(NN, here.spec).sample(1, 1)[0]
        store.add(
            example(
                config=config,
                problem=square(64),
                device=here.fingerprint,
                stencil_version=packed.version,
                stage=Stage.WINNER,
                times_ns=(1,),
            )
        )
    chosen = choose(here, square(64))
    assert (chosen.kernel, chosen.config) == (None, default_choice(NN, here.spec).config)
    assert config != chosen.config


def test_an_architecture_without_a_portfolio_has_its_default(ship):
    spec = replace(architecture_spec("sm_80"), multiprocessors=108)
    assert choose(Hopper(spec), SQUARE).kernel is None


def test_kernels_that_nothing_is_known_of_are_chosen_last(ship):
    ship(kernel(SQUARE, FIRST), kernel(SQUARE, SECOND, costs=costs(1e9)))
    assert config_of(SQUARE) == SECOND
