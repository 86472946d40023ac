"""Right calls of an exported library, to be changed by tests."""

from __future__ import annotations

from typing import Any

ROWS, COLUMNS = 101, 102

# Addresses in memory that nothing reads.
A, B, C = 1 << 40, 2 << 40, 3 << 40


def plain(**changes: Any) -> list[Any]:
    """Return a right call of tw_sgemm as a list; changes are by name."""
    call = {
        "letter": "tw_sgemm", "order": COLUMNS, "transa": "N", "transb": "N",
        "m": 8, "n": 6, "k": 4, "alpha": (1, 0), "a": A, "lda": 8, "b": B, "ldb": 4,
        "beta": (0, 0), "c": C, "ldc": 8, "stream": None,
    }  # fmt: skip
    assert set(changes) <= set(call)
    return list((call | changes).values())


def nothing(status: int) -> dict[str, Any]:
    """Return what a call is answered that launches nothing."""
    return {"status": status, "copies": [], "launch": None, "second": None, "launches": []}
