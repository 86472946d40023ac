"""Kills, contention, damage: what is stored stays stored, and other files stay as they are."""

import os
import signal
import sqlite3
import subprocess
import sys
import textwrap
import threading
from pathlib import Path

import pytest

from tests.tuning.measurement_examples import example
from tilewright.tuning import database
from tilewright.tuning.store import Store, StoreError


@pytest.fixture
def path(tmp_path):
    return tmp_path / "results.sqlite"


@pytest.fixture
def store(path):
    with Store(path) as opened:
        yield opened


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
        store.add_imported(example(block=block) for block in range(200))
    path.write_bytes(path.read_bytes()[:keep])
    before = path.read_bytes()
    with pytest.raises(StoreError, match="damaged") as refused, Store(path) as store:
        list(store.query())
    assert "\n" not in str(refused.value)
    assert path.read_bytes() == before


def test_damage_inside_is_noticed_on_reading(path):
    with Store(path) as store:
        store.add_imported(example(block=block) for block in range(500))
    content = bytearray(path.read_bytes())
    content[8192:-4096] = b"\xff" * (len(content) - 12288)
    path.write_bytes(content)
    with pytest.raises(StoreError, match="damaged"), Store(path) as store:
        list(store.query())


@pytest.mark.parametrize(
    "damage",
    [
        "UPDATE config SET parameters = ' block_k'",
        "UPDATE config SET parameters = '[]'",
        """UPDATE config SET parameters = '{"block_k": 1e999}'""",
        "UPDATE measurement SET status = 'weird'",
        "UPDATE measurement SET times_ns = 'x'",
        "UPDATE measurement SET reason = CAST(x'cfcf' AS TEXT)",
    ],
)
def test_damage_in_a_row_is_noticed_on_reading(path, damage):
    with Store(path) as store:
        store.add(example())
    connection = sqlite3.connect(path)
    connection.execute("PRAGMA ignore_check_constraints = ON")
    assert connection.execute(damage).rowcount > 0
    connection.commit()
    connection.close()
    with Store(path) as store, pytest.raises(StoreError, match=r"store .*is damaged") as refused:
        list(store.query())
    assert "\n" not in str(refused.value)


def test_a_newer_store_is_refused_and_not_touched(path):
    with Store(path):
        pass
    connection = sqlite3.connect(path)
    connection.execute(f"PRAGMA user_version = {database.SCHEMA_VERSION + 1}")
    connection.close()
    before = path.read_bytes()
    assert "upgrade Tilewright" in refusal(path)
    assert path.read_bytes() == before


def test_somebodys_empty_file_is_made_a_store_only_where_one_may_be_made(path):
    path.touch()
    with pytest.raises(StoreError, match="not a store"):
        Store(path, create=False)
    assert path.stat().st_size == 0
    Store(path).close()
    assert path.stat().st_size > 0


def test_opening_to_read_writes_nothing(path):
    with Store(path) as store:
        store.add(example())
    before = path.read_bytes()
    with Store(path, create=False) as store:
        assert list(store.query(stage="winner")) == []
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
