"""The store keeps what it was given, whatever happens to the processes that use it."""

import math
import os
import signal
import sqlite3
import subprocess
import sys
import tempfile
import textwrap
import threading
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest
from hypothesis import given

from tests.tuning.measurement_examples import example, few, measurements
from tilewright.problem import Problem, Trans
from tilewright.space.config import Config
from tilewright.tuning import database
from tilewright.tuning.measurement import DETAIL_LIMIT, Status
from tilewright.tuning.store import Store, StoreError


@pytest.fixture
def path(tmp_path):
    return tmp_path / "results.sqlite"


@pytest.fixture
def store(path):
    with Store(path) as opened:
        yield opened


# ------------------------------------------------------------------ measurement


def test_the_median_does_not_mind_the_order():
    measured = example(size=100, times=(3000, 1000, 2000))
    assert measured.median_ns == 2000
    assert measured.flops_per_second == pytest.approx(2e6 / 2e-6)


def test_without_times_a_measurement_sorts_last():
    failed = example(status="crash")
    assert failed.median_ns == math.inf
    assert failed.flops_per_second == 0


def test_what_is_not_a_number_is_infinitely_wrong():
    assert example(status="wrong-result", error=math.nan).error == math.inf


def test_a_reason_is_one_line_and_never_empty():
    assert example(status="crash", reason=" a\nb\t c ").reason == "a b c"
    assert example(status="crash", reason="").reason == "crash"


def test_the_middle_of_a_long_log_is_cut():
    log = example(status="compile-error", detail="head" + "x" * 10**6 + "tail").detail
    assert len(log) <= DETAIL_LIMIT
    assert log.startswith("head")
    assert log.endswith("tail")
    assert "left out" in log


@pytest.mark.parametrize(
    ("changes", "names"),
    [
        ({"status": "fine"}, "status"),
        ({"stage": "later"}, "stage"),
        ({"times_ns": (0,)}, "times_ns"),
        ({"times_ns": (2**63,)}, "times_ns"),
        ({"error": -1.0}, "error"),
        ({"compile_seconds": math.inf}, "compile_seconds"),
        ({"created": "2026-11-20 10:00"}, "created"),
        ({"created": "yesterday"}, "created"),
        ({"device": ""}, "device"),
        ({"device_name": "two\nlines"}, "device_name"),
        ({"backend": "a b"}, "backend"),
        ({"stencil_version": 0}, "stencil_version"),
        ({"problem": Problem(2**63, 1, 1)}, "m does not fit"),
        ({"environment": {"clock": math.nan}}, "environment"),
        ({"environment": {"driver": object()}}, "environment"),
        ({"config": Config("portable", {"block_m": 2**63})}, "block_m"),
        # A macro's value must not smuggle in another option.
        ({"config": Config("portable", {"order": "rows -I/etc"})}, "order"),
        ({"config": Config("portable", {"a b": 1})}, "a b"),
        ({"config": Config("../portable", {})}, "stencil"),
    ],
)
def test_impossible_values_are_refused_by_name(changes, names):
    with pytest.raises(ValueError, match=names) as refused:
        example(**changes)
    assert "\n" not in str(refused.value)


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
    assert store.add_all([example(), example(block=128)]) == 1
    assert store.count() == 2


def test_a_result_of_status_ok_must_have_been_timed(store):
    with pytest.raises(ValueError, match="times_ns"):
        store.add(example(times=()))
    assert store.count() == 0


def test_add_all_is_all_or_none(store):
    def broken():
        yield example()
        raise RuntimeError("the source dried up")

    with pytest.raises(RuntimeError, match="dried up"):
        store.add_all(broken())
    assert store.count() == 0
    store.add(example())
    assert store.count() == 1


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
    store.add_all(kept)

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
    store.add_all(many)
    read = []
    for one in store.query():
        read.append(one)
        if len(read) == 10:
            store.add(example(block=5000))
    assert read[:1000] == many


def test_what_was_tried_is_known_with_its_failures(store):
    store.add(example(block=1))
    store.add(example(block=2, status="timeout"))
    store.add(example(block=3, stencil_version=2))
    store.add(example(block=4, device="ffff"))
    store.add(example(block=5, size=513))
    store.add(example(block=6, problem=Problem(512, 512, 512, "s", "N", "T", lda=600)))
    tried = store.tried("a1b2c3d4e5f6", example().problem, "portable", 1)
    assert tried == {example(block=1).config.id, example(block=2).config.id}


def test_a_config_that_failed_later_is_not_started_from(store):
    question = ("a1b2c3d4e5f6", example().problem, "portable", 1)
    store.add(example(block=1))
    store.add(example(block=1, created="2026-11-21T10:00:00Z"))
    store.add(example(block=2))
    store.add(example(block=2, status="wrong-result", stage="final"))
    store.add(example(block=3, stage="winner"))
    known = store.screened(*question)
    assert [(one.config["block_m"], str(one.status)) for one in known] == [
        (1, "ok"),
        (2, "wrong-result"),
    ]
    assert known[0].created.startswith("2026-11-21")


def test_the_newest_winner_of_each_size_counts(store):
    def won(block, day, **changes):
        created = f"2026-11-{day}T00:00:00+00:00"
        return example(block=block, created=created, stage="winner", **changes)

    store.add(won(1, 20))
    store.add(won(2, 22))
    store.add(won(3, 21))
    store.add(won(4, 23, status="wrong-result"))
    store.add(won(5, 23, stencil_version=7))
    store.add(won(6, 20, size=1024))
    store.add(won(7, 20, problem=Problem(512, 512, 512, "s", "N", "N")))
    store.add(won(8, 23, device="ffff"))

    def blocks(*question, **options):
        return [one.config["block_m"] for one in store.winners(*question, **options)]

    assert blocks("a1b2c3d4e5f6", "s", "NT") == [5, 6]
    assert blocks("a1b2c3d4e5f6", "s", "NT", versions={"portable": 1}) == [2, 6]
    assert blocks("a1b2c3d4e5f6", "s", versions={"portable": 1}) == [7, 2, 6]
    assert blocks("a1b2c3d4e5f6", "s", "NT", versions={}) == []
    assert blocks("a1b2c3d4e5f6", "d", "NT") == []


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
    assert (would.removed, would.spared, would.dry_run) == (1, 1, True)
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
    pruned = store.prune(current_versions={"portable": 9}, device="ffff")
    assert pruned.groups == (("Other", "portable", 1, 1),)


def test_delete_and_what_it_leaves(store):
    filled(store)
    assert store.delete([1, 4, 99]) == 2
    assert store.devices() == {"a1b2c3d4e5f6": "Tiny GPU"}, "unused rows go too"
    assert store.add(example(block=77)) == 6, "a number is never used again"


# ------------------------------------------------------------ kills and contention

WRITER = textwrap.dedent(
    """
    import sys
    sys.path.insert(0, sys.argv[1])
    from tests.tuning.measurement_examples import example
    from tilewright.tuning.store import Store
    with Store(sys.argv[2]) as store:
        for block in range(int(sys.argv[3]), int(sys.argv[4])):
            print(store.add(example(block=block)), block, flush=True)
    """
)


def writer(path, first, last):
    command = [sys.executable, "-c", WRITER, str(Path(__file__).parents[2]), str(path)]
    return subprocess.Popen([*command, str(first), str(last)], stdout=subprocess.PIPE, text=True)


@pytest.mark.skipif(os.name != "posix", reason="needs SIGKILL")
def test_kill_minus_nine_loses_nothing_that_was_acknowledged(path):
    acknowledged = {}
    for attempt in range(4):
        with writer(path, attempt * 10**6, (attempt + 1) * 10**6) as process:
            for _ in range(25 + attempt * 40):
                id, block = process.stdout.readline().split()
                acknowledged[int(id)] = int(block)
            process.send_signal(signal.SIGKILL)
            for line in process.stdout:  # said before the kill arrived
                if line.endswith("\n"):
                    id, block = line.split()
                    acknowledged[int(id)] = int(block)
        with Store(path) as store:
            found = {one.id: one.config["block_m"] for one in store.query()}
            assert acknowledged.items() <= found.items()
            assert len(found) <= len(acknowledged) + attempt + 1, "at most one was in flight"
    with sqlite3.connect(path) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    connection.close()


def test_processes_write_at_once_to_a_store_that_none_of_them_has_made(path):
    processes = [writer(path, 100 * i, 100 * (i + 1)) for i in range(3)]
    for process in processes:
        process.communicate(timeout=60)
        assert process.returncode == 0
    with Store(path) as store:
        assert {one.config["block_m"] for one in store.query()} == set(range(300))


def test_threads_share_a_store(store):
    def add(first):
        for block in range(first, first + 50):
            store.add(example(block=block))
            store.count()

    threads = [threading.Thread(target=add, args=(100 * i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert store.count() == 200


def test_a_writer_that_does_not_end_is_one_line(path, monkeypatch):
    monkeypatch.setattr(database, "BUSY_SECONDS", 0.05)
    with Store(path) as store:
        other = sqlite3.connect(path, isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(StoreError, match="another process") as refused:
            store.add(example())
        other.close()
        assert "\n" not in str(refused.value)
        assert store.add(example()) == 1


# ------------------------------------------------------------------ refused files


def refusal(path, **options):
    with pytest.raises(StoreError) as refused, Store(path, **options):
        pass
    assert "\n" not in str(refused.value)
    assert str(path.name) in str(refused.value)
    return str(refused.value)


def test_what_is_not_a_database_is_left_as_it_is(path):
    path.write_text("my thesis")
    assert "not a store" in refusal(path)
    assert path.read_text() == "my thesis"


def test_another_programs_database_is_left_as_it_is(path):
    connection = sqlite3.connect(path)
    connection.execute("CREATE TABLE thesis (chapter)")
    connection.close()
    before = path.read_bytes()
    assert "another program" in refusal(path)
    assert path.read_bytes() == before


@pytest.mark.parametrize("keep", [17, 100, 5000])
def test_a_truncated_store_is_left_as_it_is(path, keep):
    with Store(path) as store:
        store.add_all(example(block=block) for block in range(200))
    path.write_bytes(path.read_bytes()[:keep])
    before = path.read_bytes()
    with pytest.raises(StoreError, match="damaged") as refused, Store(path) as store:
        list(store.query())
    assert "\n" not in str(refused.value)
    assert path.read_bytes() == before


def test_damage_inside_is_noticed_on_reading(path):
    with Store(path) as store:
        store.add_all(example(block=block) for block in range(500))
    content = bytearray(path.read_bytes())
    content[8192:-4096] = b"\xff" * (len(content) - 12288)
    path.write_bytes(content)
    with pytest.raises(StoreError, match="damaged"), Store(path) as store:
        list(store.query())


def test_a_newer_store_is_refused_and_not_touched(path):
    with Store(path):
        pass
    connection = sqlite3.connect(path)
    connection.execute(f"PRAGMA user_version = {database.SCHEMA_VERSION + 1}")
    connection.close()
    before = path.read_bytes()
    assert "upgrade Tilewright" in refusal(path)
    assert path.read_bytes() == before


def test_opening_to_read_writes_nothing(path):
    with Store(path) as store:
        store.add(example())
    before = path.read_bytes()
    with Store(path, create=False) as store:
        assert store.winners("a1b2c3d4e5f6", "s") == []
    assert path.read_bytes() == before


def test_missing_things(tmp_path):
    assert "no store" in refusal(tmp_path / "none", create=False)
    assert "directory" in refusal(tmp_path / "none" / "below")
    assert "not a file" in refusal(tmp_path)


def test_the_default_is_the_users_own(tmp_path, monkeypatch):
    monkeypatch.setenv("TILEWRIGHT_DATA_DIR", str(tmp_path / "data"))
    with Store() as store:
        assert store.path == tmp_path / "data" / "results.sqlite"
    (tmp_path / "data").chmod(0o777)
    with pytest.raises(StoreError, match="chmod 700"), Store():
        pass


def test_an_older_store_is_brought_up_to_date(path, monkeypatch):
    with Store(path) as store:
        store.add(example())
    scripts = {2: ["ALTER TABLE measurement ADD COLUMN note TEXT"], 3: ["SELECT 1"]}
    monkeypatch.setattr(database, "SCHEMA_VERSION", 3)
    monkeypatch.setattr(database, "_statements", scripts.__getitem__)
    with Store(path) as store:
        assert store.get(1) == example()
    connection = sqlite3.connect(path)
    assert connection.execute("PRAGMA user_version").fetchone() == (3,)
    assert connection.execute("SELECT note FROM measurement").fetchall() == [(None,)]
    connection.close()


def test_a_failed_migration_changes_nothing(path, monkeypatch):
    with Store(path) as store:
        store.add(example())
    before = path.read_bytes()
    scripts = {2: ["DROP VIEW result", "no SQL at all"]}
    monkeypatch.setattr(database, "SCHEMA_VERSION", 2)
    monkeypatch.setattr(database, "_statements", scripts.__getitem__)
    refusal(path)
    assert path.read_bytes() == before


def test_nothing_in_a_store_is_executable(path):
    with Store(path) as store:
        store.add(example(detail="x" * 100))
    connection = sqlite3.connect(path)
    tables = [
        row[0] for row in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")
    ]
    kinds = {
        kind
        for table in tables
        for (_, _, kind, *_) in connection.execute(f"PRAGMA table_info({table})")
    }
    connection.close()
    assert kinds <= {"INTEGER", "REAL", "TEXT", ""}


def test_statuses_are_the_ones_that_are_promised():
    assert set(Status) == {
        "ok",
        "compile-error",
        "wrong-result",
        "crash",
        "timeout",
        "out-of-memory",
        "launch-error",
    }
    assert replace(example(), status="crash").status is Status.CRASH
