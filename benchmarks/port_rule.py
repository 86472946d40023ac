"""The rule of register ports (tilewright.sass.ports) against loops measured on an H100.

    python benchmarks/port_rule.py [FILE] [--within 0.02] [--page docs/register_ports.md]

FILE is what `tilewright microbench ports` wrote, or anything that holds its rows; `--page` puts
the table between the page's marks.  Every pattern is
made again by its name (tilewright.microbench.port_patterns), and the rule's cycles for a trip are
compared with the measured ones.  What the rule takes for granted besides ports: a scheduler stays
with a warp as long as it may, so that several warps take several times as long; with the yield
flag one warp alone is served every other cycle.  Several warps that yield are not predicted.
"""

from __future__ import annotations

import argparse
import json
import re
import statistics
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tilewright.microbench.port_patterns import TRIP, named, pattern
from tilewright.sass import Ports
from tilewright.sass.decode import decode_one

RESULT = Path(__file__).parent / "results" / "h100" / "microbench.json"
FFMA, NO_GUARD, NO_BARRIERS = 0x223, 7 << 12, 7 << 110 | 7 << 113
NOTHING = "--- ---"  # a pattern that reads nothing: a trip of it is the loop's own time


def predicted(name: str, yields: bool = False) -> int:
    """Return the rule's cycles for a trip that begins with nothing to read."""
    ports, last = Ports(), -1
    for number, i in enumerate(pattern(name)):
        operands = i.d << 16 | i.a << 24 | i.b << 32 | i.c << 64
        control = 1 << 105 | int(not yields) << 109 | i.reuse << 122
        raw = FFMA | NO_GUARD | NO_BARRIERS | operands | control
        last = ports.issue(decode_one(raw, 16 * number, 90), last + (2 if yields else 1))
    return ports.drained()


def rows_in(record: Any) -> Iterator[dict[str, Any]]:
    """Yield the experiment's rows, wherever a file holds them."""
    if isinstance(record, dict):
        if "pattern" in record and "error" not in record:
            yield record
        record = list(record.values())
    if isinstance(record, list):
        for part in record:
            yield from rows_in(part)


def family(name: str, yields: bool, warps: int) -> str:
    """Return which patterns a row is reported with."""
    if not yields:
        kind = "named patterns" if name in named() else "banks in order"
        return f"{kind}, {warps} warp{'s' * (warps > 1)} a scheduler"
    flags = "with" if any(i.reuse for i in pattern(name)) else "without"
    return f"yielding, {flags} reuse flags, 1 warp a scheduler"


def compare(rows: list[dict[str, Any]]) -> dict[str, list[tuple[float, str]]]:
    """Return relative errors and names by family; the loop's own time is taken from the rows."""
    own = [
        row["cycles_per_trip"]
        for row in rows
        if row["pattern"] == NOTHING and row["warps_per_scheduler"] == 1 and not row["yields"]
    ]
    if not own:
        raise SystemExit(f"rows: none is {NOTHING!r}, which tells the loop's own time; measure it")
    overhead = statistics.median(own) - TRIP
    found: dict[str, list[tuple[float, str]]] = {}
    for row in rows:
        name, yields, warps = row["pattern"], bool(row["yields"]), row["warps_per_scheduler"]
        if yields and warps > 1:
            continue
        # Where there are several warps, one branches while another is served.
        cycles = warps * predicted(name, yields) + (overhead if warps == 1 else 0)
        error = cycles / row["cycles_per_trip"] - 1
        found.setdefault(family(name, yields, warps), []).append((error, name))
    return found


def table(found: dict[str, list[tuple[float, str]]], within: float) -> str:
    """Return how many patterns of each family are predicted closely, and the worst of each."""
    lines = [f"{'patterns':54} {'within':>6} {f'{within:.0%}':>5}  worst"]
    still = [errors for kind, errors in found.items() if not kind.startswith("yielding")]
    groups = {
        **found,
        "all without yield flags": [one for errors in still for one in errors],
        "all that are predicted": [one for errors in found.values() for one in errors],
    }
    for kind, errors in groups.items():
        near = sum(abs(error) <= within for error, _ in errors)
        worst = max((abs(error) for error, _ in errors), default=0.0)
        lines.append(f"{kind:54} {near:6} / {len(errors):4} {worst:6.1%}")
    return "\n".join(lines)


def page_with(text: str, found: str) -> str:
    """Return the page with its table replaced."""
    begin, end = "<!-- port_rule: begin -->\n", "\n<!-- port_rule: end -->"
    block = f"{begin}```\n{found}\n```{end}"
    return re.sub(f"{begin}.*?{end}", lambda _: block, text, flags=re.S)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("file", type=Path, nargs="?", default=RESULT)
    parser.add_argument("--within", type=float, default=0.02, help="share that is close enough")
    parser.add_argument("--show", type=int, default=5, help="worst patterns listed of each kind")
    parser.add_argument("--page", type=Path, help="page whose table is replaced")
    given = parser.parse_args()
    rows = list(rows_in(json.loads(given.file.read_text())))
    found = compare(rows)
    for errors in found.values():
        errors.sort(key=lambda one: -abs(one[0]))
        for error, name in errors[: given.show]:
            if abs(error) > given.within:
                print(f"{error:+6.1%}  {name}")
    lines = table(found, given.within)
    print(lines)
    print(f"{len(rows) - sum(map(len, found.values()))} of {len(rows)} rows are not predicted")
    if given.page:
        given.page.write_text(page_with(given.page.read_text(), lines))


if __name__ == "__main__":
    main()
