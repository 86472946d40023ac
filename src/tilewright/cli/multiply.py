"""``tilewright multiply``: the product of two matrices in files."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated, Any

import typer

from tilewright.cli.output import (
    DeviceOption,
    JsonOption,
    TransOption,
    emit_json,
    gigaflops,
    parse_trans,
    say,
)

__all__ = ["command", "load", "save"]


def command(
    a: Annotated[Path, typer.Argument(help="A, an .npy file.")],
    b: Annotated[Path, typer.Argument(help="B, an .npy file.")],
    output: Annotated[Path, typer.Option("-o", "--output", help="Where C goes, an .npy file.")],
    c: Annotated[Path | None, typer.Option("--c", help="C to scale by beta, an .npy file.")] = None,
    trans: TransOption = "NN",
    alpha: Annotated[str, typer.Option(help="Scales the product; 1+2j for complex.")] = "1",
    beta: Annotated[str, typer.Option(help="Scales C.")] = "0",
    precision: Annotated[
        str | None, typer.Option("--precision", help="Convert to s, d, c or z first.")
    ] = None,
    device: DeviceOption = None,
    json: JsonOption = False,
) -> None:
    """Compute C = alpha op(A) op(B) + beta C from .npy files."""
    from tilewright.library.gemm import gemm
    from tilewright.precision import precision as find_precision

    trans_a, trans_b = parse_trans(trans)
    dtype = find_precision(precision).dtype if precision else None
    matrices = [None if path is None else load(path, dtype) for path in (a, b, c)]
    target = matrices[2].copy() if matrices[2] is not None else None
    started = time.perf_counter()
    result = gemm(
        matrices[0],
        matrices[1],
        target,
        alpha=_scalar("alpha", alpha),
        beta=_scalar("beta", beta),
        trans_a=trans_a,
        trans_b=trans_b,
        device=device,
    )
    seconds = time.perf_counter() - started
    save(output, result)
    inner = matrices[0].shape[0 if trans_a != "N" else 1]  # type: ignore[union-attr]
    facts = {
        "output": str(output),
        "shape": list(result.shape),
        "dtype": str(result.dtype),
        "seconds": seconds,
    }
    if json:
        emit_json(facts)
        return
    flops = (8 if result.dtype.kind == "c" else 2) * result.shape[0] * result.shape[1] * inner
    say(
        f"{output}: {result.shape[0]} x {result.shape[1]} {result.dtype},"
        f" {seconds:.3f} s with compilation ({gigaflops(flops / seconds)})"
    )


def _scalar(name: str, text: str) -> complex:
    try:
        value = complex(text)
    except ValueError:
        raise ValueError(f"{name}={text!r} is not a number; write 2, 0.5 or 1+2j") from None
    return value if value.imag else value.real


def load(path: Path, dtype: Any = None) -> Any:
    """Return the array in an .npy file; nothing in it is unpickled.

    Raises
    ------
    ValueError
        If the file holds no plain array.
    OSError
        If it cannot be read.
    """
    import numpy as np

    try:
        array = np.load(path, mmap_mode=None, allow_pickle=False)
    except (ValueError, EOFError):
        raise ValueError(f"{path} is not an .npy file of numbers") from None
    if not isinstance(array, np.ndarray):
        raise ValueError(f"{path} holds several arrays; give an .npy file of one")
    return array if dtype is None else array.astype(dtype, copy=False)


def save(path: Path, array: Any) -> None:
    """Write an .npy file, all of it or nothing."""
    import io

    import numpy as np

    from tilewright.paths import write_atomically

    buffer = io.BytesIO()
    np.save(buffer, array, allow_pickle=False)
    write_atomically(path, buffer.getvalue())
