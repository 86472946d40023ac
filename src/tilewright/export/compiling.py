"""C sources compiled by the system's compiler, a file a core at once."""

from __future__ import annotations

import os
import subprocess
import tempfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tilewright.core.build import compilers

__all__ = ["CompilerError", "link"]

# -ffp-contract=off: a product and a sum rounded once would choose other kernels.  Functions that
# are called by another one's prototype are errors, as they are to newer compilers.
_FLAGS = (
    "-std=c11", "-O2", "-fPIC", "-fvisibility=hidden", "-ffp-contract=off", "-D_GNU_SOURCE",
    "-Werror=incompatible-pointer-types",
)  # fmt: skip
_LIBRARIES = ("-ldl", "-lm", "-lpthread")

# A compiler or linker that takes longer hangs.
_SECONDS = 300


class CompilerError(RuntimeError):
    """There is no C compiler, or it fails; the message is one line."""


def link(sources: Sequence[Path], output: Path, *options: str) -> None:
    """Compile C files and link them.

    Parameters
    ----------
    sources : sequence of Path
        The files, whose names differ.
    output : Path
        A program, or a library.
    options : str
        For the compiler and the linker alike, such as ``-shared``, ``-DNAME=1``.

    Raises
    ------
    CompilerError
        See there.
    """
    found = compilers()
    if not found:
        raise CompilerError("there is no C compiler; install one, or pip install ziglang")
    command = [*found[0], *_FLAGS, *options]
    with tempfile.TemporaryDirectory(dir=output.parent) as made_in:

        def compiled(source: Path) -> str:
            made = str(Path(made_in) / f"{source.stem}.o")
            _run([*command, "-c", str(source), "-o", made])
            return made

        with ThreadPoolExecutor(os.cpu_count()) as pool:
            objects = list(pool.map(compiled, sources))
        _run([*command, *objects, "-o", str(output), *_LIBRARIES])


def _run(command: list[str]) -> None:
    done = subprocess.run(  # noqa: S603  # a compiler, no shell
        command, capture_output=True, text=True, timeout=_SECONDS, check=False
    )
    if done.returncode:
        lines = done.stderr.strip().splitlines() or ["it said nothing"]
        said = next((line for line in lines if "error" in line), lines[0])
        raise CompilerError(f"{command[0]} failed: {said}")
