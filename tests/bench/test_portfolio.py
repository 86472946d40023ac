"""The few configs that serve all shapes: how they are picked, and that choices are by them."""

from __future__ import annotations

import itertools
import json
import sys

import pytest

from tests.bench.test_proving import script
from tests.library.test_boxes import Hopper
from tests.stencil.portable_harness import variant
from tilewright.library.choose import timed_choice
from tilewright.library.shipped import tables
from tilewright.library.waves import Timed, timed_nearby
from tilewright.problem import Problem
from tilewright.space import Config
from tilewright.stencil import stencil


@pytest.fixture(scope="module")
def portfolio():
    return script("portfolio")


@pytest.fixture(scope="module")
def single(portfolio):
    """What single precision's is picked from: the module that the script imported."""
    return sys.modules[portfolio.picked.__module__]


def square(n, trans="NN"):
    return Problem(n, n, n, "s", *trans)


def configs(single, count):
    """Return as many points of NN's space."""
    first = single.winners("NN")[0]
    return [first.replace(stages=2 + at % 2, raster_rows=(8, 0)[at // 2]) for at in range(count)]


def test_what_takes_most_off_the_time_of_all_shapes_comes_first(single, monkeypatch):
    """One config is good everywhere, two are best of one shape each, one is never needed."""
    good, one, two, never = configs(single, 4)
    shapes = [Problem(500 + at, 700, 900, "s") for at in range(4)]
    times = {
        good: dict.fromkeys(shapes, 11e3),
        one: dict.fromkeys(shapes, 30e3) | {shapes[0]: 10e3},
        two: dict.fromkeys(shapes, 30e3) | {shapes[3]: 10e3},
        never: dict.fromkeys(shapes, 12e3),
    }
    for known in ("winners", "in_slices", "orders"):
        monkeypatch.setattr(single, known, lambda *_: [])
    found = single.picked("NN", times, H100)
    assert found[0] == good
    assert set(found[1:]) == {one, two}


def test_large_blocks_are_cut_and_narrow_copies_ordered_beside_what_was_raced(single):
    """Whoever wins at squares shares tiles in some way; here the same blocks are in slices."""
    winners = single.winners("NN")
    cut = single.in_slices(winners, "NN", H100)
    assert cut
    assert all(one["sliced"] and not one.get("persistent", 0) for one in cut)
    assert all(one["block_m"] * one["block_n"] >= single.LARGE for one in cut)
    ordered = single.orders("NN", H100)
    assert ordered
    assert all(one["stream_k"] for one in ordered)
    assert single.orders("TN", H100) == []  # no operand that could be copied so


def test_what_another_run_timed_comes_beside(portfolio):
    shape = {"trans": "NN", "m": 1, "n": 2, "k": 3}
    first, then = ({"date": day, "commit": day, "cores": 16} for day in ("one", "two"))
    known = {"rows": [{**shape, "ns": [5.0]}], "configs": {"NN": ["a"]}, "refused": {}}
    known["environment"] = first
    late = {"trans": "NN", "m": 7, "n": 2, "k": 3}  # a shape that the second run did not reach
    known["rows"].append({**late, "ns": [6.0]})
    made = {"rows": [{**shape, "ns": [4.0, None]}], "configs": {"NN": ["b", "c"]}}
    made["environment"] = then
    found = portfolio.joined(known, {**made, "refused": {"c": "why"}})
    assert found["rows"] == [{**shape, "ns": [5.0, 4.0, None]}]
    assert found["configs"] == {"NN": ["a", "b", "c"]}
    assert found["refused"] == {"c": "why"}
    beside = [{"date": "two", "commit": "two", "configs": {"NN": 2}}]
    assert found["environment"] == {**first, "beside": beside}


def test_more_shapes_come_behind_those_there_are(portfolio):
    """Of a run with `--more`: the same configs, on shapes that the earlier run has not."""
    one, two = Problem(8, 16, 24, "s", "N", "N"), Problem(9, 17, 25, "s", "N", "N")
    known = {
        "rows": [{"trans": "NN", "m": 8, "n": 16, "k": 24, "ns": [5.0]}],
        "configs": {"NN": [{"block_m": 64}], "NT": [], "TN": [], "TT": []},
        "refused": {"a": "why"},
    }
    shapes = portfolio.shapes_of(known)
    assert shapes["NN"] == [one]
    wanted = {trans: [one, two] if trans == "NN" else [] for trans in shapes}
    assert portfolio.without(wanted, shapes)["NN"] == [two]
    assert portfolio.configs_of(known)["NN"] == [Config("simt_async", {"block_m": 64})]
    late = {"trans": "NN", "m": 9, "n": 17, "k": 25, "ns": [6.0]}
    known["environment"] = {"date": "one", "cores": 16}
    made = {"rows": [late], "configs": known["configs"], "refused": {"b": "lost"}}
    made["environment"] = {"date": "two", "commit": "abc", "cores": 16}
    found = portfolio.longer(known, made)
    run = {"date": "two", "commit": "abc", "shapes": {"NN": 1}}
    assert found["environment"] == {"date": "one", "cores": 16, "more": [run]}
    assert portfolio.longer(found, made)["environment"]["more"] == [run, run]
    assert found["rows"] == [*known["rows"], late]
    assert found["configs"] == known["configs"]
    assert found["refused"] == {"a": "why", "b": "lost"}


H100 = Hopper().spec


@pytest.mark.parametrize("way", ["joined", "longer"])
def test_results_that_name_no_precision_are_written_on(portfolio, tmp_path, way):
    """Those of single precision are older than others."""
    known = {
        "environment": {}, "device": {}, "refused": {}, "configs": {"NN": [{"block_m": 64}]},
        "rows": [{"trans": "NN", "m": 1, "n": 2, "k": 3, "ns": [5.0]}],
    }  # fmt: skip
    made = {**known, "environment": {"date": "now", "commit": "abc"}, "precision": "s"}
    whole = getattr(portfolio, way)(known, made)
    portfolio.write(tmp_path / "new.json", whole)
    found = json.loads((tmp_path / "new.json").read_text())
    assert found["precision"] == "s"
    assert found["rows"] == whole["rows"]


def test_what_counts_is_the_fewest_that_reach_the_best_times(portfolio):
    """One is the best nearly everywhere, one at a single shape; who is never best is left out."""
    first = Config("mma_f64", {"stages": 2})
    configs = [first.replace(stages=at) for at in range(2, 6)]
    ns = [[9.0, 5.0, 8.0, None], [9.0, 5.0, 4.0, None], [9.0, 5.0, 8.0, 7.0]]
    assert portfolio.what_counts(configs, ns) == [1, 2]


@pytest.mark.parametrize("letter", "dcz")
def test_candidates_of_other_precisions_are_in_their_space(portfolio, letter):
    found = {trans: portfolio.candidates(letter, trans, H100) for trans in portfolio.CASES}
    for trans, configs in found.items():
        assert len(set(configs)) == len(configs) > 60
        space = stencil(portfolio.FAMILIES[letter]).space(variant(f"{letter}{trans}"), H100)
        assert all(one in space for one in configs)
        assert {one.get("sliced", 0) for one in configs} == {0, 1}
        assert {one.get("stream_k", 0) for one in configs} == {0, 1}
        assert max(one.get("warps_k", 1) for one in configs) >= 4
    problems = portfolio.problems("TN", 30, letter)
    products = 4 if letter in "cz" else 1
    assert all(products * p.m * p.n * p.k <= portfolio.MOST_MULTIPLIED for p in problems)
    assert {(p.m, p.n, p.k) for p in problems} > {(513,) * 3, (1025,) * 3}


@pytest.mark.parametrize("letter", "dz")
def test_candidates_have_sides_that_suit_sizes_one_above_a_multiple(portfolio, letter):
    """Of these the first depth alone; what a warp has too many sums for has short steps."""
    found = portfolio.candidates(letter, "NN", H100)
    sides = {one.integer(f"block_{side}") for one in found for side in "mn"}
    assert sides > {48, 96}
    odd = [one for one in found if one.integer("block_m") % 3 == 0]
    depths = {one.integer("block_k") // one.get("warps_k", 1) for one in odd}
    assert depths == {16 if letter == "d" else 8}
    assert all(one["mma_k"] == 4 for one in odd if one["warp_m"] == one["warp_n"] == 48)


def test_long_sums_are_compared_with_slices_and_without(portfolio):
    """Of those alone that have few tiles, and times of both kinds."""
    shape = {"trans": "NN", "m": 100, "n": 3000, "k": 4000}
    rows = [
        {**shape, "ns": [6.0, 9.0, 4.0]},
        {**shape, "k": 1000, "ns": [6.0, 9.0, 1.0]},  # a short sum
        {**shape, "m": 600, "ns": [6.0, 9.0, 1.0]},  # and many tiles
        {**shape, "ns": [6.0, 9.0, None]},
    ]
    made = {"rows": rows, "configs": {"NN": [{}, {"stream_k": 2}, {"sliced": 1}]}}
    assert portfolio.of_slices(made, "NN") == [1.5]


def told(portfolio, monkeypatch, capsys, *arguments):
    """Return what the script says before it ends."""
    monkeypatch.setattr(sys, "argv", ["portfolio.py", *map(str, arguments)])
    with pytest.raises(SystemExit):
        portfolio.main()
    return capsys.readouterr().err


def test_another_precision_than_a_file_has_is_told(portfolio, tmp_path, monkeypatch, capsys):
    path = tmp_path / "d.json"
    path.write_text(json.dumps({"configs": {}, "precision": "d"}))
    said = told(portfolio, monkeypatch, capsys, "--table", "--precision", "z", "--json", path)
    assert f"{path} is of --precision d; name that, or none" in said
    row = {"precision": "d", "trans": "NN", "stencil": "mma_f64", "config": {}}
    path.write_text(json.dumps([row]))
    said = told(portfolio, monkeypatch, capsys, "--only", path, "--precision", "z", "--json", path)
    assert f"--only={path} names no configs of --precision z" in said
    path.write_text("# a page")
    said = told(portfolio, monkeypatch, capsys, "--table", "--json", path)
    assert f"{path} holds no JSON" in said


def test_a_file_of_something_else_is_told(portfolio, tmp_path, monkeypatch, capsys):
    path = tmp_path / "other.json"
    path.write_text('{"configs": [], "rows": []}')
    monkeypatch.setattr(sys, "argv", ["portfolio.py", "--table", "--json", str(path)])
    with pytest.raises(SystemExit):
        portfolio.main()
    assert "has no results of portfolio.py; give a file that it wrote" in capsys.readouterr().err


def test_a_third_of_the_shapes_is_of_whole_vectors(portfolio):
    found = portfolio.problems("TN", 30)
    assert len(set(found)) == len(found) == 30 + 15 + len(portfolio.SQUARES)
    whole = [p for p in found if p.m % 8 == p.n % 8 == p.k % 8 == 0]
    assert len(whole) >= len(found) / 3
    assert all(p.trans == "TN" for p in found)


def test_tests_are_of_other_shapes(portfolio):
    """Neither the random shapes of the benchmark nor those of its other seeds were timed."""
    shapes200 = script("shapes200")
    timed = {
        (letter, trans, *sizes)
        for letter, trans, found in shipped_portfolios()
        for sizes in map(tuple, found["shapes"])
    }
    for letter, seed in itertools.product("sdcz", (shapes200.SEED, 1, 2)):
        drawn = (
            (letter, p.trans.replace("C", "T"), p.m, p.n, p.k)
            for p in shapes200.shapes(seed, letter)
        )
        assert timed.isdisjoint(drawn)


def shipped_portfolios():
    """Yield precision, case and what was timed."""
    for letter, of in json.loads(script("ship").TABLE.read_text())["portfolio"].items():
        for trans, found in of["cases"].items():
            yield letter, trans, found


@pytest.mark.parametrize("letter", "sdcz")
def test_every_config_is_served_with_times_of_its_shapes(letter):
    table = next(one for one in tables() if "H100" in one.device)
    stencil_name = script("portfolio").FAMILIES[letter]
    served = {
        (next(iter(row.ns)).trans, row.config): row
        for row in table.rows
        if next(iter(row.ns)).precision.letter == letter
    }
    for trans, found in ((t, f) for x, t, f in shipped_portfolios() if x == letter):
        for one in found["configs"]:
            config = Config(stencil_name, one["config"])
            row = served[trans, config]
            assert len(row.ns) >= sum(ns is not None for ns in one["ns"])
            for sizes, ns in zip(found["shapes"], one["ns"], strict=True):
                problem = Problem(*sizes, letter, *trans)
                assert (problem in row.ns) >= (ns is not None)
                assert ns is None or stencil(stencil_name).takes(config, problem)


@pytest.mark.parametrize("trans", ["CN", "NC", "TC", "CC"])
def test_conjugates_are_expected_to_take_what_their_transposes_took(trans):
    table = next(one for one in tables() if "H100" in one.device)
    plain = trans.replace("C", "T")
    of = {
        case: {
            (row.config, p.m, p.n, p.k): ns
            for row in table.rows
            for p, ns in row.ns.items()
            if (p.precision.letter, p.trans) == ("z", case) and p.m != p.n
        }
        for case in (trans, plain)
    }
    assert of[trans] == of[plain] != {}


def test_rows_that_were_timed_about_as_near_are_compared():
    config = Config("simt_async", {"stages": 2})
    near = Timed(config, {Problem(100, 200, 300, "s"): 1.0})
    as_near = Timed(config, {Problem(100, 200, 590, "s"): 1.0})
    far = Timed(config, {square(4096): 1.0})
    assert timed_nearby([near, as_near, far], Problem(100, 200, 300, "s")) == [near, as_near]
    assert timed_nearby([near, as_near, far], square(4000)) == [far]


@pytest.mark.parametrize("letter", "sdcz")
def test_the_choice_at_a_shape_that_was_timed_is_the_fastest_there(letter):
    for trans, found in ((t, f) for x, t, f in shipped_portfolios() if x == letter):
        for at, sizes in list(enumerate(found["shapes"]))[:6]:
            problem = Problem(*sizes, letter, *trans)
            least = min(one["ns"][at] for one in found["configs"] if one["ns"][at] is not None)
            expected = timed_choice(Hopper(), problem)[1]
            assert expected is not None
            assert expected <= least
