"""What the package knows of devices that nobody tuned yet, and what it chooses by that."""

from __future__ import annotations

import json
from dataclasses import replace
from importlib.resources import files
from types import SimpleNamespace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tilewright.library.choose import (
    Choice,
    choose,
    default_choice,
    fitted,
    of_table,
    served,
)
from tilewright.library.cycles import COSTS, cycles, work
from tilewright.library.shipped import _read, shipped, tables
from tilewright.library.waves import Timed, effort, expected_ns

from tests.tuning.measurement_examples import example
from tilewright.backend.cuda.architecture import architecture_spec
from tilewright.precision import precision
from tilewright.problem import Problem, Trans
from tilewright.sass.scheduler_version import SCHEDULER_VERSION
from tilewright.space import Config
from tilewright.stencil import Variant, stencil, unscheduled
from tilewright.stencil.simt_async import SimtAsync
from tilewright.tuning.measurement import Stage
from tilewright.tuning.store import Store

FAMILY = SimtAsync()
H100 = replace(
    architecture_spec("sm_90a"), name="NVIDIA H100 80GB HBM3", multiprocessors=132
)  # as its driver reports it
MARK = "a1b2c3d4e5f6"


def square(n: int, trans: str = "NN", letter: str = "s") -> Problem:
    return Problem(n, n, n, letter, *trans)


def variant(trans: str, letter: str = "s") -> Variant:
    return Variant(precision(letter), Trans(trans[0]), Trans(trans[1]))


def device(spec=H100, fingerprint: str = ""):
    return SimpleNamespace(fingerprint=fingerprint, spec=spec)


def document():
    """The shipped table as plain data."""
    return json.loads(files("tilewright.library").joinpath("shipped_tables/h100.json").read_text())


@pytest.mark.parametrize("trans", ["NN", "NT", "TN", "TT"])
@pytest.mark.parametrize("letter", "sdz")
def test_what_won_a_race_serves_its_size(letter, trans):
    """What was rescheduled serves devices that have proved it; this one has not."""
    of = variant(trans, letter)
    won = {size: row for row in shipped(H100, of).rows for size in row.won}
    assert won
    for size, row in won.items():
        chosen = choose(device(), Problem(*size, letter, *trans))
        assert (chosen.config, chosen.tuned_on) == (row.config, str(Problem(*size, letter, *trans)))


def test_every_row_is_a_point_of_the_space_it_is_for():
    for table in tables():
        for row in table.rows:
            of = Variant.of(next(iter(row.ns)))
            twin = unscheduled(row.config)  # its own schedule is for devices that have proved it
            assert twin in stencil(twin.stencil).space(of, H100), row


@pytest.mark.parametrize("size", [2048, 4096, 8192])
@pytest.mark.parametrize("trans", ["NN", "NT", "NC", "TN", "TT", "TC", "CN", "CT", "CC"])
def test_complex_products_are_served_rescheduled_where_that_is_proved(trans, size):
    """The level that ran on an H100, in the compiler's build that ran there."""
    problem = Problem(size, size, size, "c", *trans)
    chosen = choose(device(replace(H100, schedules=("simt_async/c/walked",))), problem)
    assert chosen.config["schedule"] == 5
    assert "schedule" not in choose(device(), problem).config


@pytest.mark.parametrize("trans", ["NN", "NT", "TN", "TT"])
def test_sizes_never_seen_get_a_sound_config_and_always_the_same(trans):
    for sizes in ((1, 1, 1), (300, 300, 300), (3000, 3000, 3000), (64, 8192, 17), (70000, 2, 9)):
        problem = Problem(*sizes, "s", *trans)
        chosen = choose(device(), problem)
        assert chosen == choose(device(), problem)
        assert chosen.config in FAMILY.space(Variant.of(problem), H100)


def test_a_device_of_the_same_architecture_is_served_too_but_no_other():
    assert shipped(replace(H100, name="NVIDIA H200"), variant("NT")) is not None
    assert shipped(replace(H100, name="a slice", multiprocessors=16), variant("NT")) is None
    assert shipped(replace(architecture_spec("sm_80"), multiprocessors=108), variant("NT")) is None
    opencl = replace(H100, compute_capability=None)
    assert shipped(opencl, variant("NT")) is None
    assert choose(device(opencl), square(512)).tuned_on == ""


def test_precisions_nobody_timed_have_their_default():
    chosen = choose(device(), square(512, "NT", "w"))
    assert chosen == default_choice(variant("NT", "w"), H100)


def test_times_of_an_older_stencil_do_not_count(monkeypatch):
    monkeypatch.setattr(SimtAsync, "version", SimtAsync.version + 1)
    shipped.cache_clear()
    try:
        assert shipped(H100, variant("NT")) is None
    finally:
        shipped.cache_clear()


def own_winner(problem: Problem, ns: int, config: Config) -> None:
    made = example(
        config=config,
        problem=problem,
        device=MARK,
        stencil_version=FAMILY.version,
        stage=Stage.WINNER,
        times_ns=(ns,),
    )
    with Store() as store:
        store.add(made)


def test_a_winner_of_ones_own_serves_where_it_is_faster():
    config = FAMILY.default(variant("NT"), H100).replace(raster_rows=16)
    problem, here = square(4096, "NT"), device(fingerprint=MARK)
    shipped_choice = choose(here, problem).config
    own_winner(problem, 10**9, config)
    assert choose(here, problem).config == shipped_choice
    own_winner(problem, 10**6, config)
    assert choose(here, problem).config == config
    assert choose(here, problem).tuned_on == "SGEMM NT 4096"


def test_copies_are_fitted_to_leading_dimensions():
    """Columns of 16 bytes' multiples keep what was chosen; others get single elements."""
    for size, trans, letter, narrow in (
        (4096, "NN", "s", 0), (4097, "NN", "s", 1), (4097, "TN", "s", 0), (4097, "TN", "d", 1),
        (4097, "NN", "z", 0), (4098, "TT", "d", 0), (4098, "NT", "s", 1),
    ):  # fmt: skip
        problem = square(size, trans, letter)
        chosen = choose(device(), problem)
        found = served(device(), problem)
        assert found.config.get("narrow", 0) == narrow
        assert found.config in found.stencil.space(Variant.of(problem), H100)
        assert (found == chosen) is not bool(narrow)


@pytest.mark.parametrize("size", [513, 1025, 2049])
@pytest.mark.parametrize("trans", ["NN", "NT", "TN", "TT"])
def test_a_shape_that_a_portfolio_has_is_served_as_it_was_timed(trans, size):
    """Its times are of copies of single elements, which suit 1025 columns; none was raced."""
    problem = square(size, trans, "d")
    found = served(device(), problem)
    assert found.tuned_on == str(problem)
    assert found.config.get("narrow", 0) == 1
    assert found.config == found.stencil.fitted(found.config, problem)


@pytest.mark.parametrize("letter", "sdcz")
@pytest.mark.parametrize("trans", ["NN", "NT", "TN", "TT"])
def test_any_shape_of_a_portfolio_is_served_fitted(letter, trans):
    """Random ones are, as nothing was raced there."""
    table = shipped(H100, Variant(precision(letter), *map(Trans, trans)))
    timed = dict.fromkeys(shape for row in table.rows for shape in row.ns if shape.m != shape.n)
    assert timed
    for problem in list(timed)[:12]:
        found = served(device(), problem)
        assert found == fitted(found, problem, H100)


def test_a_block_that_cannot_copy_single_elements_may_still_stage_results():
    """A warp that copies eight doubles side by side has fewer than eight rows at once."""
    units, problem = stencil("mma_f64"), Problem(213, 60, 35, "d", "T", "T")
    config = units.default(Variant.of(problem), H100).replace(
        block_m=32, block_n=32, warp_m=32, warp_n=32, block_k=8, mma_k=4, stages=2, resident=4
    )
    space = units.space(Variant.of(problem), H100)
    assert config in space
    assert units.fitted(config, problem) not in space
    assert fitted(Choice(units, config), problem, H100).config == config.replace(staged=1)


@settings(deadline=None)  # a first choice reads a table
@given(
    sides=st.tuples(st.integers(1, 300), st.integers(1, 4000)),
    k=st.integers(1, 5000),
    trans=st.sampled_from(["NN", "NT", "TN", "TT"]),
    letter=st.sampled_from("sdcz"),
    flat=st.booleans(),
)
def test_blocks_longer_than_a_side_are_guarded(sides, k, trans, letter, flat):
    """Whatever was chosen: their copies are not checked."""
    m, n = sides if flat else reversed(sides)
    problem = Problem(m, n, k, letter, *trans)
    found = served(device(), problem)
    config = found.config
    short = m < config.integer("block_m") or n < config.integer("block_n")
    assert config.get("guarded", 0) == short
    assert config in found.stencil.space(Variant.of(problem), H100)


def test_checked_copies_are_what_guards_save():
    """A side of 111 was served by small blocks, whose copies were not checked."""
    config = FAMILY.default(variant("TN"), H100).replace(block_m=128, block_n=128)
    costs = COSTS["simt_async", "s"]
    thin, whole = (Problem(m, 3578, 4361, "s", "T", "N") for m in (111, 128))
    guarded, checked = (work(config, thin, 1, 132, guarded=guards) for guards in (True, False))
    assert guarded.checked == 0 < checked.checked
    assert guarded.copies == work(config, whole, 1, 132).copies > checked.copies
    assert cycles(guarded, costs) < 0.8 * cycles(checked, costs)
    wide = Problem(100, 6000, 8000, "s", "T", "N")
    assert choose(device(), wide).config.integer("block_m") >= 128


def test_what_was_tuned_for_a_problem_stays():
    problem, here = square(4097, "NN"), device(fingerprint=MARK)
    own_winner(problem, 1, FAMILY.default(variant("NN"), H100))
    assert served(here, problem) == choose(here, problem)
    padded = replace(problem, lda=4099)
    assert served(here, padded) != choose(here, padded)


def test_on_another_model_ones_own_winners_come_first():
    """Times of two models are not compared."""
    config = FAMILY.default(variant("NT"), H100).replace(raster_rows=16)
    other = device(replace(H100, name="NVIDIA H200"), MARK)
    own_winner(square(4096, "NT"), 10**9, config)
    assert choose(other, square(4096, "NT")).config == config


def test_a_multiprocessor_with_one_block_more_sets_the_time():
    config = FAMILY.default(variant("NT"), H100)
    side, depth = config.integer("block_m"), 4096
    assert side == config.integer("block_n")

    def of(blocks: int) -> Problem:
        return Problem(side, side * blocks, depth, "s", "N", "T")

    def busiest(blocks: int) -> float:
        return work(config, of(blocks), config.integer("resident"), 132).steps

    assert busiest(1) == busiest(132) == depth
    assert busiest(133) == busiest(2 * 132) == 2 * depth
    assert effort(config, of(133), H100, 132) > 1.3 * effort(config, of(132), H100, 132)
    # One C more in memory's time, and a launch that weighs less.
    assert effort(config, of(20 * 132), H100, 132) == pytest.approx(
        10 * effort(config, of(2 * 132), H100, 132), rel=0.1
    )


def test_a_time_that_was_measured_is_the_one_expected():
    config = FAMILY.default(variant("NT"), H100)
    timed = Timed(config, {square(1024, "NT"): 100e3, square(2048, "NT"): 500e3})
    assert expected_ns(timed, square(2048, "NT"), H100, 132) == 500e3
    assert 100e3 < expected_ns(timed, square(1500, "NT"), H100, 132) < 500e3
    slower = replace(H100, multiprocessors=66)
    assert expected_ns(timed, square(2048, "NT"), slower, 132) > 900e3


def let_table_say(monkeypatch, says):
    """Let this be the only table that comes with the package."""
    table = _read(says)
    monkeypatch.setattr("tilewright.library.shipped.tables", lambda: (table,))
    for cached in (shipped, of_table):
        cached.cache_clear()


def rescheduled_table(monkeypatch, raced, version=SCHEDULER_VERSION):
    """Let the shipped table hold a rescheduled winner of NN 4096; return its config."""
    cases = (one for one in document()["rescheduled"] if one["trans"] == "NN")
    won = next(one for one in cases if [4096, 4096, 4096] in [size[:3] for size in one["won"]])
    config = {**won["config"], "schedule": 1}  # another level than it won with
    row = {"precision": "s", "trans": "NN", "stencil": "simt_async", "config": config}
    more = {"scheduler": version, "rescheduled": [{**row, "raced": raced}]}
    let_table_say(monkeypatch, document() | more)
    return Config("simt_async", config)


@pytest.fixture
def forget():
    yield
    for cached in (shipped, of_table):
        cached.cache_clear()


PROVED = replace(H100, schedules=("simt_async/s/order",))


def twin_of(config):
    (twin,) = (
        one for one in shipped(H100, variant("NN")).rows if one.config == unscheduled(config)
    )
    return twin


def is_as_fast_as_the_twin(chosen, config):
    """Within what times of two runs differ by."""
    assert unscheduled(chosen.config) == chosen.config
    (row,) = (one for one in shipped(H100, variant("NN")).rows if one.config == chosen.config)
    size = square(4096, "NN")
    assert row.ns[size] == pytest.approx(twin_of(config).ns[size], rel=0.02)


@pytest.mark.usefixtures("forget")
def test_rescheduled_code_serves_where_it_beat_its_twin_and_is_proved(monkeypatch):
    config = rescheduled_table(monkeypatch, [[4096, 4096, 4096, 95, 100], [8192] * 3 + [100, 99]])
    assert choose(device(PROVED), square(4096, "NN")).config == config
    assert choose(device(PROVED), square(8192, "NN")).config != config
    assert choose(device(PROVED), square(4096, "TN")).config != config
    # Elsewhere the compiler's own code does, its twin's or what is as fast.
    is_as_fast_as_the_twin(choose(device(), square(4096, "NN")), config)
    # It takes as much less than its twin as it did in their race.
    (row,) = (row for row in shipped(PROVED, variant("NN")).rows if row.config == config)
    twin = twin_of(config)
    assert row.ns == {square(4096, "NN"): pytest.approx(0.95 * twin.ns[square(4096, "NN")])}
    assert row.won == {size: pytest.approx(0.95 * ns) for size, ns in twin.won.items()}


@pytest.mark.usefixtures("forget")
def test_what_is_fitted_is_the_compilers_own_code(monkeypatch):
    """Nobody has rescheduled its text, and a search takes minutes."""
    config = rescheduled_table(monkeypatch, [[4096, 4096, 4096, 95, 100]])
    problem = replace(square(4096, "NN"), lda=4097)
    assert choose(device(PROVED), problem).config == config
    found = served(device(PROVED), problem).config
    assert found == unscheduled(config).replace(narrow=1)


@pytest.mark.usefixtures("forget")
@pytest.mark.parametrize(
    ("raced", "version"),
    [([[4096] * 3 + [100, 100]], SCHEDULER_VERSION), ([[4096] * 3 + [95, 100]], -1)],
    ids=["no faster", "another scheduler"],
)
def test_otherwise_it_does_not(monkeypatch, raced, version):
    config = rescheduled_table(monkeypatch, raced, version)
    is_as_fast_as_the_twin(choose(device(PROVED), square(4096, "NN")), config)


@pytest.mark.usefixtures("forget")
@pytest.mark.parametrize(
    ("version", "spec", "serves"),
    [(SCHEDULER_VERSION, PROVED, True), (-1, PROVED, False), (SCHEDULER_VERSION, H100, False)],
    ids=["proved", "another scheduler", "not proved"],
)
def test_what_is_fitted_is_rescheduled_where_such_code_was_faster(
    monkeypatch, version, spec, serves
):
    """Random shapes are served by code of their own, which is searched before, and raced."""
    problem = Problem(3001, 3003, 3001, "s", "N", "N")
    let_table_say(monkeypatch, plain_table())
    own = served(device(spec), problem).config
    made = faster_table(monkeypatch, own, "s", "NN", version=version)
    assert served(device(spec), problem).config == (made if serves else own)
    # In other cases the same config is other code, which nobody searched.
    faster_table(monkeypatch, own, "s", "TN", version=version)
    assert served(device(spec), problem).config == own


@pytest.mark.usefixtures("forget")
def test_staged_results_give_way_to_rescheduled_code_where_that_was_faster(monkeypatch):
    spec = replace(H100, schedules=("simt_async/c/order",))
    let_table_say(monkeypatch, plain_table())
    long, short = (Problem(1001, 1003, k, "c", "N", "T") for k in (901, 101))
    for problem in (long, short):
        staged = served(device(spec), problem).config
        assert staged["staged"]
        plain = staged.without("staged")
        made = faster_table(monkeypatch, plain, "c", "NT", unstaged_from=150)
        assert served(device(spec), problem).config == (made if problem == long else staged)
        faster_table(monkeypatch, plain, "c", "NT")
        assert served(device(spec), problem).config == staged


@pytest.mark.usefixtures("forget")
def test_what_won_here_raced_its_twin_here(monkeypatch):
    """On the table's model as on others of its architecture."""
    config = FAMILY.default(variant("NN"), H100)
    own_winner(square(3200), 1, config)
    near = square(3208)
    faster_table(monkeypatch, config, "s", "NN")
    for spec in (PROVED, replace(PROVED, name="NVIDIA H200")):
        assert served(device(spec, MARK), near).config == config


def plain_table():
    return document() | {"scheduler": SCHEDULER_VERSION, "rescheduled": [], "faster": []}


def faster_table(monkeypatch, config, letter, trans, version=SCHEDULER_VERSION, **more):
    """Let the table hold a rescheduled twin that was faster; return its config."""
    made = config.replace(schedule=1)
    row = {"precision": letter, "trans": trans, "stencil": made.stencil, "config": dict(made)}
    let_table_say(monkeypatch, plain_table() | {"scheduler": version, "faster": [row | more]})
    return made
