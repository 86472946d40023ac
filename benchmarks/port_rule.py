"""The rule of register ports (tilewright.sass.ports) against loops measured on an H100.

    python benchmarks/port_rule.py [FILE]

Each pattern names the banks that the operands of consecutive FFMA lie in; its registers are all
different.  The rule's cycles for a trip of 512 are compared with the measured ones.
"""

from __future__ import annotations

import argparse
import itertools
import json
from pathlib import Path

from tilewright.sass import Ports
from tilewright.sass.decode import decode_one

RESULT = Path(__file__).parent / "results" / "h100" / "port_rule.json"
FFMA, RZ = 0x223, 255
# Registers of the compiled loop that a pattern may name.
BANKS = {"E": range(34, 118, 2), "O": range(35, 119, 2)}
TRIP = 512


def instructions(pattern: str):
    """Return a trip's FFMA, as the measured loop had them."""
    registers = {bank: itertools.cycle(names) for bank, names in BANKS.items()}
    kinds = pattern.split()
    made = []
    for kind in itertools.islice(itertools.cycle(kinds), TRIP // len(kinds) * len(kinds)):
        a, b, c = (next(registers[bank]) if bank in registers else RZ for bank in kind)
        barriers = 7 << 110 | 7 << 113
        raw = FFMA | 7 << 12 | RZ << 16 | a << 24 | b << 32 | c << 64 | 1 << 105 | 1 << 109
        made.append(decode_one(raw | barriers, 16 * len(made), 90))
    return made


def predicted(pattern: str) -> int:
    """Return the rule's cycles for a trip that begins with nothing to read."""
    ports, last = Ports(), -1
    made = instructions(pattern)
    for instruction in made:
        last = ports.issue(instruction, last + 1)
    # What the template had behind the last whole period takes a cycle each.
    return ports.drained() + TRIP - len(made)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("file", type=Path, nargs="?", default=RESULT)
    record = json.loads(parser.parse_args().file.read_text())
    off = []
    for pattern, cycles in record["patterns"]:
        error = (predicted(pattern) + record["overhead"]) / cycles - 1
        if abs(error) > 0.02:
            off.append((error, pattern))
    for error, pattern in sorted(off, key=lambda one: -abs(one[0])):
        print(f"{error:+6.1%}  {pattern}")
    count = len(record["patterns"])
    print(f"{count - len(off)} of {count} patterns within 2 %")


if __name__ == "__main__":
    main()
