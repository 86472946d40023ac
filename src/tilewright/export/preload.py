"""A library that answers in cuBLAS's and BLAS's place, for programs that are not changed."""

from __future__ import annotations

import hashlib
import os
import tempfile
from collections.abc import Callable
from importlib.resources import files
from pathlib import Path

from tilewright.export.c_library import c_library
from tilewright.export.compiling import link
from tilewright.export.kernel_set import collect
from tilewright.export.target import find_target
from tilewright.export.variants import variants_of
from tilewright.paths import MAKING, cache_dir, sweep

__all__ = ["answering_sources", "preloaded_library"]

_FILES = {
    "tilewright.core": ("staging.c", "staging.h"),
    "tilewright.export": (
        "tilewright_bias.c", "tilewright_bias.h", "tilewright_blas.c", "tilewright_cublas.c",
        "tilewright_cublas.h", "tilewright_cublas_lt.c", "tilewright_cublas_names.c",
        "tilewright_host.c", "tilewright_host.h", "tilewright_log.c", "tilewright_log.h",
        "tilewright_plans.c",
    ),
}  # fmt: skip


def answering_sources() -> dict[str, bytes]:
    """Return the files that have other libraries' names, to be compiled with an exported one."""
    return {
        name: files(package).joinpath("native", name).read_bytes()
        for package, names in _FILES.items()
        for name in names
    }


def preloaded_library(
    device: str | None = None, observer: Callable[[int, int], None] = lambda done, of: None
) -> Path:
    """Return ``libtilewright_blas.so`` with all of a device's kernels, compiled if it is new.

    It lies in the cache directory, which is the user's own, named by what it was compiled from.

    Parameters
    ----------
    device : str, optional
        As of `tilewright.export.find_target`.
    observer : callable
        As of `tilewright.export.collect`.

    Raises
    ------
    ValueError
        If nothing answers to that name, or it is no CUDA device.
    CompilerError
        If there is no C compiler, or it fails.
    OSError
        If the cache directory cannot be used.
    """
    kernels = collect(find_target(device), variants_of("all", "all"), observer=observer)
    sources = c_library(kernels) | answering_sources()
    digest = hashlib.sha256()
    for name, text in sorted(sources.items()):
        digest.update(f"{name} {len(text)} ".encode() + text)
    made = cache_dir() / f"libtilewright_blas-{digest.hexdigest()[:16]}.so"
    if made.is_file():
        return made
    sweep(made.parent)
    with tempfile.TemporaryDirectory(dir=made.parent, prefix=MAKING) as folder:
        paths = [Path(folder) / name for name in sources]
        for path, text in zip(paths, sources.values(), strict=True):
            path.write_bytes(text)
        whole = Path(folder) / made.name
        link([path for path in paths if path.suffix == ".c"], whole, "-shared")
        os.replace(whole, made)
    return made
