"""NVIDIA's disassembler, as the reference that the decoder is compared with."""

from __future__ import annotations

import importlib.metadata
import json
import re
import shutil
import subprocess
from dataclasses import dataclass, field
from pathlib import Path

import pytest


@dataclass
class Line:
    """One instruction as nvdisasm prints it, with what its life ranges say is read and written.

    The sets are by register file, GPR, PRED and UGPR; `shown` is how many registers of a file the
    listing has columns for: those past it occur in no instruction as it reads them.
    """

    opcode: str
    operands: str
    predicate: str
    written: dict[str, set[int]] = field(default_factory=dict)
    read: dict[str, set[int]] = field(default_factory=dict)
    live: dict[str, set[int]] = field(default_factory=dict)
    shown: dict[str, int] = field(default_factory=dict)


def find() -> str:
    """Return nvdisasm's path; skip where it is not installed."""
    try:
        for path in importlib.metadata.files("nvidia-cuda-nvdisasm") or ():
            if path.name in ("nvdisasm", "nvdisasm.exe"):
                return str(path.locate())
    except importlib.metadata.PackageNotFoundError:
        pass
    found = shutil.which("nvdisasm")
    if found is None:
        pytest.skip("nvdisasm is not here: pip install nvidia-cuda-nvdisasm")
    return found


def listing(cubin: bytes, directory: Path) -> dict[str, dict[int, Line]]:
    """Return each kernel's lines by address."""
    path = directory / "kernel.cubin"
    path.write_bytes(cubin)
    functions = json.loads(_run("-json", str(path)))[1]
    lines = {
        f["function-name"]: {
            f["start"] + 16 * i: Line(x["opcode"], x.get("operands", ""), x.get("predicate", ""))
            for i, x in enumerate(f["sass-instructions"])
        }
        for f in functions
    }
    _add_life_ranges(_run("-c", "-plr", "-lrm", "narrow", str(path)), lines)
    return lines


def printed(data: bytes, directory: Path) -> dict[int, str]:
    """Return nvdisasm's text of each instruction by its address, reuse flags with it."""
    path = directory / "edited.cubin"
    path.write_bytes(data)
    found = re.findall(r"/\*([0-9a-f]{4,})\*/\s+(.*?)\s*;", _run("-c", str(path)))
    return {int(address, 16): text for address, text in found}


def _run(*arguments: str) -> str:
    done = subprocess.run([find(), *arguments], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return done.stdout


def _add_life_ranges(text: str, lines: dict[str, dict[int, Line]]) -> None:
    """Read the columns: ^ is written, v read, x both, : live; a function starts with a header."""
    name, files, spans = "", [], []
    for row in text.splitlines():
        if found := re.match(r"//-+ \.text\.(\S+)", row):
            name = found[1]
        elif found := re.search(r"// \|(.*GPR.*)\|\s*$", row):
            files = [column.strip() for column in found[1].split("|")]
        elif found := re.search(r"// \|(.*#.*)\|\s*$", row):
            spans = [(c.find("#") + 2, len(c.rstrip())) for c in found[1].split("|")]
        elif found := re.match(r"\s+/\*([0-9a-f]{4,})\*/.*// \|(.*)\|\s*$", row):
            line = lines[name].get(int(found[1], 16))
            if line is None:
                continue
            columns = found[2].split("|")
            for file, (start, end), column in zip(files, spans, columns, strict=True):
                marks = column[start:end]
                line.shown[file] = end - start
                line.written[file] = {i for i, mark in enumerate(marks) if mark in "^x"}
                line.read[file] = {i for i, mark in enumerate(marks) if mark in "vx"}
                line.live[file] = {i for i, mark in enumerate(marks) if mark in ":vx"}
