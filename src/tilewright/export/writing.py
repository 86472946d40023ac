"""Writing a kernel set: one folder a format, and a manifest that says what is in them."""

from __future__ import annotations

import contextlib
import hashlib
import json
import math
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from tilewright.backend import GemmCall, Operand
from tilewright.export.c_library import c_library
from tilewright.export.fatbin import fatbin_of
from tilewright.export.kernel_set import ExportedCode, ExportedKernel, KernelSet
from tilewright.export.target import LETTERS
from tilewright.paths import write_atomically
from tilewright.portfolio.kernel import geometry_to_json
from tilewright.portfolio.model import TERMS
from tilewright.sass import read_cubin
from tilewright.stencil import TensorMap, Variant, stencil
from tilewright.stencil.wgmma import Wgmma
from tilewright.version import VERSION

__all__ = ["FORMATS", "MANIFEST", "check", "formats_of", "write"]

FORMATS = ("cubin", "fatbin", "c")
MANIFEST = "manifest.json"

# Raised when a field of the manifest changes its meaning.
_FORMAT = 2

# What kernels take (tilewright.stencil.base) that name no arguments of their own; reals are of the
# sums' type.  Behind these come the tensor maps of a kernel with "tma" in its geometry, then the
# workspace where part_bytes > 0.
_ARGUMENTS = (
    "int64 m", "int64 n", "int64 k",
    "real alpha_re", "real alpha_im",
    "pointer a", "int64 offset_a", "int64 lda",
    "pointer b", "int64 offset_b", "int64 ldb",
    "real beta_re", "real beta_im",
    "pointer c", "int64 offset_c", "int64 ldc",
)  # fmt: skip


# What kernels of tensor cores take (tilewright.stencil.wgmma.call), and the workspace behind it.
_OF_TENSOR_CORES = (
    "int64 m", "int64 n", "int64 k", "sum alpha", "map a", "map b", "sum beta", "pointer c",
    "int64 ldc", "pointer null", "pointer null", "pointer null", "int32 0",
)  # fmt: skip


def write(kernels: KernelSet, directory: str | Path, formats: Sequence[str] = FORMATS) -> Path:
    """Write a kernel set and return its manifest's path.

    Every file appears whole or not at all, the manifest last: a directory with a manifest that
    is not ``unfinished`` holds everything that it names.  An earlier export is replaced, also
    one that was interrupted.

    Parameters
    ----------
    kernels : KernelSet
        What to write.
    directory : path-like
        A new or empty directory, or one that an earlier export was written to.
    formats : sequence of str
        Any of `FORMATS`.

    Raises
    ------
    ValueError
        If a format is unknown, or the directory holds somebody else's files.
    OSError
        If something cannot be written.
    """
    earlier = check(directory, formats)
    root = Path(directory)
    made = _files(kernels, formats)
    root.mkdir(parents=True, exist_ok=True)
    begun = {"format": _FORMAT, "unfinished": True, "files": dict.fromkeys({*earlier, *made}, "")}
    write_atomically(root / MANIFEST, (json.dumps(begun, indent=1) + "\n").encode())
    for name, data in made.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(path, data)
    for name in earlier - set(made):
        (root / name).unlink(missing_ok=True)
        with contextlib.suppress(OSError):  # a folder goes with its last file
            (root / name).parent.rmdir()
    manifest = json.dumps(_manifest(kernels, formats, made), indent=1) + "\n"
    write_atomically(root / MANIFEST, manifest.encode())
    return root / MANIFEST


def formats_of(variants: Iterable[Variant], asked: Sequence[str] | None = None) -> tuple[str, ...]:
    """Return the formats that are asked for, or all that hold kernels of some variants.

    Raises
    ------
    ValueError
        If the C library is asked for of other precisions than s, d, c and z.
    """
    others = [x.precision.letter for x in variants if x.precision.letter not in LETTERS]
    if asked is None:
        return FORMATS[:2] if others else FORMATS
    if others and "c" in asked:
        raise ValueError(f"format='c' has no precision={others[0]}; use cubin or fatbin")
    return tuple(asked)


def check(directory: str | Path, formats: Sequence[str]) -> set[str]:
    """Refuse what `write` would refuse, before anything is compiled; see there.

    Returns
    -------
    set of str
        Files of an earlier export in the directory.
    """
    unknown = [one for one in formats if one not in FORMATS]
    if unknown or not formats:
        named = unknown[0] if unknown else ""
        raise ValueError(f"format={named!r} is unknown; use one of {', '.join(FORMATS)}")
    root = Path(directory)
    if not root.exists() or (root.is_dir() and not any(root.iterdir())):
        return set()
    if not root.is_dir():
        raise ValueError(f"output={str(root)!r} is not a directory; name another")
    try:
        found = json.loads((root / MANIFEST).read_bytes())["files"]
        names = {str(name) for name in found}
    except (OSError, ValueError, KeyError, TypeError):
        raise ValueError(
            f"output={str(root)!r} is not empty and no earlier export; name a new directory"
        ) from None
    # A manifest that somebody wrote must not have files elsewhere removed.
    return {name for name in names if _is_ours(name)}


def _is_ours(name: str) -> bool:
    folder, slash, file = name.partition("/")
    return bool(slash) and folder in FORMATS and "/" not in file and file not in ("", ".", "..")


def _files(kernels: KernelSet, formats: Sequence[str]) -> dict[str, bytes]:
    """Return every file but the manifest, by path."""
    made: dict[str, bytes] = {}
    for name, code in kernels.codes.items():
        if "cubin" in formats:
            made[f"cubin/{name}.cubin"] = code.cubin
        if "fatbin" in formats:
            made[f"fatbin/{name}.fatbin"] = fatbin_of(code.cubin, kernels.target.arch)
    if "c" in formats:
        made |= {f"c/{name}": data for name, data in c_library(kernels).items()}
    return made


def _manifest(kernels: KernelSet, formats: Sequence[str], made: dict[str, bytes]) -> dict[str, Any]:
    target = kernels.target
    return {
        "format": _FORMAT,
        "tilewright": VERSION,
        "architecture": target.arch,
        "device": target.name,
        "formats": sorted(set(formats)),
        "arguments": list(_ARGUMENTS),
        "terms": list(TERMS),
        "variants": {
            str(variant): {
                "kernels": [one.name for one in rows.kernels],
                "fallback": None if rows.fallback is None else rows.fallback.name,
            }
            for variant, rows in kernels.rows.items()
        },
        "copies": {
            letter: {
                "begin_ns": one.takes.begin_ns,
                "bytes_per_ns": one.takes.bytes_per_ns,
                "side": one.side,
                "threads": one.threads,
                "codes": list(one.codes),
            }
            for letter, one in kernels.copies.items()
        },
        "kernels": {name: _kernel(one) for name, one in kernels.kernels.items()},
        "codes": {name: _code(one) for name, one in kernels.codes.items()},
        "files": {name: hashlib.sha256(data).hexdigest() for name, data in made.items()},
    }


def _kernel(one: ExportedKernel) -> dict[str, Any]:
    """Return what a program needs to choose a kernel and lay its grid out."""
    kept = one.kernel
    return {
        "precision": kept.variant.precision.letter,
        "trans": f"{kept.variant.trans_a}{kept.variant.trans_b}",
        "geometry": geometry_to_json(kept.geometry),
        "map_line_bytes": one.line_bytes,
        "codes": {str(mode): code for mode, code in one.codes.items()},
        # JSON knows no infinite numbers.
        "costs": [cost if math.isfinite(cost) else None for cost in one.costs],
        "won": [[*sizes, ns] for sizes, ns in kept.won.items()],
        "own": one.own,
        "device": one.device,
        "stencil": kept.config.stencil,
        "stencil_version": kept.version,
        "config_id": kept.config.id,
        "config": dict(kept.config),
        **_own_arguments(one),
    }


def _own_arguments(one: ExportedKernel) -> dict[str, Any]:
    """Return the arguments of a kernel of tensor cores, and what its maps are made with."""
    kept = one.kernel
    family = stencil(kept.config.stencil)
    if not isinstance(family, Wgmma) or family.common_arguments(kept.config):
        return {}
    side, of = 1 << 12, kept.variant.precision
    matrix = Operand(0, 0, side)
    call = GemmCall(of, side, side, side, 1, matrix, matrix, 0, matrix)
    maps = [
        x for x in family.arguments(kept.config, kept.variant, call) if isinstance(x, TensorMap)
    ]
    made = [{"element": x.element, "box": x.box, "swizzle": x.swizzle} for x in maps]
    return {"arguments": list(_OF_TENSOR_CORES), "maps": made}


def _code(one: ExportedCode) -> dict[str, Any]:
    """Return what a program needs to launch machine code, and what compiled it."""
    found = read_cubin(one.cubin).kernel(one.code.symbol)
    return {
        "symbol": one.code.symbol,
        "second": one.code.second or None,
        "dynamic_shared_bytes": one.code.shared_bytes,
        "static_shared_bytes": found.shared_bytes,
        "registers": found.registers,
        "part_bytes": one.code.part_bytes,
        "compiler": one.code.compiler,
        "rescheduled": one.code.rescheduled,
        "checked": one.code.checked or None,
    }
