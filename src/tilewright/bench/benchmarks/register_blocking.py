"""Lai & Seznec's Figure 1 from compiled kernels: the share of FFMA in the main loop."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from importlib.resources import files

from tilewright.backend.cuda.compiler import compile_cubin, nvrtc_version
from tilewright.bench.registry import Asked, Benchmark, Cell, Row
from tilewright.sass import decode, ffma_share, main_loop, read_cubin
from tilewright.stencil import Source

__all__ = ["BENCHMARK"]

ARCH = "sm_90a"
BLOCKINGS, LOADS = range(1, 17), (32, 64, 128)
STEPS = 8  # of k in a trip of the loop, as many as the portable stencil's default has


class RegisterBlocking(Benchmark):
    measures = f"FFMA's share of compiled main loops ({ARCH}) by register blocking and load width"
    against = "the formula of Lai & Seznec's Figure 1"
    takes = "half a minute; no GPU"
    options = {}  # noqa: RUF012

    def rows(self, asked: Asked) -> Iterator[Row]:
        text = files(__package__).joinpath("register_blocking.cu").read_text()
        for bits, blocking in itertools.product(LOADS, BLOCKINGS):
            yield _row(text, blocking, bits)

    def line(self, row: Row) -> str:
        return " ".join(map(str, _cells(row)))

    def table(self, rows: Sequence[Row]) -> tuple[Sequence[str], list[list[Cell]]]:
        return ("bits", "blocking", "formula", "of FFMA and loads", "of all"), [*map(_cells, rows)]


def _cells(row: Row) -> list[Cell]:
    shares = (row[key] for key in ("formula", "share_of_ffma_and_loads", "share_of_all"))
    return [row["load_bits"], row["blocking"], *(f"{share:.1%}" for share in shares)]


def _row(text: str, blocking: int, bits: int) -> Row:
    """Compile one kernel and count its main loop."""
    macros = {"RB": blocking, "LW": bits // 32, "BK": STEPS}
    cubin = compile_cubin(Source(text, macros, "multiply"), ARCH)
    (kernel,) = read_cubin(cubin.code).kernels
    loop = main_loop(decode(kernel.code, kernel.arch))
    assert loop is not None  # the kernel has one
    mix = loop.mix()
    loads = mix.get("shared load", 0)
    return {
        "arch": ARCH,
        "compiler": f"NVRTC {nvrtc_version()}",
        "blocking": blocking,
        "load_bits": bits,
        "ffma": loop.useful,
        "shared_loads": loads,
        "instructions": len(loop.instructions),
        "mix": mix,
        "registers": kernel.registers,
        "formula": ffma_share(blocking, bits),
        "share_of_ffma_and_loads": loop.useful / (loop.useful + loads),
        "share_of_all": loop.useful_share,
    }


BENCHMARK = RegisterBlocking()
