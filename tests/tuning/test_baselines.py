"""A rescheduled kernel is kept where it beats its baseline, and served where proved."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.tuning.measurement_examples import example
from tests.tuning.scheduled import Scheduled
from tilewright import reload
from tilewright.backend import device
from tilewright.portfolio import choose
from tilewright.portfolio.tuned import keep
from tilewright.problem import Problem
from tilewright.space import Config
from tilewright.stencil import Variant
from tilewright.tuning.baselines import (
    beats_its_baseline,
    gain,
    grouped,
    is_current,
    judged,
    marked,
    with_baselines,
)
from tilewright.tuning.measurement import Measurement, Stage, Status
from tilewright.tuning.runner import Limits
from tilewright.tuning.same_bits import same_bits
from tilewright.tuning.store import Store
from tilewright.tuning.strategies import Strategy
from tilewright.tuning.strategies.baselines_first import BaselinesFirst
from tilewright.tuning.tuner import tune
from tilewright.tuning.verify import Check, WrongResultError, classes, screen

ROOT = Path(__file__).parents[2]
PROBLEM = Problem(48, 40, 32, "s")
FAMILY = Scheduled()


def config(schedule: int = 0, slow: int = 0) -> Config:
    values = {"slow": slow, "block_m": 8, "block_n": 8, "block_k": 8}
    return Config("scheduled", values | ({"schedule": schedule} if schedule else {}))


def timed(schedule: int, *times: int, **changes) -> Measurement:
    return example(config=config(schedule), times_ns=times, **changes)


# -- the whole of it, on a device --------------------------------------------------------


@pytest.fixture
def tuned(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, hasty: None):
    """Tune with every level allowed."""
    monkeypatch.setenv("PYTHONPATH", f"{ROOT}/src:{ROOT}")
    with Store() as store:
        result = tune(
            PROBLEM,
            budget=200,
            strategy="exhaustive",
            stencil="scheduled",
            limits=Limits(prepare=20.0, time=20.0, final=60.0),
            modules=("tests.tuning.scheduled",),
            store=store,
            unproved_schedules=True,
        )
        yield result, store


def test_every_level_has_its_row_and_only_what_is_proved_serves(tuned) -> None:
    result, store = tuned
    found = {m.config: m for m in store.query(stage=Stage.SCREEN)}
    status = {c["schedule"]: m.status for c, m in found.items() if "schedule" in c}
    # The baseline ten times slower wins by no schedule, so that none was made of it.
    assert not any(c["slow"] and "schedule" in c for c in found)
    assert found[config(slow=1)].status == Status.OK
    assert status == {
        1: Status.OK, 2: Status.WRONG_RESULT, 3: Status.OK, 4: Status.COMPILE_ERROR,
        5: Status.WRONG_RESULT,
    }  # fmt: skip
    assert "have other bits" in found[config(2)].reason

    # What beat its baseline wins and carries its time; what lost to it is no finalist.
    assert result.winner.config == config(1)
    saved = gain(result.winner)
    assert saved is not None
    assert saved > 0
    assert config(3) not in [m.config for m in result.finalists]

    # Unproved, it is not served, but the compiler's own code that was certified beside it is.
    assert result.served is not None
    assert result.served.config == config()
    assert {m.config for m in store.query(stage=Stage.WINNER)} == {config(), config(1)}
    keep(device(), result.served)
    reload()
    assert choose(device(), PROBLEM).config == config()


def test_without_the_opt_in_nothing_unproved_is_tried(tmp_path: Path, monkeypatch, hasty) -> None:
    monkeypatch.setenv("PYTHONPATH", f"{ROOT}/src:{ROOT}")
    with Store(tmp_path / "store.sqlite") as store:
        result = tune(
            PROBLEM, budget=200, strategy="exhaustive", stencil="scheduled", store=store,
            modules=("tests.tuning.scheduled",),
        )  # fmt: skip
        assert {m.config for m in store.query()} == {config(), config(slow=1)}
        assert result.served == result.winner


def test_other_bits_are_found_where_integers_hide_them() -> None:
    live, of = device(), Variant.of(PROBLEM)
    made = {level: live.compile(FAMILY.source(config(level), of, "opencl")) for level in (0, 1, 2)}
    screen(live, made[2], FAMILY, config(2), of)
    compared = same_bits(live, (made[0], made[1]), FAMILY, config(1), of)
    assert compared == sum(check.m * check.n for check in classes(FAMILY, config(1)))
    with pytest.raises(WrongResultError, match=r"its baseline's .* have other bits \(m=13"):
        same_bits(live, (made[0], made[2]), FAMILY, config(2), of, [Check(13, 13, 40)])


# -- which are tried, and when ------------------------------------------------------------


class Fixed(Strategy):
    """Proposes what it is given, and remembers what it is told."""

    def __init__(self, *proposals: Config) -> None:
        super().__init__(FAMILY.space(Variant.of(PROBLEM), device().spec), 0, ())
        self.left, self.told = list(proposals), []

    def propose(self) -> Config | None:
        return self.left.pop(0) if self.left else None

    def observe(self, config: Config, seconds: float | None) -> None:
        self.told.append((config, seconds))


def test_baselines_come_first_and_slow_ones_are_not_rescheduled() -> None:
    inner = Fixed(config(1), config(2), config(), config(1, slow=1), config(3))
    strategy = BaselinesFirst(inner, at_once=2)
    assert strategy.propose() == config()
    assert strategy.propose() == config(slow=1)
    assert strategy.propose() is None  # until a baseline's time is known
    strategy.observe(config(), 1.0)
    assert [strategy.propose() for _ in range(3)] == [config(1), config(2), None]
    strategy.observe(config(1), 1.0)
    assert strategy.propose() == config(3)
    strategy.observe(config(2), None)
    strategy.observe(config(slow=1), 10.0)
    assert strategy.propose() is None
    assert (config(1, slow=1), None) in inner.told


def test_what_is_made_of_a_wrong_kernel_is_not_tried() -> None:
    inner = Fixed(config(1))
    strategy = BaselinesFirst(inner)
    assert strategy.propose() == config()
    strategy.observe(config(), None)
    assert strategy.propose() is None
    assert inner.told == [(config(), None), (config(1), None)]


# -- which are kept -----------------------------------------------------------------------


def test_finalists_bring_their_baselines_and_stand_beside_them() -> None:
    other = example(config=config(slow=1))
    racing = with_baselines([timed(1, 5), other, timed(2, 6), timed(0, 7)])
    assert [m.config for m in racing] == [config(1), config(2), config(), config(slow=1)]
    alone = with_baselines([timed(1, 5)])
    assert [(m.config, m.times_ns) for m in alone] == [(config(1), (5,)), (config(), ())]
    assert [[m.config for m in group] for group in grouped(racing)] == [
        [config(1), config(2), config()],
        [config(slow=1)],
    ]


def test_rounds_are_compared_one_by_one() -> None:
    """Clocks fall in a race: medians alone would let the later ones look slow."""
    baseline = timed(0, 100, 110, 120, 130, 140)
    (first, second) = judged([baseline, timed(1, 99, 109, 119, 129, 300)])
    assert (first.config, second.config) == (config(1), config())
    assert gain(first) == pytest.approx(1 / 120)
    assert judged([baseline, timed(1, 101, 111, 50, 131, 141)]) == [baseline]


def test_without_its_baseline_in_the_same_race_nothing_is_kept() -> None:
    mine = timed(1, 1, 1, 1)
    assert judged([mine]) == []
    failed = example(config=config(), status="crash")
    assert judged([mine, failed]) == []
    assert judged([mine, timed(0, 9, 9)]) == [timed(0, 9, 9)]
    assert not beats_its_baseline(mine)


@pytest.mark.parametrize(
    "baseline", [None, [], {}, {"saved_ns": 5}, {"saved_ns": "5", "median_ns": 9},
             {"saved_ns": -1, "median_ns": 9}, {"saved_ns": True, "median_ns": 9}],
)  # fmt: skip
def test_a_store_may_say_anything_of_a_baseline(baseline) -> None:
    environment = {} if baseline is None else {"unscheduled": baseline}
    assert not beats_its_baseline(timed(1, 5, environment=environment))
    assert beats_its_baseline(timed(0, 5, environment=environment))


def test_another_scheduler_makes_another_kernel(monkeypatch) -> None:
    mine = marked(timed(1, 5))
    assert is_current(mine)
    assert marked(timed(0, 5)).environment == timed(0, 5).environment
    assert not is_current(timed(1, 5))
    monkeypatch.setattr("tilewright.tuning.baselines.SCHEDULER_VERSION", -1)
    assert not is_current(mine)
    assert is_current(timed(0, 5))


def test_a_winner_of_each_kind_is_stored_and_kept(tmp_path: Path) -> None:
    """Pruning keeps the compiler's own winner beside a rescheduled one."""
    with Store(tmp_path / "store.sqlite") as store:
        for schedule, ns in ((0, 9), (0, 8), (1, 7), (1, 6)):
            store.add(timed(schedule, ns, stage=Stage.WINNER))
        store.prune(current_versions={"scheduled": 2})
        kept = [(m.config, m.times_ns) for m in store.query()]
    assert kept == [(config(), (8,)), (config(1), (6,))]


def test_a_race_that_breaks_is_run_again_with_baselines_together(monkeypatch) -> None:
    """One that crashes costs its own group; its baseline is timed alone."""
    from tilewright.tuning.process import Answer
    from tilewright.tuning.runner import Runner

    runner = object.__new__(Runner)
    runner._request, runner._timer = {}, None
    asked = []

    def answer(worker, request):
        levels = [one["config"].get("schedule", 0) for one in request["candidates"]]
        asked.append(levels)
        if 1 in levels:
            return Answer(Status.CRASH, "the worker died")
        return Answer(Status.OK, data={"times_ns": [[5]] * len(levels)})

    monkeypatch.setattr(runner, "_one", answer)
    others = [timed(1, 5), timed(0, 6), example(config=config(slow=1))]
    found = {m.config: m.status for m in runner.race(others, 1.0)}
    assert asked == [[1, 0, 0], [1, 0], [0], [0]]
    assert found == {
        config(1): Status.CRASH, config(): Status.OK, config(slow=1): Status.OK,
    }  # fmt: skip


def test_a_search_ends_with_the_budget_and_leaves_no_row() -> None:
    """Its candidate may be tried again in a later run, unlike one that timed out."""
    from types import SimpleNamespace

    from tilewright.tuning.runner import Runner

    ended = []

    def worker(schedule: int) -> SimpleNamespace:
        made = SimpleNamespace(busy=True, job=timed(schedule, 5))
        made.kill = lambda: ended.append(schedule)
        return made

    runner = object.__new__(Runner)
    runner._preparers = [worker(0), worker(1)]
    runner._drop_searches()
    assert ended == [1]
    assert [one.job is None for one in runner._preparers] == [False, True]
