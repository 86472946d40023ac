"""Many launches of two kernels: one wrong element in one of them is found."""

from __future__ import annotations

import contextlib
import importlib.util
import json
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from tests.bench import acting
from tests.stencil.emulator import EmulatedDevice, compiler
from tests.tuning.twinned import Twinned
from tilewright.backend import LaunchError, LiveDevice
from tilewright.backend.cuda.architecture import architecture_spec
from tilewright.bench.proving import PROBLEMS, Launched, Twins, laid_down, many_launches
from tilewright.problem import Problem
from tilewright.space import Config
from tilewright.stencil import Variant, schedule_of
from tilewright.stencil.schedule import with_unproved
from tilewright.stencil.simt_async import SimtAsync
from tilewright.tuning.verify import Check, WrongResultError

ROOT = Path(__file__).parents[2]
FAMILY = Twinned()


def twins(live: LiveDevice, problem: Problem, level: int) -> Twins:
    """Return the plain kernel and one of `tests.tuning.twinned`'s levels."""
    values = {"slow": 0, "block_m": 8, "block_n": 8, "block_k": 8}
    of, pair = Variant.of(problem), []
    for schedule in (0, level):
        config = Config("twinned", values | ({"schedule": schedule} if schedule else {}))
        pair.append(live.compile(FAMILY.source(config, of, "opencl")))
    return Twins(FAMILY, config, *pair)


def test_equal_kernels_are_compared_in_every_launch(live: LiveDevice) -> None:
    problem, fed = Problem(33, 20, 16, "s"), []
    found = many_launches(
        live, twins(live, problem, 1), problem, 16, feed=lambda: fed.append(time.time())
    )
    # Two pairs of scalars, sixteen launches each.
    assert found == Launched(32, 32 * 33 * 20)
    assert len(fed) == 32
    late = time.monotonic() - 1
    assert many_launches(live, twins(live, problem, 1), problem, 16, until=late) == Launched()


def test_a_launch_knows_how_long_sums_are(live: LiveDevice, monkeypatch: Any) -> None:
    """Kernels in slices are cut along k."""
    problem, asked = Problem(33, 20, 16, "s"), set()

    def launch(config: Config, m: int, n: int, k: int = 0) -> Any:
        asked.add((m, n, k))
        return Twinned().launch(config, m, n, k)

    pair = twins(live, problem, 1)
    monkeypatch.setattr(FAMILY, "launch", launch, raising=False)
    many_launches(live, pair, problem, 8)
    assert asked == {(33, 20, 16)}


@pytest.mark.parametrize(
    ("level", "words"),
    [(2, r"\d+ words"), (5, "8 words")],
    ids=["sums in another order", "one element is not written"],
)
def test_other_bits_are_found(live: LiveDevice, level: int, words: str) -> None:
    """The element that is not written holds the pattern, not the last launch's right value."""
    problem = Problem(33, 20, 16, "s")
    with pytest.raises(WrongResultError, match=f"{words} of C differ .* in 8 launches"):
        many_launches(live, twins(live, problem, level), problem, 16)


def test_the_problems_have_every_class_of_blocks() -> None:
    """For blocks of 128 x 128 x 16: whole and ragged, several waves of 132, a long loop."""
    ragged = [(m % 128 > 0, n % 128 > 0, k % 16 > 0) for m, n, k in PROBLEMS]
    for at in range(3):
        assert {one[at] for one in ragged} == {True, False}
    assert max(m * n for m, n, _ in PROBLEMS) >= 3 * 132 * 128 * 128
    assert any(size % 4 for one in PROBLEMS for size in one)


@pytest.mark.parametrize(
    ("letter", "tma", "laid"),
    [("s", 0, (997, 1013)), ("s", 1, (1000, 1016)), ("c", 1, (998, 1014)), ("z", 1, (997, 1013))],
)
def test_columns_lie_where_both_kernels_can_read_them(
    letter: str, tma: int, laid: tuple[int, int]
) -> None:
    """Boxes want columns at multiples of 16 bytes; those of C begin anywhere all the same."""
    family = SimtAsync()
    config = Config(family.name, {"block_m": 64, "block_n": 64} | ({"tma": 1} if tma else {}))
    problem = Problem(997, 1013, 531, letter, "N", "T")
    found = laid_down(problem, Twins(family, config, None, None))  # type: ignore[arg-type]
    assert (found.lda, found.ldb, found.ldc) == (*laid, 997)
    assert (found.m, found.n, found.k) == (997, 1013, 531)
    assert family.takes(config, found)
    padded = Problem(997, 1013, 531, letter, "N", "T", 1200, 1400)
    assert laid_down(padded, Twins(family, config, None, None)) == padded  # type: ignore[arg-type]


# -- the benchmarks that use it on a device ------------------------------------------------


def script(name: str) -> Any:
    sys.path.insert(0, str(ROOT / "benchmarks"))
    try:
        spec = importlib.util.spec_from_file_location(name, ROOT / "benchmarks" / f"{name}.py")
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        return module
    finally:
        sys.path.remove(str(ROOT / "benchmarks"))


@pytest.mark.parametrize("name", ["schedule_proof", "schedule_model"])
def test_what_a_benchmark_will_run_is_in_the_space(name: str) -> None:
    made = script(name)
    rows = made.jobs() if name == "schedule_proof" else made.chosen_jobs()
    assert {row["trans"] for row in rows if row["precision"] == "s"} == {"NN", "NT", "TN", "TT"}
    device = with_unproved(architecture_spec("sm_90a"))
    family = SimtAsync()
    for row in rows:
        config = Config(family.name, row["config"])
        of = made.variant_of(row)
        family.space(of, device).config(config, kinds=("divisibility", "hardware"))
        level = schedule_of(config)
        assert level is not None
        assert level.name == row["level"]
    assert len({(row["precision"], row["trans"], row["id"]) for row in rows}) == len(rows)


def test_a_proof_needs_more_kernels_than_its_least() -> None:
    made = script("schedule_proof")
    for level in ("order", "all"):
        rows = [r for r in made.jobs() if (r["precision"], r["level"]) == ("s", level)]
        assert len({(r["trans"], r["id"]) for r in rows}) >= 16
        elements = 4 * made.LAUNCHES * sum(m * n for m, n, _ in PROBLEMS)
        assert 8 * elements >= 10**9


def test_the_table_says_what_became_of_each_kernel(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    made = script("schedule_proof")
    rows = made.jobs()[:3]
    predicted = {"before": {"pipe_share": 0.868}, "after": {"pipe_share": 0.884}}
    rows[0] |= {
        "status": "same", "launches": 700, "elements": 10**9, "predicted": predicted,
        "ns": {"4096": [[1000, 1000, 1000], [990, 980, 1010]]},
    }  # fmt: skip
    rows[1] |= {"status": "refused", "reason": "schedule 'all' is refused: why"}
    path = tmp_path / "proof.json"
    path.write_text(json.dumps({"rows": rows}))
    made.table(path)
    out = capsys.readouterr().out
    assert "86.8 -> 88.4 %   700 launches 1.0e+09 elements 4096: +1.0 %" in out
    assert "is refused: why" in out
    assert "1 same, 0 wrong, 0 failed, 1 refused, 0 prepared, 1 late" in out


@pytest.fixture(scope="module")
def emulated(tmp_path_factory: pytest.TempPathFactory) -> EmulatedDevice:
    found = EmulatedDevice(tmp_path_factory.mktemp("kernels"))
    found.lost = None  # type: ignore[attr-defined]
    return found


@pytest.mark.skipif(compiler() is None, reason="needs g++ or clang++")
@pytest.mark.parametrize("outcome", ["same", "wrong", "failed"])
def test_what_the_device_says_of_a_kernel_becomes_a_row(
    emulated: EmulatedDevice, monkeypatch: pytest.MonkeyPatch, outcome: str
) -> None:
    """The emulator runs the kernel's text, where a schedule changes nothing."""
    made, live = script("schedule_proof"), emulated

    def launches(*arguments: Any, feed: Any) -> Launched:
        if outcome == "wrong":
            raise WrongResultError("3 words of C differ")
        if outcome == "failed":
            raise LaunchError("an illegal address\nand more")
        return Launched(64, 1000)

    proving = "tilewright.bench.proving"
    monkeypatch.setattr(f"{proving}.many_launches", launches)
    monkeypatch.setattr(f"{proving}.disturbed", lambda *_: contextlib.nullcontext())
    monkeypatch.setattr("tilewright.tuning.same_bits.classes", lambda config: [Check(65, 33, 20)])
    monkeypatch.setattr("tilewright.tuning.verify.screen", lambda *_: None)
    values = {
        "block_m": 64, "block_n": 32, "tile_m": 4, "tile_n": 8, "lanes_m": 8, "block_k": 16,
        "unroll_k": 8, "stages": 3, "split_k": 1, "resident": 1, "copy_groups": 2, "walk": 0,
        "b_first": 0, "k_vectors": 0, "raster_rows": 4,
    }  # fmt: skip
    row = made.proved(live, made.at_level(made.job("s", "NT", values), 1))
    assert row["status"] == outcome
    of_launches = 2 * len(PROBLEMS) if outcome == "same" else 0
    assert row["elements"] == 65 * 33 + 1000 * of_launches
    reason = {
        "same": "",
        "wrong": "3 words of C differ",
        "failed": "LaunchError: an illegal address",
    }
    assert row["reason"] == reason[outcome]


def test_a_loops_share_is_the_deeper_run_less_the_other() -> None:
    """Of 1000 cycles before and after the loop, in which nothing is multiplied, nothing is left."""
    made = script("model_shares")

    def run(loop: float) -> dict[str, float]:
        return {"cycles": loop + 1000, "fma_instructions_pct": 85 * loop / (loop + 1000)}

    assert made.counted_share([run(5000), run(10000)]) == pytest.approx(85)


def test_predictions_of_now_and_then_are_told_apart() -> None:
    """Of three kernels counted at 80 %: one predicted anew, one as it was, and one not counted."""
    made = script("model_shares")
    run = [{"cycles": n, "fma_instructions_pct": 80.0} for n in (1000.0, 2000.0)]

    def told(before: float, after: float) -> dict[str, dict[str, float]]:
        return {"before": {"pipe_share": before}, "after": {"pipe_share": after}}

    counted = {"before": run, "after": run}
    anew = {"counted": counted, made.AT_FIRST: told(0.9, 0.85), made.PREDICTED: told(0.81, 0.82)}
    rows = [anew, {"counted": counted, made.PREDICTED: told(0.78, 0.9)}, {}]
    assert made.within(rows) == (2, 1)
    assert made.within(rows, made.AT_FIRST) == (1, 0)


def test_a_kernel_that_gained_is_shipped_beside_its_twin() -> None:
    ship = script("ship")
    row = {
        "precision": "s", "trans": "NT", "stencil": "simt_async", "config": {"schedule": 5},
        "level": "walked", "id": "that won nothing",
    }  # fmt: skip
    ns = {"4096": [[100, 102, 104], [99, 101, 103]], "8192": [[900, 900, 900], [910, 890, 905]]}
    rows = [row | {"status": "same", "ns": ns}, row | {"status": "wrong", "ns": ns}]
    rows.append(row | {"status": "same", "ns": ns, "level": "placed"})  # which is not proved
    told = {name: value for name, value in row.items() if name not in ("level", "id")}
    for date, held in (("2026-11-22T16:56:20+00:00", True), ("2026-11-21T21:57:30+00:00", False)):
        proof = {"environment": {"date": date}, "rows": rows}
        assert list(ship.rescheduled_rows(proof)) == [
            told | {"raced": [[4096, 4096, 4096, 101, 102]], "held": held, "won": []}
        ]


def watched(made: Any, target: Any, *ids: str) -> tuple[Any, dict[str, tuple[str, str]]]:
    """Give rows to a process until all ended; return what became of each."""
    device, ended = made.Device(target, silence=4.0), {}
    for name in ids:
        device.ask({"id": name, "status": "prepared", "reason": ""})
    until = time.time() + 60
    while len(ended) < len(ids) and time.time() < until:
        for row in device.listen():
            ended[row["id"]] = (row["status"], row["reason"])
    device.child.kill()
    return device, ended


def test_a_kernel_that_takes_the_process_down_costs_only_its_row() -> None:
    device, ended = watched(
        script("schedule_proof"), acting.serve, *["a", "dies", "b", "hangs", "loses", "c"]
    )
    assert device.facts["arch"] == "sm_90a"
    assert ended == dict.fromkeys("abc", ("same", "")) | {
        "dies": ("failed", "the process ended: 11"),
        "hangs": ("failed", "the process said nothing"),
        "loses": ("failed", "an illegal address"),
    }


def test_without_a_device_no_kernel_is_to_blame() -> None:
    _, ended = watched(script("schedule_proof"), acting.serve_nothing, "a", "b")
    assert ended == dict.fromkeys("ab", ("late", "no device: it ended: 3"))
