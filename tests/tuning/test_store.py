"""The store keeps what it was given, whatever happens to the processes that use it."""

import tempfile
from datetime import UTC, datetime
from pathlib import Path

import pytest
from hypothesis import given

from tests.tuning.measurement_examples import example, few, measurements
from tilewright.problem import Problem, Trans
from tilewright.tuning.store import Store, StoreError


@pytest.fixture
def path(tmp_path):
    return tmp_path / "results.sqlite"


@pytest.fixture
def store(path):
    with Store(path) as opened:
        yield opened


# ------------------------------------------------------------------- round trips


@few
@given(measurements())
def test_what_goes_in_comes_out(measured):
    with tempfile.TemporaryDirectory() as directory, Store(Path(directory) / "s") as store:
        id = store.add(measured)
        found = store.get(id)
        assert found == measured
        assert found.id == id
        assert list(store.query(problem=measured.problem, device=measured.device)) == [measured]


def test_adding_twice_stores_once(store):
    assert store.add(example()) == store.add(example())
    assert store.add(example(block=128)) != store.add(example())
    assert store.count() == 2


def test_a_result_of_status_ok_must_have_been_timed(store):
    with pytest.raises(ValueError, match="times_ns"):
        store.add(example(times=()))
    assert store.count() == 0


def test_an_import_is_all_or_none(store):
    def broken():
        yield example()
        raise RuntimeError("the source dried up")

    with pytest.raises(RuntimeError, match="dried up"):
        store.add_imported(broken())
    assert store.count() == 0
    assert store.add_imported([example()]) == 1


def test_results_survive_closing(path):
    with Store(path) as store:
        id = store.add(example())
    with Store(path) as store:
        assert store.get(id) == example()


def test_an_unknown_id_is_one_line(store):
    for id in (7, -1, 2**80):
        with pytest.raises(StoreError, match="no measurement"):
            store.get(id)


# ----------------------------------------------------------------------- queries


def test_filters(store):
    kept = [
        example(),
        example(status="crash", block=65),
        example(device="ffff", device_name="Other"),
        example(problem=Problem(512, 512, 512, "c", "C", "N")),
        example(stencil_version=2, stage="winner"),
        example(created="2020-01-01T00:00:00+02:00"),
    ]
    for one in kept:
        store.add(one)

    def asked(**filters):
        return list(store.query(**filters))

    assert asked() == kept
    assert asked(newest_first=True) == kept[::-1]
    assert asked(limit=2) == kept[:2]
    assert asked(limit=0) == []
    assert asked(status="crash") == [kept[1]]
    assert asked(status=["crash", "ok"], device="ffff") == [kept[2]]
    assert asked(device=[]) == []
    assert asked(precision="c", trans="CN") == [kept[3]]
    assert asked(precision="s", trans="NC") == kept[:3] + kept[4:], "C is T on real elements"
    assert asked(version=2, stage="winner", stencil="portable") == [kept[4]]
    assert asked(config=kept[1].config.id) == [kept[1]]
    assert asked(created_before=datetime(2021, 1, 1, tzinfo=UTC)) == [kept[5]]
    assert store.count(status="ok") == 5
    with pytest.raises(ValueError, match="trans"):
        asked(trans="NX")


def test_a_query_reads_page_by_page_while_others_write(store):
    many = [example(block=block) for block in range(1000)]
    for one in many:
        store.add(one)
    read = []
    for one in store.query():
        read.append(one)
        if len(read) == 10:
            store.add(example(block=5000))
    assert read[:1000] == many


def test_summaries_count_and_name_the_winner(store):
    store.add(example())
    store.add(example(block=1, status="crash"))
    id = store.add(example(stage="winner", created="2026-11-21T00:00:00Z"))
    store.add(example(size=8, status="timeout"))
    first, second = store.summaries()
    assert (first.ok, first.failed, first.winner.id) == (2, 1, id)
    assert first.newest.startswith("2026-11-21")
    assert (second.ok, second.failed, second.winner) == (0, 1, None)
    assert second.problem == Problem(8, 8, 8, "s", Trans.N, Trans.T)
    assert store.devices() == {"a1b2c3d4e5f6": "Tiny GPU"}
    assert store.stencils() == {"portable"}


# ----------------------------------------------------------------------- pruning


def filled(store):
    store.add(example(block=1, created="2020-01-01T00:00:00Z"))
    store.add(example(block=1, created="2020-01-01T00:00:00Z", stage="winner"))
    store.add(example(block=2, stencil_version=2))
    store.add(example(block=3, device="ffff", device_name="Other"))
    store.add(example(block=9, stencil_version=3))


def test_prune_wants_a_criterion(store):
    with pytest.raises(ValueError, match="criterion"):
        store.prune()


def test_prune_by_age_keeps_winners(store):
    filled(store)
    moment = datetime(2021, 1, 1, tzinfo=UTC)
    would = store.prune(older_than=moment, dry_run=True)
    assert (would.removed, would.spared) == (1, 1)
    assert would.groups == (("Tiny GPU", "portable", 1, 1),)
    assert store.count() == 5, "a dry run removes nothing"
    done = store.prune(older_than=moment)
    assert (done.removed, done.spared) == (1, 1)
    assert store.count() == 4
    assert store.prune(older_than=moment, winners=True).removed == 1
    assert store.count() == 3


def test_prune_stale_leaves_newer_versions_alone(store):
    filled(store)
    assert store.prune(current_versions={"portable": 2}).removed == 2
    left = [one.stencil_version for one in store.query()]
    assert left == [1, 2, 3], "the winner stays, and what a newer program measured"
    assert store.prune(current_versions={}).removed == 0


def test_criteria_must_all_be_met(store):
    filled(store)
    assert set(store.devices()) == {"a1b2c3d4e5f6", "ffff"}
    pruned = store.prune(current_versions={"portable": 9}, device="ffff")
    assert pruned.groups == (("Other", "portable", 1, 1),)
    assert set(store.devices()) == {"a1b2c3d4e5f6"}, "unused rows go too"
    assert store.add(example(block=77)) == 6, "a number is never used again"
