"""``tilewright solve``: a dense linear system, LINPACK-style."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated, Any

import typer

from tilewright.cli.multiply import check_not_read, check_suffix, kind_of, load_as, save
from tilewright.cli.output import (
    MATRICES,
    DeviceOption,
    JsonOption,
    emit_json,
    gigaflops,
    output_option,
    say,
)

__all__ = ["ACCEPTED", "command", "random_system", "solve_timed"]

# HPL accepts a solution whose scaled residual is below this.
ACCEPTED = 16.0


def command(
    a: Annotated[Path | None, typer.Argument(help="A, an .npy file; random without it.")] = None,
    b: Annotated[Path | None, typer.Argument(help="b, a file like A's; several: columns.")] = None,
    output: Annotated[Path | None, output_option("Where x goes.", MATRICES)] = None,
    size: Annotated[
        int | None, typer.Option("--size", min=1, help="n of a random system; 2000 by default.")
    ] = None,
    precision: Annotated[
        str | None,
        typer.Option("--precision", help="A random system's: s, d, c, z, e or w; d by default."),
    ] = None,
    seed: Annotated[
        int | None, typer.Option("--seed", min=0, help="A random system's; 0 by default.")
    ] = None,
    device: DeviceOption = None,
    json: JsonOption = False,
) -> None:
    """Solve A x = b by blocked LU with partial pivoting; exit 1 unless HPL would accept it."""
    if (a is None) != (b is None):
        raise ValueError("give both A and b, or neither for a random system")
    if output is not None:
        check_not_read(output, *(one for one in (a, b) if one is not None))
    if a is not None and b is not None:
        for name, value in (("size", size), ("precision", precision), ("seed", seed)):
            if value is not None:
                raise ValueError(f"{name}={value!r} is a random system's; leave it out")
        matrix, right = load_as(a, None), load_as(b, None)
    else:
        matrix, right = random_system(size or 2000, precision or "d", seed or 0)
    if output is not None:
        check_suffix(output, hasattr(matrix, "words"))
    solution, facts = solve_timed(matrix, right, device)
    if output is not None and facts["accepted"]:
        save(output, solution)
    if json:
        emit_json(facts)
    else:
        say(describe(facts))
    if not facts["accepted"]:
        unwritten = "" if output is None else f"; {output} is not written"
        raise ArithmeticError(
            f"scaled residual {facts['residual']:.3g} is not below {ACCEPTED:g}{unwritten}"
        )


def random_system(n: int, precision: str, seed: int) -> tuple[Any, Any]:
    """Return A and b with entries uniform in [-0.5, 0.5), as HPL draws them."""
    import numpy as np

    from tilewright.precision import precision as find_precision
    from tilewright.serve.double_double import DoubleDouble

    row = find_precision(precision)
    rng = np.random.default_rng(seed)

    def draw(*shape: int) -> Any:
        x = rng.random(shape) - 0.5
        if row.is_complex:
            x = x + 1j * (rng.random(shape) - 0.5)
        if row.parts == 2:
            return DoubleDouble(x, x * (rng.random(shape) - 0.5) * 2.0**-53)
        return x.astype(row.dtype)

    return draw(n, n), draw(n)


def solve_timed(a: Any, b: Any, device: str | None) -> tuple[Any, dict[str, Any]]:
    """Solve a system and return the solution with what is worth saying about it."""
    from tilewright.serve.linear import lu_factor, lu_solve, scaled_residual

    started = time.perf_counter()
    solution = lu_solve(lu_factor(a, device=device), b)
    seconds = time.perf_counter() - started
    n = len(a)
    # HPL's count: 2/3 n^3 + 2 n^2 a right-hand side, four times that in complex arithmetic.
    is_complex = a.dtype.kind == "c" or getattr(a, "is_complex", False)
    sides = b.shape[1] if b.ndim > 1 else 1
    flops = (2 / 3 * n**3 + 2 * n**2 * sides) * (4 if is_complex else 1)
    residual = scaled_residual(a, solution, b)
    facts = {
        "n": n,
        "dtype": kind_of(a),
        "seconds": seconds,
        "flops_per_second": flops / seconds,
        "residual": residual,
        "accepted": bool(residual < ACCEPTED),
    }
    return solution, facts


def describe(facts: dict[str, Any]) -> str:
    """Return what became of a system in one line."""
    verdict = "accepted" if facts["accepted"] else "REFUSED"
    return (
        f"LU solve n={facts['n']} {facts['dtype']}: {facts['seconds']:.2f} s,"
        f" {gigaflops(facts['flops_per_second'])}; scaled residual {facts['residual']:.2e}"
        f" (HPL accepts below {ACCEPTED:g}): {verdict}"
    )
