"""Libraries built from kernel sets by the system's C compiler, and callers of them."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tilewright.backend.cubin import Cubin
from tilewright.export import KernelSet, collect, kernel_set
from tilewright.export.c_library import c_library
from tilewright.export.target import Target

HERE = Path(__file__).parent
ROOT = HERE.parent.parent
WARNINGS = ("-std=c11", "-Wall", "-Wextra", "-Wpedantic", "-Wconversion", "-Werror")
ARITHMETIC = "-ffp-contract=off"
COMPILER = next((found for name in ("cc", "gcc", "clang") if (found := shutil.which(name))), "")
needs_c = pytest.mark.skipif(not COMPILER, reason="needs a C compiler: cc, gcc or clang")

# As fake_cuda.c has it.
_NAME_BYTES = 96


def run(*command: str | Path, **options: Any) -> str:
    """Run a command that has to succeed; return what it printed."""
    done = subprocess.run(
        [str(word) for word in command], capture_output=True, text=True, timeout=250, **options
    )
    assert done.returncode == 0, f"{command[0]}: {done.stdout}\n{done.stderr}"
    return done.stdout


def no_cubin(source: Any, arch: str, cache: Any) -> Cubin:
    """Stand in for the compiler: the source's identity in the place of machine code."""
    return Cubin(source.identity.encode(), "", {}, arch)


def pretended(monkeypatch: pytest.MonkeyPatch, target: Target, variants: Any) -> KernelSet:
    """Return a kernel set of which nothing was compiled."""
    monkeypatch.setattr(kernel_set, "arranged_cubin", no_cubin)
    monkeypatch.setattr(kernel_set, "nvrtc_version", lambda: "0.0")
    return collect(target, variants)


def named(kernels: KernelSet) -> KernelSet:
    """Return a kernel set with what fake_cuda.c wants in the place of machine code."""
    by = {code: one.geometry for one in kernels.kernels.values() for code in one.codes.values()}
    codes = {}
    for name, one in kernels.codes.items():
        image = name.encode().ljust(_NAME_BYTES, b"\0")
        maps = 2 * by[name].tma if name in by else 0
        in_turn = "_batched" in name and by[name].persistent
        image += bytes([maps, one.code.part_bytes > 0, in_turn])
        codes[name] = replace(one, cubin=image)
    return replace(kernels, codes=codes)


def written(kernels: KernelSet, directory: Path) -> Path:
    """Write a library's sources without a manifest, which wants real cubins."""
    directory.mkdir()
    for name, data in c_library(kernels).items():
        (directory / name).write_bytes(data)
    return directory


def build_fake(directory: Path, name: str = "libcuda.so.1") -> Path:
    """Build what stands in for NVIDIA's driver, where it has that name."""
    fake = directory / name
    command = (COMPILER, *WARNINGS, "-O1", "-g", "-shared", "-fPIC", f"-Wl,-soname,{name}")
    run(*command, HERE / "fake_cuda.c", "-o", fake, "-lpthread")
    return fake


def build_library(sources: Path, output: Path) -> Path:
    """Build a library's sources as one shared object, where possible with all arithmetic watched.

    Where C leaves a behaviour undefined, an overflow or a division by zero say, the process then
    dies.
    """
    files = sorted(sources.glob("*.c"))
    flags = (*WARNINGS, ARITHMETIC, "-O1", "-shared", "-fPIC", "-fvisibility=hidden")
    command = [COMPILER, *flags, *files, "-o", output, "-ldl", "-lm", "-lpthread"]
    watched = (*command, "-fsanitize=undefined", "-fno-sanitize-recover=undefined")
    if subprocess.run(watched, capture_output=True, timeout=250).returncode != 0:
        run(*command)
    return output


def build_choosing(sources: Path, output: Path, *flags: str) -> Path:
    """Build what chooses alone: no driver, every function visible."""
    names = ("choose", "geometry", "model", "ways")
    files: Iterable[Path] = (
        *(sources / f"{name}.c" for name in names),
        sources / "kernels.c",
        *sorted(sources.glob("image_*.c")),
    )
    run(COMPILER, *WARNINGS, ARITHMETIC, "-O2", "-shared", "-fPIC", *flags, *files, "-o", output,
        "-lm")  # fmt: skip
    return output


class Caller:
    """`caller.py` in a process of its own: ``caller("gemm", ...)``."""

    def __init__(self, library: Path, fake: Path) -> None:
        self.fake = fake
        self._process = subprocess.Popen(
            [sys.executable, HERE / "caller.py", library, fake],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "LD_LIBRARY_PATH": str(fake.parent)},
        )

    @property
    def process(self) -> int:
        """Its number."""
        return self._process.pid

    def __call__(self, name: str, *arguments: Any) -> Any:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps([name, *arguments]) + "\n")
        self._process.stdin.flush()
        answer = self._process.stdout.readline()
        assert answer, "the library's process died"
        return json.loads(answer)

    def close(self) -> None:
        """End the process."""
        self._process.communicate(timeout=60)
        assert self._process.returncode == 0
