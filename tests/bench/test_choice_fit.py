"""What things cost: how it is fitted, and how good it is said to be."""

from __future__ import annotations

import json
import math
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tilewright.library.choose import Choice, fitted
from tilewright.library.cycles import COSTS, cycles, work
from tilewright.problem import Problem
from tilewright.space import Config
from tilewright.stencil import Variant, stencil

ROOT = Path(__file__).parents[2]
SINGLE = COSTS["simt_async", "s"]
# Of the launches of the portfolio: enough to tell all costs, and few enough to be quick.
EVERY = 7


@pytest.fixture(scope="module")
def choice_fit():
    """The script, imported as the shell runs it."""
    before = set(sys.modules)
    with pytest.MonkeyPatch.context() as patched:
        patched.syspath_prepend(str(ROOT / "benchmarks"))
        import choice_fit

        yield choice_fit
    for name in {"choice_fit", "ship"} - before:
        sys.modules.pop(name, None)


@pytest.fixture(scope="module")
def taken(choice_fit):
    return list(choice_fit.portfolio())


@pytest.fixture(scope="module")
def launches(choice_fit, taken):
    return choice_fit.Launches.of(taken)


@pytest.mark.parametrize("letter", [letter for _, letter in COSTS])
def test_costs_of_the_package_are_the_fitted_ones(choice_fit, letter):
    """A test that fails says: the portfolio was timed anew, so fit anew."""
    known = choice_fit.known_costs(letter)
    found = choice_fit.fit(choice_fit.Launches.of(choice_fit.portfolio(letter)), known)
    for name in vars(known):
        about = pytest.approx(getattr(known, name), rel=0.02, abs=choice_fit.NOTHING)
        assert getattr(found, name) == about, name


@pytest.mark.parametrize("letter", "dcz")
def test_many_launches_take_what_each_takes_in_other_precisions(choice_fit, letter):
    taken = list(choice_fit.portfolio(letter))[:: 20 * EVERY]
    known = choice_fit.known_costs(letter)
    ones = [cycles(one, known) for _, one, _ in taken]
    launches = choice_fit.Launches.of(taken)
    assert choice_fit.expected(launches.does, known) == pytest.approx(ones, rel=1e-12)
    products = 1 if letter == "d" else 4
    assert (launches.does["multiplied"] == products * launches.does["area"]).all()


def test_many_launches_take_what_each_takes(choice_fit, taken, launches):
    """The formula is written twice: for arrays, which are fitted, and for a choice."""
    costs = replace(SINGLE, check=0.5, part_element=3.0)
    ones = [cycles(one, costs) for _, one, _ in taken[::EVERY]]
    assert choice_fit.expected(launches.does, costs)[::EVERY] == pytest.approx(ones, rel=1e-12)
    # A few terms are nothing in the portfolio, or everywhere the same.
    odd = replace(taken[0][1], warps=0.5, checked=192.0, segments=5e4, staged=4096, sliced=8192)
    two = choice_fit.Launches.of([(taken[0][0], odd, 1.0), taken[0]])
    assert choice_fit.expected(two.does, costs)[0] == pytest.approx(cycles(odd, costs), rel=1e-12)


def test_a_config_does_what_it_does_when_it_is_fitted(choice_fit):
    """So configs are not fitted to each of their shapes, which would take a quarter of a minute.

    But for a few that have no room to stage: a choice takes them to be staged all the same.
    """
    found = choice_fit.ship.load(choice_fit.ship.PORTFOLIOS["s"])
    spec, family, changed, unstaged = choice_fit.device(), stencil("simt_async"), set(), []
    rows = found["rows"][::23]
    for problem, values in (
        (choice_fit.problem_of(row), values)
        for row in rows
        for values in found["configs"][row["trans"]][::5]
    ):
        config = Config("simt_async", values)
        ran = fitted(Choice(family, config), problem, spec).config
        changed |= {name for name in ran if ran[name] != config.get(name, 0)}
        whole = bool(ran.get("guarded", 0) or ran.get("tma", 0))
        told = {"guarded": whole, "staged": bool(ran.get("staged", 0))}
        does = work(ran, problem, ran.integer("resident"), choice_fit.MULTIPROCESSORS, **told)
        counted = choice_fit.counted(config, problem)
        assert counted == choice_fit.counted(ran, problem)
        if counted != does:
            unstaged.append(ran)
            assert counted == replace(does, segments=counted.segments, staged=counted.staged)
            assert ran.replace(staged=1) not in family.space(Variant.of(problem), spec)
    assert changed >= {"narrow", "guarded", "staged"}
    assert len(unstaged) < len(rows) / 4  # each was timed with a dozen configs


@pytest.mark.parametrize(
    ("letter", "trans", "k", "lanes"),
    [
        ("d", "NT", 100, 64), ("d", "TN", 100, 64),  # two doubles at once
        ("d", "TN", 101, 128),  # odd steps along k: single ones
        ("z", "TN", 101, 128),  # 16 bytes each
        ("c", "NT", 101, 64), ("c", "NN", 100, 96),  # B is turned, element by element
    ],
)  # fmt: skip
def test_lanes_that_copy_a_step(choice_fit, letter, trans, k, lanes):
    problem = Problem(640, 640, k, letter, *trans, ldc=640)
    problem = replace(problem, lda=1024, ldb=1024)
    blocks = {"block_m": 64, "block_n": 64, "block_k": 16, "split_k": 1, "stages": 3}
    tiles = {"warp_m": 32, "warp_n": 32} if letter in "dz" else {"tile_m": 4, "tile_n": 8}
    config = Config(choice_fit.FAMILIES[letter], {**blocks, **tiles, "lanes_m": 8})
    assert work(config, problem, 1, 132).copies == lanes


def made(choice_fit, launches, costs, noise=0.0):
    """Return launches that take what costs say, but for some noise."""
    drawn = np.random.default_rng(1).standard_normal(len(launches.ns))
    ns = choice_fit.expected(launches.does, costs) / choice_fit.GHZ * np.exp(noise * drawn)
    return replace(launches, ns=ns)


TRUE = replace(
    SINGLE, launch=9000.0, begin=4000.0, latency=600.0, store=0.4, turn=9000.0, meet=900.0,
    part=2000.0, part_element=9.0, l2=3500.0, memory=1100.0, segment=60.0, second=7000.0,
)  # fmt: skip


STARTS = [SINGLE, replace(SINGLE, launch=1e3, begin=2e4, l2=1e3, part=1.0)]


@pytest.mark.parametrize("start", STARTS)
def test_known_costs_are_found(choice_fit, launches, start):
    some = launches.only(np.arange(0, len(launches.ns), EVERY))
    found = choice_fit.fit(made(choice_fit, some, TRUE), start)
    assert vars(found) == pytest.approx(vars(TRUE), rel=0.01)


@pytest.mark.parametrize("start", STARTS)
def test_known_costs_are_found_in_noise(choice_fit, launches, start):
    """Times are off by 5 %, costs by less, but for those that few or no launches tell apart."""
    found = choice_fit.fit(made(choice_fit, launches, TRUE, noise=0.05), start)
    told, true = vars(found).copy(), vars(TRUE).copy()
    assert told.pop("launch") + told.pop("begin") == pytest.approx(
        true.pop("launch") + true.pop("begin"), rel=0.03
    )
    assert told.pop("segment") == pytest.approx(true.pop("segment"), rel=0.5)
    for name in ("turn", "part_element"):
        assert told.pop(name) == pytest.approx(true.pop(name), rel=0.1)
    assert told == pytest.approx(true, rel=0.05)


def test_what_costs_nothing_is_nothing(choice_fit, launches):
    """And a cost that was nothing is found where there is one, as above."""
    true = replace(TRUE, part_element=0.0)
    some = launches.only(np.arange(0, len(launches.ns), EVERY))
    assert choice_fit.fit(made(choice_fit, some, true), SINGLE).part_element == 0
    assert choice_fit.fit(made(choice_fit, some, TRUE), true).part_element == pytest.approx(9, 0.01)


def test_held_costs_stay(choice_fit, launches):
    some = launches.only(np.arange(0, len(launches.ns), EVERY))
    start = replace(SINGLE, check=7.0, staged=0.125)
    found = choice_fit.fit(some, start)
    assert (found.check, found.staged) == (7.0, 0.125)
    assert not some.does["checked"].any()  # no launch says what it costs


def test_slow_launches_count_less(choice_fit, launches, monkeypatch):
    """Slices that are far from the best of their problem hardly say what a second kernel costs."""
    clean = made(choice_fit, launches, TRUE)
    far = (clean.does["sliced"] > 0) & (clean.slower > 1.5)
    odd = replace(clean, ns=np.where(far, clean.ns * 1.3, clean.ns))
    off = abs(choice_fit.fit(odd, SINGLE).second - TRUE.second)
    monkeypatch.setattr(choice_fit, "SLOWER_COUNTS", 0)
    assert off < abs(choice_fit.fit(odd, SINGLE).second - TRUE.second) / 3


def test_shapes_are_left_out_whole(choice_fit, taken, monkeypatch):
    """Whatever the transposes: a fit never sees a launch of sizes that it is asked about."""
    by_shape = {}
    for one in taken:
        by_shape.setdefault(choice_fit.sides_of(one[0]), []).append(one)
    square = by_shape[2048, 2048, 2048]
    assert {problem.trans for problem, _, _ in square} == {"NN", "NT", "TN", "TT"}
    chosen = [*square, *(x for at in list(by_shape)[:5] for x in by_shape[at])]
    few = choice_fit.Launches.of(chosen)
    few = replace(few, ns=np.arange(1.0, 1 + len(few.ns)))  # which tell launches apart
    for side in np.unique(few.sides):
        mine = few.sides == side

        def fit(of, _, mine=few.ns[mine]):
            """Return costs that say whether any launch of these sizes was seen."""
            return replace(SINGLE, launch=1e12) if np.isin(of.ns, mine).any() else SINGLE

        monkeypatch.setattr(choice_fit, "fit", fit)
        off = choice_fit.left_out(few, 3, SINGLE)
        assert off[mine] == pytest.approx(few.off(SINGLE)[mine])
        assert (off != few.off(SINGLE)).any()  # where another fit is asked, which saw them
    assert len(np.unique(few.problem)) == len(np.unique(few.sides)) + 3


def small(choice_fit, taken, ns, problems=None):
    """Return launches of one problem, or of more, with these times."""
    work_, problem = taken[0][1], taken[0][0]
    return choice_fit.Launches.of(
        (one, replace(work_, steps=float(at)), time)
        for at, (time, one) in enumerate(zip(ns, problems or [problem] * len(ns), strict=True))
    )


def test_the_faster_of_two_is_told(choice_fit, taken, monkeypatch):
    """Of six pairs one is alike, and one is told the wrong way."""
    found = small(choice_fit, taken, [100.0, 104.0, 150.0, 120.0])
    monkeypatch.setattr(choice_fit, "expected", lambda does, costs: does["steps"])
    assert choice_fit.told_apart(found, SINGLE) == (4, 5)
    # What is said to take as long is not told.
    monkeypatch.setattr(choice_fit, "expected", lambda does, costs: 0 * does["steps"])
    assert choice_fit.told_apart(found, SINGLE) == (0, 5)


def test_only_launches_of_a_problem_are_compared(choice_fit, taken, monkeypatch):
    one, other = Problem(64, 64, 64, "s"), Problem(64, 64, 64, "s", "T", "N")
    found = small(choice_fit, taken, [100.0, 50.0, 200.0], [one, other, one])
    monkeypatch.setattr(choice_fit, "expected", lambda does, costs: does["steps"])
    assert choice_fit.told_apart(found, SINGLE) == (1, 1)
    assert found.slower == pytest.approx([1, 1, 2])


def row(config, **other):
    about = {"m": 300, "n": 400, "k": 500, "trans": "NN", "stencil": "simt_async", "copies": []}
    times = {"tilewright": [5, 9, 7], "cublas": [1, 1, 1]}
    return {**about, "config": dict(config), "ns": times, "ratio": 0.1, **other}


def test_runs_say_what_was_not_seen(choice_fit, tmp_path, monkeypatch):
    """Not what the portfolio has, what failed, other stencils, and what copies operands first."""
    config = Config("simt_async", choice_fit.ship.load("portfolio.json")["configs"]["NN"][0])
    rows = [
        row(config), row(config, m=8, n=8, k=8), row(config, copies=["a"]),
        row(config, stencil="simt"), {"reason": "no", "m": 1, "n": 1, "k": 1, "trans": "NN"},
    ]  # fmt: skip
    (tmp_path / "run.json").write_text(json.dumps({"rows": rows}))
    monkeypatch.setattr(choice_fit.ship, "RESULTS", tmp_path)
    ((problem, does, ns),) = choice_fit.unseen("run.json", {(8, 8, 8)})
    assert (problem, ns) == (Problem(300, 400, 500, "s"), 7)
    assert does == work(config, problem, config.integer("resident"), 132)


def test_the_report_says_medians_of_what_is_near_too(choice_fit, taken, monkeypatch, capsys):
    found = small(choice_fit, taken, [100.0, 104.0, 150.0])
    logs = np.log([1.1, 1.2, 0.5])
    off = lambda of, costs: logs[: len(of.ns)]  # noqa: E731
    monkeypatch.setattr(choice_fit.Launches, "off", off)
    monkeypatch.setattr(choice_fit, "UNSEEN", {})
    monkeypatch.setattr(choice_fit, "ALIKE", 1.01)
    monkeypatch.setattr(choice_fit, "expected", lambda does, costs: does["steps"])
    choice_fit.report(found, set())
    said = capsys.readouterr().out
    assert f"portfolio: 3 launches, median {math.log(1.2):.1%}" in said
    near = (math.log(1.1) + math.log(1.2)) / 2
    assert f"within 10% of the best: 2 launches, median {near:.1%}" in said
    assert "all: the faster is told of 3 of 3" in said
    assert "of the best: the faster is told of 1 of 1" in said


def test_what_is_printed_can_be_pasted(choice_fit):
    text = choice_fit.pasted(replace(SINGLE, launch=123000.0, part_element=0.0), "d")
    found = eval(f"{{{text}}}", {"Costs": type(SINGLE)})
    assert found == {("mma_f64", "d"): replace(SINGLE, launch=123000.0, part_element=0.0)}
    assert max(map(len, text.splitlines())) <= 100
