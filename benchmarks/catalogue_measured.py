r"""Put what microbenchmarks measured into a device's file of the catalogue.

    tilewright microbench --device cuda:0 --seconds 130 -o benchmarks/results/h100/microbench.json
    python benchmarks/catalogue_measured.py benchmarks/results/h100/microbench.json \
        src/tilewright/hardware/catalogue/h100.toml

Only what the file leaves unknown is added, and numbers of an earlier measurement are replaced:
a published limit stays a limit.  ``--replace NAME`` replaces a published number too, and says so
in its source.  The table of mixes is written anew.  Comments and other lines stay as they are.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
import tempfile
from pathlib import Path

from tilewright.hardware import read_device
from tilewright.microbench.probe import (
    measured_mixes,
    measured_numbers,
    mix_lines,
    number_line,
)
from tilewright.paths import write_atomically

SOURCE = "measured"


def merged(text, device, document, where, replace=()):
    """Return a catalogue file's text with measured numbers in it.

    Parameters
    ----------
    text : str
        The file.
    device : CatalogueDevice
        What it says.
    document : dict
        A file of ``tilewright microbench -o``.
    where : str
        That file's name, for the source.
    replace : collection of str
        Published numbers to replace.
    """
    about = document["environment"]
    source = f"{where}, tilewright {about['tilewright']}, {about['date'][:10]}"
    head, mixes = split(text)
    own = re.compile(rf'source = "{SOURCE}\b')
    lines = [line for line in head if not own.search(line) and not line.startswith(f"{SOURCE} =")]
    lines.insert(lines.index("[sources]") + 1, f"{SOURCE} = {json.dumps(source)}")
    kept = {name.strip(): i for i, line in enumerate(lines) if (name := line.partition("=")[0])}
    for one in measured_numbers(document["experiments"], device):
        if one.name not in kept:
            lines.append(number_line(one.name, one.value, f"{SOURCE}: {one.detail}"))
        elif one.name in replace:
            old = device.quantities[one.name]
            detail = f"{one.detail}; {old.source}: {old.value:g}"
            lines[kept[one.name]] = number_line(one.name, one.value, f"{SOURCE}: {detail}")
    new = measured_mixes(document["experiments"])
    for mix in new:
        lines += ["", *mix_lines(mix)]
    return "\n".join([*lines, *([] if new else mixes)]) + "\n"


def split(text):
    """Return the lines before the table of mixes, and those from there on."""
    lines = text.rstrip("\n").split("\n")
    first = next((i for i, line in enumerate(lines) if line == "[[mixes]]"), len(lines))
    head, rest = lines[:first], lines[first:]
    while head and not head[-1]:
        head.pop()
    return head, ["", *rest] if rest else []


def main(arguments):
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("results", type=Path, help="JSON of tilewright microbench -o")
    parser.add_argument("catalogue", type=Path, help="TOML file to change")
    parser.add_argument("--replace", action="append", default=[], metavar="NAME")
    given = parser.parse_args(arguments)
    document = json.loads(given.results.read_text())
    before = read_device(given.catalogue)
    text = merged(given.catalogue.read_text(), before, document, given.results, given.replace)
    with tempfile.TemporaryDirectory() as folder:  # refused here, before anything is replaced
        copy = Path(folder) / given.catalogue.name
        copy.write_text(text)
        after = read_device(copy)
    write_atomically(given.catalogue, text.encode())
    for name, quantity in after.quantities.items():
        if before.quantities.get(name) != quantity:
            print(f"{name} = {quantity.value:g} {quantity.unit}  ({quantity.source})")
    print(f"{len(after.mixes)} mixes")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
