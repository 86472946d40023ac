"""The core as a shared library: from the package, from the user's cache, or compiled once."""

from __future__ import annotations

import hashlib
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from tilewright.paths import MAKING, cache_dir, sweep

__all__ = ["CoreError", "compile_core", "library_path", "packaged_name", "sources"]

# -ffp-contract=off: every machine rounds alike, so that every caller chooses alike.
_FLAGS = (
    "-std=c11", "-O2", "-fPIC", "-shared", "-fvisibility=hidden", "-ffp-contract=off",
    "-D_GNU_SOURCE", '-DTILEWRIGHT_API=__attribute__((visibility("default")))',
)  # fmt: skip
_LIBRARIES = ("-lm", "-ldl", "-lpthread")

# A second or two on any machine; a compiler that hangs must not hang the caller.
_SECONDS = 120

_DIGEST_BYTES = hashlib.sha256().digest_size


class CoreError(RuntimeError):
    """There is no core, and none can be compiled; the message is one line that says what to do."""


def sources() -> dict[str, bytes]:
    """Return the source files of the core by name, headers included."""
    folder = Path(__file__).with_name("native")
    found = (one for one in folder.iterdir() if one.name.endswith((".c", ".h")))
    return {one.name: one.read_bytes() for one in sorted(found, key=lambda one: one.name)}


def _identity(contents: dict[str, bytes]) -> str:
    import platform

    whole = hashlib.sha256(repr((_FLAGS, platform.machine(), sorted(contents.items()))).encode())
    return whole.hexdigest()[:16]


def packaged_name() -> str:
    """Return what the package's own library is called: other sources have another name."""
    return f"libtilewright_core-{_identity(sources())}.so"


def _packaged() -> Path | None:
    """Return the package's own library; in a clone, whose sources change, that of these."""
    folder = Path(__file__).parent
    if folder.parents[2].joinpath("pyproject.toml").is_file():
        made = folder / packaged_name()
        return made if made.is_file() else None
    return next(folder.glob("libtilewright_core-*.so"), None)


def library_path() -> Path:
    """Return the library's file, compiled from the package's sources if there is none yet.

    Raises
    ------
    CoreError
        If there is no compiler, or it fails.
    OSError
        If the cache directory cannot be used.
    """
    packaged = _packaged()
    if packaged is not None:
        return packaged
    contents = sources()
    made = cache_dir() / f"core-{_identity(contents)}.so"
    if not _is_whole(made):
        compile_core(made, contents)
    return made


def _is_whole(path: Path) -> bool:
    """Whether a library is there, and what was compiled: loading a damaged one ends the process."""
    try:
        text = path.read_bytes()
    except OSError:
        return False
    return hashlib.sha256(text[:-_DIGEST_BYTES]).digest() == text[-_DIGEST_BYTES:]


def compilers() -> list[list[str]]:
    """Return the commands of C compilers that are here, the first to be tried first."""
    import importlib.util
    import shutil

    found = [[named] for named in (os.environ.get("CC", ""), "cc", "gcc", "clang") if named]
    known = [[*command] for command in found if shutil.which(command[0])]
    if importlib.util.find_spec("ziglang") is not None:
        known.append([sys.executable, "-m", "ziglang", "cc"])
    return known


def compile_core(
    target: Path, contents: dict[str, bytes] | None = None, command: Sequence[str] = ()
) -> None:
    """Compile the core into a file, which appears whole or not at all.

    Parameters
    ----------
    target : Path
        The library.
    contents : dict, optional
        As of `sources`.
    command : sequence of str
        A compiler with its options; by default each that is here is tried.

    Raises
    ------
    CoreError
        If there is no compiler, or none succeeds.
    """
    # Imported where something is compiled: most never need them.
    import tempfile

    contents = sources() if contents is None else contents
    said = "there is no C compiler"
    sweep(target.parent)
    with tempfile.TemporaryDirectory(dir=target.parent, prefix=MAKING) as made_in:
        folder = Path(made_in)
        for name, content in contents.items():
            (folder / name).write_bytes(content)
        made = folder / "core.so"
        parts = sorted(one for one in contents if one.endswith(".c"))
        for compiler in [list(command)] if command else compilers():
            said = _compiled([*compiler, *_FLAGS, *parts, "-o", made.name, *_LIBRARIES], folder)
            if not said:
                digest = hashlib.sha256(made.read_bytes()).digest()
                with made.open("ab") as file:  # behind all that a loader looks at
                    file.write(digest)
                os.replace(made, target)
                return
            said = f"{compiler[0]} failed: {said}"
    raise CoreError(
        f"tilewright's core cannot be compiled ({said}); install a C compiler, pip install"
        " ziglang, or install a wheel of tilewright, which has it"
    )


def _compiled(command: list[str], folder: Path) -> str:
    """Run a compiler; return nothing, or the first line of what is wrong."""
    import subprocess

    try:
        ran = subprocess.run(  # noqa: S603
            command, cwd=folder, capture_output=True, text=True, timeout=_SECONDS, check=False
        )
    except subprocess.TimeoutExpired:
        return f"it took more than {_SECONDS} s"
    said = (ran.stderr.strip().splitlines() or ["no message"])[0]
    return said if ran.returncode else ""
