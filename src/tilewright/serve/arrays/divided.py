"""A product of NumPy arrays as several: those of a batch, halves of one, blocks of a triangle."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import as_strided
from numpy.typing import NDArray

from tilewright.serve.arrange import shapes_of
from tilewright.serve.overlap import span
from tilewright.serve.request import Request
from tilewright.serve.triangle import blocks_of

__all__ = ["parts_of", "products_of"]


def parts_of(request: Request, most: int) -> Iterator[Request]:
    """Yield products whose spans are shorter: devices limit a single buffer to `most` bytes.

    Those of a batch, or halves of one.
    """
    if request.c.ndim > 2:
        for at in range(request.c.shape[0]):
            yield _slice(request, at)
    else:
        yield from _halves(request, most)


def products_of(request: Request) -> Iterator[Request]:
    """Yield the products of a batch, or what is one."""
    if request.c.ndim == 2:
        yield request
    elif request.batch is not None and not request.batch.repeats:
        a, b, c = (
            as_strided(getattr(request, name), matrix.shape, matrix.strides)
            for name, matrix in zip("abc", map(request.matrix, "abc"), strict=True)
        )
        yield replace(request, a=a, b=b, c=c, batch=None)
    else:
        for at in range(len(request.c)):
            yield from products_of(_slice(request, at))


def _slice(request: Request, at: int) -> Request:
    """Return a part of a batch along its first dimension."""
    parts: dict[str, Any] = {}
    for name in "abc":
        x = getattr(request, name)
        if x.ndim == request.c.ndim:
            x = x[at if len(x) > 1 else 0]
        parts[name] = x
    a, b, c = parts.values()
    _, m, n, k = shapes_of(a, b, c, request.trans_a, request.trans_b)
    made = replace(request, m=m, n=n, k=k, batch=None, **parts)
    return made if c.ndim == 2 else made.arranged()


def _halves(request: Request, most: int) -> list[Request]:
    """Cut a product in two whose spans are shorter.

    The operand that spans more than `most` bytes is cut across its longer stride; where
    only a union of operands does, C is.
    """
    dimensions = {"a": "mk", "b": "kn", "c": "mn"}
    arrays = {"a": request.a, "b": request.b, "c": request.c}
    for name, trans in (("a", request.trans_a), ("b", request.trans_b)):
        if trans.transposed:
            dimensions[name] = dimensions[name][::-1]
    spans = {name: span(0, x.shape, x.strides, x.dtype) for name, x in arrays.items()}
    long = [name for name, (low, high) in spans.items() if high - low > most]
    name = long[0] if long else "c"
    x = arrays[name]
    reach = [abs(step) * (n - 1) for step, n in zip(x.strides, x.shape, strict=True)]
    cut = dimensions[name][int(np.argmax(reach))]
    size = getattr(request, cut)
    if size < 2:
        raise ValueError(f"{name} spans more bytes than the device's {most} in one element")
    if request.triangle is not None and cut != "k":
        return _of_triangle(request, *arrays.values())
    parts = []
    for start, stop in ((0, size // 2), (size // 2, size)):
        pieces = [
            arrays[x][tuple(slice(start, stop) if d == cut else slice(None) for d in axes)]
            for x, axes in dimensions.items()
        ]
        # The second half of a sum adds to the first.
        changes: dict[str, Any] = {cut: stop - start}
        if cut == "k" and start:
            changes["beta"] = 1
        parts.append(replace(request, a=pieces[0], b=pieces[1], c=pieces[2], **changes))
    return parts


def _of_triangle(
    request: Request, a: NDArray[Any], b: NDArray[Any], c: NDArray[Any]
) -> list[Request]:
    """Cut a triangle into two and the product between them."""
    triangle, n = request.triangle, request.n
    assert triangle is not None
    parts = []
    for block in blocks_of(n, -(-n // 2), triangle.lower):
        rows = slice(block.row, block.row + block.rows)
        columns = slice(block.column, block.column + block.columns)
        x = a[:, rows] if request.trans_a.transposed else a[rows]
        y = b[columns] if request.trans_b.transposed else b[:, columns]
        part = replace(
            request, m=block.rows, n=block.columns, a=x, b=y, c=c[rows, columns],
            triangle=triangle if block.is_diagonal else None,
        )  # fmt: skip
        parts.append(part)
    return parts
