"""The store's file: opening, refusing and migrating it.

Only a file that is ours, whole and not newer than this program is ever written to.
"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.resources import files
from pathlib import Path

from tilewright.paths import UnsafeDirectoryError, data_dir

__all__ = ["SCHEMA_VERSION", "StoreError", "connect", "default_path", "translated"]

# "tlwr": tells our file from any other program's SQLite database.
APPLICATION_ID = 0x746C7772
SCHEMA_VERSION = 1
BUSY_SECONDS = 30.0


class StoreError(RuntimeError):
    """The store cannot be used; the message is one line that says what to do."""


@contextmanager
def translated(path: Path) -> Iterator[None]:
    """Turn SQLite's errors into one line that names the file."""
    try:
        yield
    except sqlite3.OperationalError as problem:
        text = str(problem)
        if "locked" in text or "busy" in text:
            text = f"another process has been writing for {BUSY_SECONDS:.0f} s; try again"
        elif "full" in text:
            text = f"{text}; make room, or name another folder in TILEWRIGHT_DATA_DIR"
        elif "malformed" in text or "decode" in text:
            text = f"it is damaged ({text}); move it away or put a copy back"
        raise StoreError(f"store {path}: {text}") from problem
    except (sqlite3.DatabaseError, UnicodeDecodeError) as problem:
        raise StoreError(
            f"store {path} is damaged ({problem}); move it away or put a copy back"
        ) from problem


def connect(path: Path, create: bool) -> sqlite3.Connection:
    """Open a store's file, made or brought up to date if need be.

    Raises
    ------
    StoreError
        If the file is missing and `create` is false, is no store of ours, is
        damaged, or was written by a newer version of this program.
    """
    _check_file(path, create)
    with translated(path):
        connection = sqlite3.connect(
            path, timeout=BUSY_SECONDS, isolation_level=None, check_same_thread=False
        )
        try:
            connection.row_factory = sqlite3.Row
            _check_ours(connection, path)
            _configure(connection)
            _migrate(connection)
        except BaseException:
            connection.close()
            raise
    return connection


def _check_file(path: Path, create: bool) -> None:
    """Refuse what SQLite would overwrite or misread, before SQLite sees it."""
    try:
        if not path.exists():
            if not create:
                raise StoreError(f"there is no store at {path}; give another path")
            if not path.parent.is_dir():
                raise StoreError(f"store {path}: its directory does not exist; create it first")
            return
        if not path.is_file():
            raise StoreError(f"store {path} is not a file; give another path")
        with path.open("rb") as file:
            head = file.read(16)
    except OSError as problem:
        raise StoreError(f"store {path} cannot be read: {problem.strerror}") from None
    # An empty file becomes a store where one may be made; who only reads leaves it alone.
    if (head or not create) and head != b"SQLite format 3\0":
        raise StoreError(f"{path} is not a store; give another path or move the file away")


def _check_ours(connection: sqlite3.Connection, path: Path) -> None:
    """Refuse other programs' databases and newer versions of our own."""
    # One transaction: another process may be making the file at this moment.
    connection.execute("BEGIN")
    owner = connection.execute("PRAGMA application_id").fetchone()[0]
    version = connection.execute("PRAGMA user_version").fetchone()[0]
    objects = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]
    connection.execute("COMMIT")
    if owner != APPLICATION_ID and (owner or version or objects):
        raise StoreError(f"{path} is another program's database; give another path")
    if version > SCHEMA_VERSION:
        raise StoreError(
            f"store {path} has format {version}, this version of Tilewright reads up to "
            f"{SCHEMA_VERSION}; upgrade Tilewright or give another path"
        )


def _configure(connection: sqlite3.Connection) -> None:
    """Set what holds for one connection, and the journal of the file."""
    connection.execute("PRAGMA foreign_keys = ON")
    # Lets prune give space back.  On a file that has tables this would be a write.
    if connection.execute("PRAGMA user_version").fetchone()[0] == 0:
        connection.execute("PRAGMA auto_vacuum = INCREMENTAL")
    # With a write-ahead log this survives a kill of the process at any moment; a
    # power cut may cost the last commits, never the file.  FULL would wait for the
    # disk once a candidate.
    connection.execute("PRAGMA synchronous = NORMAL")
    # Two processes that switch a new file at once do not wait for each other.
    deadline = time.monotonic() + BUSY_SECONDS
    while True:
        try:
            connection.execute("PRAGMA journal_mode = WAL").fetchone()
            return
        except sqlite3.OperationalError as problem:
            if "locked" not in str(problem) or time.monotonic() > deadline:
                raise
            time.sleep(0.01)


def _migrate(connection: sqlite3.Connection) -> None:
    """Bring the file to this program's format, one numbered script after another."""
    if connection.execute("PRAGMA user_version").fetchone()[0] == SCHEMA_VERSION:
        return
    connection.execute("BEGIN IMMEDIATE")
    try:
        # Read again: another process may have migrated while this one waited.
        version = connection.execute("PRAGMA user_version").fetchone()[0]
        for number in range(version + 1, SCHEMA_VERSION + 1):
            for statement in _statements(number):
                connection.execute(statement)
            connection.execute(f"PRAGMA user_version = {number}")
        connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


def _statements(number: int) -> Iterator[str]:
    """Yield the statements of a migration; executescript would commit before it."""
    script = files("tilewright.tuning").joinpath(f"store_schema/{number:04}.sql")
    statement = ""
    for line in script.read_text(encoding="utf-8").splitlines(keepends=True):
        statement += line
        if sqlite3.complete_statement(statement):
            yield statement
            statement = ""


def default_path() -> Path:
    """Return the user's own store, in the data directory, which is made if missing."""
    try:
        return data_dir(to_write=True) / "results.sqlite"
    except UnsafeDirectoryError as problem:
        raise StoreError(str(problem)) from None
