"""The C library: fixed sources from ``native``, tables and images written here."""

from __future__ import annotations

import re
from collections.abc import Iterator
from importlib.resources import files

from tilewright.export.kernel_set import ExportedKernel, KernelSet
from tilewright.precision import PRECISIONS
from tilewright.problem import Trans, transposes_of
from tilewright.stencil import Variant
from tilewright.version import VERSION

__all__ = ["LETTERS", "c_library"]

# The precisions that tilewright_gemm.h has a function for, in the order of its table.
LETTERS = ("s", "d", "c", "z")
_OPERATIONS = (Trans.N, Trans.T, Trans.C)

_FIXED = ("tilewright_gemm.c", "tilewright_driver.c", "tilewright_overlap.c")
_COPIED = (*_FIXED, "tilewright_internal.h", "tilewright-gemm.pc.in")

_BYTES_A_LINE = 32
_HEAD = "/* Written by `tilewright export`; see tilewright_internal.h. */\n"


def c_library(kernels: KernelSet) -> dict[str, bytes]:
    """Return the library's files by name.

    Parameters
    ----------
    kernels : KernelSet
        What goes in.
    """
    images = {f"image_{kernel.name}.c": _image(kernel) for kernel in kernels.kernels.values()}
    sources = [*_FIXED, "kernels.c", *images]
    values = {
        "VERSION": VERSION,
        "ARCHITECTURE": kernels.target.arch,
        "DEVICE": _comment(kernels.target.name),
        "SOURCES": "\n".join(f"  {name}" for name in sources),
    }
    texts = {name: _text(name) for name in _COPIED}
    texts["tilewright_gemm.h"] = _filled("tilewright_gemm.h.in", values)
    texts["CMakeLists.txt"] = _filled("CMakeLists.txt.in", values)
    texts["kernels.c"] = _tables(kernels)
    return {name: text.encode() for name, text in (texts | images).items()}


def _text(name: str) -> str:
    return files("tilewright.export").joinpath("native", name).read_text(encoding="utf-8")


def _filled(name: str, values: dict[str, str]) -> str:
    """Return a template with a value for each ``@NAME@``."""
    return re.sub(r"@([A-Z]+)@", lambda found: values[found[1]], _text(name))


def _comment(text: str) -> str:
    """Return a device's name so that it cannot end the comment it stands in."""
    return re.sub(r"[^\w .()+-]", "_", text)


def _image(kernel: ExportedKernel) -> str:
    """Return one kernel's machine code as an array; decimal is the shortest for compilers."""
    rows = (
        ",".join(map(str, kernel.cubin[at : at + _BYTES_A_LINE]))
        for at in range(0, len(kernel.cubin), _BYTES_A_LINE)
    )
    size, body = len(kernel.cubin), ",\n".join(rows)
    declared = f"const unsigned char tilewright_image_{kernel.name}[{size}]"
    # The driver reads words.
    return f"{_HEAD}extern {declared};\n_Alignas(16) {declared} = {{\n{body}}};\n"


def _tables(kernels: KernelSet) -> str:
    parts = [_HEAD, '#include "tilewright_internal.h"\n']
    index = {name: place for place, name in enumerate(kernels.kernels)}
    for name, kernel in kernels.kernels.items():
        size = len(kernel.cubin)
        parts.append(f"extern const unsigned char tilewright_image_{name}[{size}];")
    parts.append(f"\nconst int tilewright_kernel_count = {len(index)};\n")
    parts.append("/* name, image, blocks, factor, folded, threads, dynamic shared memory */")
    parts.append("const tilewright_kernel tilewright_kernels[] = {")
    parts += [f"    {_kernel_row(kernel)}," for kernel in kernels.kernels.values()]
    parts.append("};\n")
    parts += [_rows(kernels, variant, index) for variant in kernels.choices]
    parts += _cells(kernels)
    return "\n".join(parts) + "\n"


def _kernel_row(kernel: ExportedKernel) -> str:
    grid = kernel.grid
    return (
        f'{{"{kernel.name}", tilewright_image_{kernel.name},'
        f" {grid.block_m}, {grid.block_n}, {grid.factor}, {int(grid.folded)},"
        f" {grid.threads[0]}, {grid.threads[1]}, {kernel.dynamic_shared_bytes}}}"
    )


def _rows(kernels: KernelSet, variant: Variant, index: dict[str, int]) -> str:
    """Return the sizes that a variant's problems are compared with."""
    rows = "".join(
        f"    {{{row.m}, {row.n}, {row.k}, {index[row.kernel]}}}, /* {row.kernel} */\n"
        for row in kernels.choices[variant]
    )
    return f"static const tilewright_tuned {variant}[] = {{\n{rows}}};\n"


def _cells(kernels: KernelSet) -> Iterator[str]:
    """Yield the lines of the table of choices; what was not exported has no row."""
    yield "const tilewright_choices"
    yield "    tilewright_table[TILEWRIGHT_PRECISIONS][TILEWRIGHT_TRANSPOSES]"
    yield "                    [TILEWRIGHT_TRANSPOSES] = {"
    for place, letter in enumerate(LETTERS):
        for trans_a, trans_b in transposes_of(PRECISIONS[letter]):
            variant = Variant(PRECISIONS[letter], trans_a, trans_b)
            if variant not in kernels.choices:
                continue
            a, b = _OPERATIONS.index(trans_a), _OPERATIONS.index(trans_b)
            count = len(kernels.choices[variant])
            yield f"    [{place}][{a}][{b}] = {{{variant}, {count}}},"
    yield "};"
