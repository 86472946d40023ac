"""Lines of JSON, appended and flushed: what a later process need not do again."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any


class Log:
    """Rows of a search.

    Parameters
    ----------
    path : Path
        The file; what is in it already is read.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        lines = path.read_text().splitlines(keepends=True) if path.exists() else []
        # The last one may still be being written.
        self.rows = [json.loads(line) for line in lines if line.endswith("\n")]

    def add(self, **row: Any) -> None:
        """Append a row."""
        self.rows.append(row)
        with self.path.open("a") as file:
            file.write(json.dumps(row) + "\n")

    def of(self, kind: str) -> list[dict[str, Any]]:
        """Return the rows of a kind: device, started, tried or final."""
        return [row for row in self.rows if row["kind"] == kind]
