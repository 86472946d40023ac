"""Square products in every transpose beside the vendor's library."""

from __future__ import annotations

from tilewright.bench.registry import Asked, Products
from tilewright.bench.sizes import parse_sizes, problems_of
from tilewright.problem import Problem

__all__ = ["BENCHMARK"]

# 4800 is the size of Lai & Seznec (2013).
GPU_SIZES, CPU_SIZES = "512,1024,2048,4096,4800,8192,16384", "256:2048"


def problems(asked: Asked) -> list[Problem]:
    """Return the squares, all transposes of a size together."""
    sizes = parse_sizes(asked.size or (GPU_SIZES if asked.is_gpu else CPU_SIZES))
    return [one for size in sizes for one in problems_of(asked.precision, asked.trans, [size])]


BENCHMARK = Products(
    measures="square products of every transpose",
    against="cuBLAS; NumPy on a CPU",
    takes="a minute a precision on an H100",
    options={"precision": "s", "trans": "all", "size": ""},
    problems=problems,
)
