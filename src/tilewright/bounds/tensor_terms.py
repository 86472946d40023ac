"""The terms that only tensor cores have: their feed, promotion, the split, the epilogue."""

from __future__ import annotations

from collections.abc import Sequence

from tilewright.bounds import tensor
from tilewright.bounds.asked import Asked
from tilewright.bounds.terms import Term, given, term
from tilewright.hardware.quantity import Quantity

__all__ = ["beside_products", "fed", "notes", "split_seconds", "with_split"]

_FED, _FED_FORMULA = "warpgroup tiles and tail wave", "arithmetic peak x feed x tail"
_PROMOTION, _EPILOGUE, _SPLIT = "promotion (additions)", "epilogue", "split in a pre-pass"


def fed(asked: Asked) -> Term:
    """Return the term of shared memory and whole blocks, at the best tile.

    Where sums are taken out of the tensor cores, registers hold half as many elements.
    """
    device, units, peak = asked.device, asked.units, asked.peak
    needs = (*tensor.NEEDS, units.lane)
    absent = term(_FED, _FED_FORMULA, device, needs, lambda *_: 0.0)
    if absent.value is None or peak.value is None:
        return Term(_FED, None, _FED_FORMULA, absent.inputs, "", absent.reason or peak.reason)
    best = tensor.best_tensor_tile(asked.problem, device, units, asked.promote_k is not None)
    searched = "best of all that registers hold"
    of = "a warpgroup's" if best.groups else "a warp's, which serves small results better"
    inputs = (
        given("arithmetic peak", peak.value, "FLOP/s", asked.peak_source),
        given("feed", best.feed, "", "of the tensor cores' rate, by shared memory's port"),
        given("tail", best.tail, "", "whole blocks on whole multiprocessors"),
        given("tile rows", best.rows, "", f"{of}; {searched}"),
        given("tile columns", best.columns, "", searched),
        given("block m", best.block_m, "", searched),
        given("block n", best.block_n, "", searched),
        given("split k", best.split_k, "", searched),
        *(q for key in needs if (q := device.get(key)) is not None),
    )
    return Term(_FED, peak.value * best.efficiency, _FED_FORMULA, inputs, best.resource)


def beside_products(asked: Asked, reads_c: bool) -> list[Term]:
    """Return the terms of what goes on beside the products: promotion and epilogue."""
    found = [] if asked.promote_k is None else [_promotion(asked, asked.promote_k)]
    return [*found, _epilogue(asked, reads_c)]


def _promotion(asked: Asked, promote_k: int) -> Term:
    """Return the term of one addition for each element of C every `promote_k` steps.

    Other warpgroups' multiplies go on meanwhile: what it costs if not is in the notes.
    """
    return term(
        _PROMOTION,
        "2 x promote_k x fma_lanes.s x multiprocessors x clock_hz",
        asked.device,
        ("fma_lanes.s", "multiprocessors", "clock_hz"),
        lambda lanes, count, clock: 2 * promote_k * lanes * count * clock,
        given("promote_k", promote_k, "", "steps of k between two additions to a sum"),
        resource="multiply-add units",
    )


def _epilogue(asked: Asked, reads_c: bool) -> Term:
    """Return the term of C's way out of the multiprocessors, hidden behind other blocks."""
    p = asked.problem
    moved = p.elements[2] * asked.units.result_bytes * (2 if reads_c else 1)
    return term(
        _EPILOGUE,
        "flops x l2_bytes_per_s / bytes",
        asked.device,
        ["l2_bytes_per_s"],
        lambda rate: p.flops * rate / moved,
        given("flops", p.flops, "FLOP"),
        given("bytes", moved, "B", "C written and perhaps read; writes taken for as fast as reads"),
        resource="shared cache",
    )


def split_seconds(asked: Asked, warm_cache: bool) -> tuple[float | None, tuple[Quantity, ...], str]:
    """Return the least time of splitting A and B before the product, its inputs and formula.

    What is read comes from memory, what is written may stay in the last cache as far as it
    holds it; both cross the cache's port.  ``copy_bytes_per_s`` is measured; where it is
    not, the published bandwidth counts.
    """
    device = asked.device
    read, written = _pass_bytes(asked)
    key = "memory_bytes_per_s" if device.get("copy_bytes_per_s") is None else "copy_bytes_per_s"
    rate, cache, port = device.get(key), device.get("l2_bytes"), device.get("l2_bytes_per_s")
    kept = 0.0 if cache is None else min(cache.value, (read if warm_cache else 0.0) + written)
    inputs: tuple[Quantity, ...] = (
        given("bytes", read + written, "B", _pass_source(asked)),
        given("kept", kept, "B", "of them in the last cache"),
        *(q for q in (rate, port) if q is not None),
    )
    formula = f"(bytes - kept) / {key}"
    if rate is None:
        return None, inputs, formula
    seconds = (read + written - kept) / rate.value
    if port is None:
        return seconds, inputs, formula
    through = (read + written) / port.value
    return max(seconds, through), inputs, f"max({formula}, bytes / l2_bytes_per_s)"


def _pass_bytes(asked: Asked) -> tuple[int, int]:
    """Return the least bytes that are read and written before the product.

    Elements of a complex A become four numbers each on their way to its parts.  B is in the
    order of the real product already (at best), so that with one part of it nothing is done.
    """
    p, real, size = asked.given, asked.problem, asked.units.element_bytes
    a, b, _ = p.elements
    if asked.units.scheme is None:
        b = 0
    real_a, real_b, _ = real.elements
    written = (real_a + (real_b if b else 0)) * size
    return (a + b) * p.precision.element_bytes, written


def _pass_source(asked: Asked) -> str:
    parts = f"{asked.units.parts} parts of each written"
    if asked.units.scheme is None:
        return "A read and written, four numbers for an element"
    if asked.expands:
        return f"A and B read, {parts}, four numbers for an element of A"
    return f"A and B read, {parts}"


def with_split(asked: Asked, terms: Sequence[Term], warm_cache: bool) -> Term:
    """Return the rate of the split followed by a product as fast as the smallest of `terms`."""
    seconds, inputs, formula = split_seconds(asked, warm_cache)
    known = [t.value for t in terms if t.value is not None]
    whole = f"flops / ({formula} + flops / F)"
    if seconds is None or not known:
        reason = f"unknown for {asked.device.id}: memory_bytes_per_s"
        return Term(_SPLIT, None, whole, inputs, "", reason)
    rate, flops = min(known), asked.problem.flops
    inputs = (
        given("flops", flops, "FLOP"),
        *inputs,
        given("F", rate, "FLOP/s", "smallest of the other terms"),
    )
    value = flops / (seconds + flops / rate)
    return Term(_SPLIT, value, whole, inputs, "device memory, then the product's")


def notes(asked: Asked, terms: Sequence[Term], splits: bool, warm_cache: bool) -> tuple[str, ...]:
    """Return the assumptions, and what the product takes where one thing waits for the other."""
    told = [
        "promotion, epilogue and copies hide behind the multiplies of other warpgroups"
        if asked.promote_k is not None
        else "epilogue and copies hide behind the multiplies of other warpgroups"
    ]
    if splits:
        told.append("A and B are split by a pass of its own; a producer that splits is another")
    if splits and asked.expands:
        told.append("that pass makes four numbers of each element of A; a copy before it, as"
                    " kernels have it, comes on top")  # fmt: skip
    by_name = {t.name: t.value for t in terms if t.value is not None}
    if not by_name:
        return tuple(told)
    flops = asked.problem.flops
    split = split_seconds(asked, warm_cache)[0] if splits else None
    times = {"split": split or 0.0, "products": flops / min(by_name.values())}
    times["promotion"] = flops / by_name.get(_PROMOTION, float("inf"))
    times["epilogue"] = flops / by_name.get(_EPILOGUE, float("inf"))
    whole = sum(times.values())
    parts = " + ".join(f"{what} {1e6 * t:,.1f}" for what, t in times.items() if t)
    told.append(f"with nothing hidden: {parts} = {1e6 * whole:,.1f} us,"
                f" {flops / whole / 1e9:,.1f} GFLOP/s")  # fmt: skip
    return tuple(told)
