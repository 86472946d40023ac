"""What schedule_model.py counted, as shares of the FMA pipe in the loop beside the predicted ones.

Plain reading of its file, for the benchmark itself and for the drawing of documents.
"""

from __future__ import annotations

from typing import Any

WANTED, POINTS = 10, 3.0
FMA, CYCLES = "fma_instructions_pct", "cycles"
WHEN = ("before", "after")
# What was predicted is under PREDICTED; where the model changed since, what it said then is kept.
PREDICTED, AT_FIRST = "predicted", "predicted_when_counted"
Row = dict[str, Any]


def counted_share(pair: list[dict[str, float]]) -> float:
    """Return the share of the FMA pipe in the loop alone: of the deeper run less the other."""
    (low, high) = pair
    busy = high[FMA] * high[CYCLES] - low[FMA] * low[CYCLES]
    return busy / (high[CYCLES] - low[CYCLES])


def shares(row: Row, told: str = PREDICTED) -> list[tuple[float, float]]:
    """Return predicted and counted shares in percent, before and after."""
    predicted = row.get(told, row[PREDICTED])
    return [
        (100 * predicted[when]["pipe_share"], counted_share(row["counted"][when])) for when in WHEN
    ]


def within(rows: list[Row], told: str = PREDICTED) -> tuple[int, ...]:
    """Return how many counted rows are predicted within `POINTS`, before and after."""
    found = [shares(row, told) for row in rows if "counted" in row]
    return tuple(
        sum(abs(p - c) <= POINTS for p, c in (pairs[at] for pairs in found))
        for at in range(len(WHEN))
    )
