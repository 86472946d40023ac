"""Double precision from products of residues on int8 tensor cores: docs/fp64_accurate.md.

::

    A, B read, bytes written -> their product in FP8 -> A, B read, residues written
         -> a product in int8 for each plane of residues -> residues read, C written

A product is one of so many in int8, a plane of residues each: a modulus has one plane, of complex
numbers two.  These are a batch, whose bound is scaled.  What comes before and behind waits for it.
"""

from __future__ import annotations

from collections.abc import Sequence

from tilewright.bounds.bound import Bound
from tilewright.bounds.terms import Term, given
from tilewright.hardware.catalogue import CatalogueDevice
from tilewright.hardware.quantity import Quantity
from tilewright.problem import Problem

__all__ = ["FEWEST", "NAME", "choice", "products", "terms_of"]

NAME = "residues"

# The fewest moduli that serve, and planes of residues of each: of real and of complex products.
FEWEST = {False: (14, 1), True: (15, 2)}

# Of the products' bound: device memory and the epilogue are another here, as results are bytes.
_SCALED = ("arithmetic peak", "clock under the power limit", "warpgroup tiles and tail wave",
           "shared cache (L2)")  # fmt: skip

_MEMORY, _TURNS = "device memory", "one after the other"


def _planes(problem: Problem) -> int:
    moduli, planes = FEWEST[problem.precision.is_complex]
    return moduli * planes


def products(problem: Problem) -> Problem:
    """Return the products of residues as a batch in int8."""
    p = problem
    return Problem(p.m, p.n, p.k, "int8", batch=p.batch * _planes(p))  # type: ignore[arg-type]


def choice(problem: Problem) -> Problem:
    """Return the product in FP8 that the number of moduli is chosen by."""
    p = problem
    return Problem(p.m, p.n, p.k, "e5m2", batch=p.batch)  # type: ignore[arg-type]


def terms_of(
    problem: Problem, device: CatalogueDevice, of_products: Bound, of_choice: Bound, reads_c: bool
) -> tuple[list[Term], str]:
    """Return the terms, and what multiplies.

    Parameters
    ----------
    problem : Problem
        In double precision.
    device : CatalogueDevice
        Where it runs.
    of_products, of_choice : Bound
        Of `products` and of `choice`.
    reads_c : bool
        Whether C is read, too.
    """
    moduli, planes = FEWEST[problem.precision.is_complex]
    share = given("share", problem.flops / of_products.problem.flops, "",
                  f"flops for one in int8: {moduli} moduli of {planes} products")  # fmt: skip
    found = [
        Term(
            one.name, None if one.value is None else one.value * share.value,
            f"{one.formula} x share", (*one.inputs, share), one.resource, one.reason,
        )
        for one in of_products.terms if one.name in _SCALED
    ]  # fmt: skip
    found += _passes(problem, device, found, of_choice, reads_c)
    return found, f"int8 tensor cores, {moduli} moduli"


def _passes(
    problem: Problem, device: CatalogueDevice, terms: Sequence[Term], of_choice: Bound,
    reads_c: bool,
) -> list[Term]:  # fmt: skip
    """Return the terms of memory, and of what is not done at once."""
    planes, size = _planes(problem), problem.precision.element_bytes
    a, b, c = problem.elements
    operands = (2 * size + 1 + planes) * (a + b)
    # The bound in BF16, written and read; residues, which the products write as they end.
    results = (2 + 2 + planes + (2 if reads_c else 1) * size) * c
    source = "A and B read twice, a byte and residues of each written; the bound written and read"
    moved = given("bytes", operands + results, "B", f"{source}; residues of C read, C written")
    flops = given("flops", problem.flops, "FLOP")
    key = "memory_bytes_per_s" if device.get("copy_bytes_per_s") is None else "copy_bytes_per_s"
    rate = device.get(key)
    names = (_MEMORY, f"flops x {key} / bytes"), (
        _TURNS, f"flops / (bytes / {key} + flops / F + flops / choice)"
    )  # fmt: skip
    if rate is None:
        reason = f"unknown for {device.id}: {key}"
        return [Term(name, None, formula, (moved,), "", reason) for name, formula in names]
    seconds = moved.value / rate.value
    inputs: tuple[Quantity, ...] = (flops, moved, rate)
    memory = Term(_MEMORY, problem.flops / seconds, names[0][1], inputs, "device memory")
    known = [one.value for one in terms if one.value is not None]
    if not known or not of_choice.known:
        return [memory, Term(_TURNS, None, names[1][1], (), "", "products have no bound")]
    scale = problem.flops / of_choice.problem.flops
    fastest, chosen = min(known), of_choice.limit * scale
    whole = problem.flops / (seconds + problem.flops / fastest + problem.flops / chosen)
    inputs += (
        given("F", fastest, "FLOP/s", "smallest of the products' terms"),
        given("choice", chosen, "FLOP/s", "bound of the product in FP8"),
    )  # fmt: skip
    return [memory, Term(_TURNS, whole, names[1][1], inputs, "passes, then the products'")]
