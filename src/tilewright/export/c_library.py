"""The C library: fixed sources, tables and machine code written here.

What chooses and what launches are the core's own, copied; ``native`` here has the C API and lays
plans out.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterable, Iterator, Mapping
from importlib.resources import files

from tilewright.export.kernel_set import ExportedCode, ExportedKernel, KernelSet, Rows
from tilewright.export.target import LETTERS
from tilewright.portfolio.model import TERMS
from tilewright.precision import PRECISIONS
from tilewright.problem import Trans, transposes_of
from tilewright.stencil import Variant
from tilewright.stencil.geometry import Geometry
from tilewright.version import VERSION

__all__ = ["c_library"]

_OPERATIONS = (Trans.N, Trans.T, Trans.C)

# Of the core: what takes no Python.
_CORE = ("choose.c", "geometry.c", "model.c", "ways.c", "arena.c", "driver.c", "plan.c", "table.c")

_CALLING = (
    "tilewright_gemm.c",
    "tilewright_overlap.c",
    "tilewright_calls.c",
    "tilewright_laying.c",
    "tilewright_pieces.c",
    "tilewright_contexts.c",
    "tilewright_precision.c",
)
_COPIED = {
    "tilewright.core": (*_CORE, "choice.h", "core.h", "table.h"),
    "tilewright.export": (*_CALLING, "tilewright_internal.h", "tilewright-gemm.pc.in"),
}

_WORDS_A_LINE = 8
_HEAD = "/* Written by `tilewright export`; see tilewright_internal.h. */\n"


def c_library(kernels: KernelSet) -> dict[str, bytes]:
    """Return the library's files by name.

    Parameters
    ----------
    kernels : KernelSet
        What goes in.
    """
    images = {f"image_{name}.c": text for name, text in _images(kernels)}
    sources = [*_CALLING, *_CORE, "kernels.c", *images]
    values = {
        "VERSION": VERSION,
        "ARCHITECTURE": kernels.target.arch,
        # Nothing in it ends the comment or string that it stands in.
        "DEVICE": re.sub(r"[^\w .()+-]", "_", kernels.target.name),
        "SOURCES": "\n".join(f"  {name}" for name in sources),
    }
    texts = {name: _text(name, package) for package, names in _COPIED.items() for name in names}
    texts["tilewright_gemm.h"] = _filled("tilewright_gemm.h.in", values)
    texts["CMakeLists.txt"] = _filled("CMakeLists.txt.in", values)
    texts["kernels.c"] = "\n".join(_tables(kernels)) + "\n"
    return {name: text.encode() for name, text in (texts | images).items()}


def _text(name: str, package: str = "tilewright.export") -> str:
    return files(package).joinpath("native", name).read_text(encoding="utf-8")


def _filled(name: str, values: dict[str, str]) -> str:
    """Return a template with a value for each ``@NAME@``."""
    return re.sub(r"@([A-Z]+)@", lambda found: values[found[1]], _text(name))


def _string(text: str) -> str:
    """Return a C string of ASCII letters; others as octal numbers, which end after three digits."""
    safe = re.compile(r"[\w .()+-]", re.ASCII)
    return '"' + "".join(x if safe.match(x) else _octal(x) for x in text) + '"'


def _octal(letter: str) -> str:
    return "".join(f"\\{byte:03o}" for byte in letter.encode())


# -- machine code --------------------------------------------------------------------------


def _images(kernels: KernelSet) -> Iterator[tuple[str, str]]:
    """Yield names, of variants and of what copies operands, and files with machine code."""
    for variant, rows in kernels.rows.items():
        tables = rows, kernels.batched.get(variant, Rows(()))
        every = (one for table in tables for one in table.every)
        names = dict.fromkeys(name for one in every for name in one.codes.values())
        yield str(variant), _HEAD + "".join(map(_image, map(kernels.codes.__getitem__, names)))
    copying = dict.fromkeys(name for one in kernels.copies.values() for name in one.codes)
    if copying:
        yield "copies", _HEAD + "".join(map(_image, map(kernels.codes.__getitem__, copying)))


def _image(code: ExportedCode) -> str:
    """Return machine code as an array.

    Of words of 8 bytes, the lowest first, as on every host of an NVIDIA GPU: fewer numbers for a
    compiler to read, 5 MB in 2 s.
    """
    padded = code.cubin + bytes(-len(code.cubin) % 8)
    words = [
        str(x) if x < 1 << 16 else hex(x) for x in struct.unpack(f"<{len(padded) // 8}Q", padded)
    ]
    rows = (",".join(words[at : at + _WORDS_A_LINE]) for at in range(0, len(words), _WORDS_A_LINE))
    declared, body = _declared(code), ",\n".join(rows)
    return f"extern {declared};\n_Alignas(16) {declared} = {{\n{body}}};\n"


def _declared(code: ExportedCode) -> str:
    words = -(-len(code.cubin) // 8)
    return f"const unsigned long long tilewright_image_{code.name}[{words}]"


# -- tables ----------------------------------------------------------------------------------


def _tables(kernels: KernelSet) -> Iterator[str]:
    yield f'{_HEAD}#include "tilewright_internal.h"\n'
    for code in kernels.codes.values():
        yield f"extern {_declared(code)};"
    yield f"\nconst int tilewright_code_count = {len(kernels.codes)};\n"
    yield "/* name, image, function, one behind it, dynamic shared memory, bytes of a part */"
    yield "const tilewright_code tilewright_codes[] = {"
    for one in kernels.codes.values():
        second = _string(one.code.second) if one.code.second else "NULL"
        yield (
            f"    {{{_string(one.name)}, tilewright_image_{one.name},\n"
            f"     {_string(one.code.symbol)}, {second}, {one.code.shared_bytes},"
            f" {one.code.part_bytes}}},"
        )
    yield "};\n"
    yield from _devices(kernels)
    index = {name: place for place, name in enumerate(kernels.codes)}
    batched = {f"{variant}_batched": rows for variant, rows in kernels.batched.items()}
    for name, rows in ({str(x): rows for x, rows in kernels.rows.items()} | batched).items():
        yield from _rows(kernels, name, rows, index)
    yield from _copies(kernels, index)
    yield f'_Static_assert(TILEWRIGHT_TERMS == {len(TERMS)}, "as many costs as terms");\n'
    yield from _cells("tilewright_rows_of", "", kernels.rows)
    yield from _cells("tilewright_batched_of", "_batched", kernels.batched)


def _copies(kernels: KernelSet, index: dict[str, int]) -> Iterator[str]:
    """Yield the lines of the table of copies, by precision."""
    yield "const tilewright_copies tilewright_copying_of[TILEWRIGHT_PRECISIONS] = {"
    for place, letter in enumerate(LETTERS):
        one = kernels.copies.get(letter)
        if one is not None:
            takes = _doubles((one.takes.begin_ns, one.takes.bytes_per_ns))
            codes = [index[name] for name in one.codes] + [-1] * (3 - len(one.codes))
            rest = ", ".join(map(str, (one.side, one.threads, *codes)))
            yield f"    [{place}] = {{{{{takes}}}, {rest}}},"
    if not kernels.copies:
        yield "    {{0, 0}, 0, 0, TILEWRIGHT_NONE, TILEWRIGHT_NONE, TILEWRIGHT_NONE},"
    yield "};\n"


def _devices(kernels: KernelSet) -> Iterator[str]:
    # The target itself where nothing was measured: a table is never empty.
    found = kernels.devices or [(kernels.target.spec.name, kernels.target.spec.multiprocessors)]
    yield f"const int tilewright_device_count = {len(found)};\n"
    yield "const int64_t tilewright_devices[] = {"
    for _, multiprocessors in found:
        yield f"    {multiprocessors},"
    yield "};\n"


def _rows(kernels: KernelSet, variant: str, rows: Rows, index: dict[str, int]) -> Iterator[str]:
    """Yield the arrays of a variant; an array has an entry at least."""
    if not rows.every:
        return
    devices = {device: place for place, device in enumerate(kernels.devices)}
    for place, one in enumerate(rows.every):
        if one.costs:
            yield (
                f"static const double costs_{variant}_{place}[] = {{{_doubles(one.costs)}}};"
                f" /* {one.name} */"
            )
        if one.kernel.won:
            won = ", ".join(
                f"{{{m}, {n}, {k}, {_double(ns)}}}" for (m, n, k), ns in one.kernel.won.items()
            )
            yield f"static const tilewright_won won_{variant}_{place}[] = {{{won}}};"
    yield f"static const tilewright_kernel {variant}[] = {{"
    for place, one in enumerate(rows.every):
        yield from _kernel(one, f"{variant}_{place}", index, devices)
    yield "};\n"


def _kernel(
    one: ExportedKernel, name: str, index: dict[str, int], devices: dict[tuple[str, int], int]
) -> Iterator[str]:
    yield f"    {{ /* {one.name} */"
    yield f"        .geometry = {{{', '.join(_geometry(one.geometry, one.line_bytes))}}},"
    codes = [-1] * 8
    for mode, code in one.codes.items():
        codes[mode.number] = index[code]
    yield f"        .codes = {{{', '.join(map(str, codes))}}},"
    if one.costs:
        yield f"        .costs = costs_{name},"
    if one.kernel.won:
        yield f"        .won = won_{name}, .won_count = {len(one.kernel.won)},"
    device = -1 if one.device is None else devices[one.device]
    yield f"        .own = {int(one.own)}, .device = {device},"
    yield "    },"


def _geometry(it: Geometry, line_bytes: int) -> Iterator[str]:
    """Yield the fields that are not zero."""
    values: dict[str, int | float | str] = {
        "tile_m": it.tile_m, "tile_n": it.tile_n, "tile_k": it.tile_k, "stages": it.stages,
        "resident": it.resident, "cluster_m": it.cluster_m, "cluster_n": it.cluster_n,
        "cluster_k": it.cluster_k, "threads_x": it.threads[0], "threads_y": it.threads[1],
        "folded": int(it.folded), "persistent": int(it.persistent), "stream_k": it.stream_k,
        "tree": int(it.tree), "tma": int(it.tma), "vector_along_k": int(it.vector_along_k),
        "tma_line_bytes": it.tma_line_bytes, "stages_k": it.stages_k,
        "most_k": it.most_k, "streamed": it.streamed,
        "any_alignment": int(it.any_alignment), "map_line_bytes": line_bytes,
    }  # fmt: skip
    if it.split_k is not None:
        cut = it.split_k
        values |= {
            "split_k": 1, "step_cycles": _double(cut.step_cycles), "cut_bytes": cut.part_bytes,
            "reduction_blocks": cut.reduction_blocks, "reduction_threads": cut.reduction_threads,
            "most_parts": cut.most_parts,
        }  # fmt: skip
        if cut.reduction_cycles:
            values["reduction_cycles"] = _double(cut.reduction_cycles)
    return (f".{name} = {value}" for name, value in values.items() if value)


def _doubles(values: Iterable[float]) -> str:
    return ", ".join(map(_double, values))


def _double(value: float) -> str:
    """Return a number so that a C compiler reads its very bits."""
    return "1.0 / 0.0" if value == float("inf") else float(value).hex()


def _cells(name: str, suffix: str, of: Mapping[Variant, Rows]) -> Iterator[str]:
    """Yield the lines of a table of variants; what was not exported has no row."""
    sides = "[TILEWRIGHT_PRECISIONS][TILEWRIGHT_TRANSPOSES][TILEWRIGHT_TRANSPOSES]"
    yield f"const tilewright_rows {name}{sides} = {{"
    for place, letter in enumerate(LETTERS):
        for trans_a, trans_b in transposes_of(PRECISIONS[letter]):
            variant = Variant(PRECISIONS[letter], trans_a, trans_b)
            rows = of.get(variant)
            if rows is None or not rows.every:
                continue
            a, b = _OPERATIONS.index(trans_a), _OPERATIONS.index(trans_b)
            timed = int(any(one.costs for one in rows.kernels))
            count = len(rows.kernels)
            table = f"{variant}{suffix}"
            last = f"&{table}[{count}]" if rows.fallback is not None else "NULL"
            yield f"    [{place}][{a}][{b}] = {{{table}, {count}, {timed}, {last}}},"
    if not any(rows.every for rows in of.values()):
        yield "    {{{NULL, 0, 0, NULL}}},"
    yield "};"
