"""The terms of the main loop: issue slots, shared memory and whole blocks, by device."""

from __future__ import annotations

from collections.abc import Sequence

from tilewright.bounds import lai_seznec, modern, nakasato
from tilewright.bounds.asked import Asked
from tilewright.bounds.tensor_terms import fed
from tilewright.bounds.terms import Term, given, term
from tilewright.hardware.quantity import Mix

__all__ = ["multiprocessor"]

_MIX, _MIX_FORMULA = "instruction mix and tail wave", "arithmetic peak x mix x tail"


def multiprocessor(asked: Asked) -> list[Term]:
    """Return the terms of the main loop, by the model that fits the device."""
    device = asked.device
    if device.get("wave_registers") is not None:
        return [_read_cache(asked)]
    if device.value("async_copy") == 0 and asked.problem.precision.parts == 1:
        return _software_controlled(asked)
    if asked.units.warpgroups and device.get("warpgroup_rows") is not None:
        return [fed(asked)]
    if device.value("async_copy") == 1:
        return _mix_and_tail(asked)
    if device.spec.kind == "gpu":
        reason = f"unknown for {device.id}: async_copy (how blocks reach shared memory)"
        return [Term(_MIX, None, "see the bounds' documentation",
                     reason=reason)]  # fmt: skip
    return []


def _software_controlled(asked: Asked) -> list[Term]:
    """Return Lai & Seznec's equations 10 and 11 at the best blocking."""
    device, precision = asked.device, asked.problem.precision
    lane = asked.units.lane
    needs = ["issue_lanes", "shared_load_lanes", "memory_bytes_per_s", lane]
    needs += ["max_registers_per_thread", "registers_per_multiprocessor"]
    needs += ["shared_bytes_per_multiprocessor", "max_threads_per_block", "warp_size"]
    peak = asked.peak.value
    names = ("memory (eq. 10)", "multiprocessor (eq. 11)")
    formulas = (
        "memory_bytes_per_s / S x B_Sh x flops of a multiply-add / 2",
        f"min(1, share of multiply-adds x throughput / {lane}) x arithmetic peak",
    )
    if peak is None or any(device.get(key) is None for key in needs):
        return [
            term(name, formula, device, needs, lambda *_: 0.0)
            if peak is not None
            else Term(name, None, formula, reason=asked.peak.reason)
            for name, formula in zip(names, formulas, strict=True)
        ]
    best = lai_seznec.best_blocking(device, precision, peak)
    chosen = lai_seznec.inputs_of(best)
    mixes = {m.source for m in device.mixes if m.width_bits == best.width_bits}
    source = "equation 9, " + ("; ".join(sorted(mixes)) if mixes else "from the units' rates")
    bandwidth = device.quantities["memory_bytes_per_s"]
    size = given("S", precision.element_bytes, "B", "of an element")
    share = given("share of multiply-adds", best.share, "", "B_R^2 of B_R^2 + 2 B_R loads")
    rate = given("throughput", best.throughput, "threads/cycle", source)
    lanes = device.quantities[lane]
    whole = given("arithmetic peak", peak, "FLOP/s", asked.peak_source)
    return [
        Term(names[0], best.p_mem, formulas[0], (bandwidth, size, *chosen), "device memory"),
        Term(names[1], best.p_sm, formulas[1], (share, rate, lanes, whole, *chosen), best.resource),
    ]


def _mix_and_tail(asked: Asked) -> list[Term]:
    """Return the terms of issue slots, shared memory and whole blocks, at the best tile.

    The second one has no mix better than the device's table (equation 9): it bounds kernels
    whose operand registers are chosen no better than those of the loops in that table.
    """
    device, peak, lane = asked.device, asked.peak.value, asked.units.lane
    needs: tuple[str, ...] = modern.MIX_NEEDS
    if lane.startswith("tensor"):
        needs = ("multiprocessors", "registers_per_multiprocessor")
    elif device.get(lane) is not None:
        needs = (*needs, lane)
    absent = term(_MIX, _MIX_FORMULA, device, needs, lambda *_: 0.0)
    if absent.value is None or peak is None:
        reason = absent.reason or asked.peak.reason
        return [Term(_MIX, None, _MIX_FORMULA, absent.inputs, "", reason)]
    found = [_at_best_tile(asked, peak, needs, ())]
    mixes = modern.table_of(device)
    if mixes and lane == "fma_lanes.s":
        found.append(_at_best_tile(asked, peak, needs, mixes))
    return found


def _at_best_tile(asked: Asked, peak: float, needs: Sequence[str], mixes: Sequence[Mix]) -> Term:
    """Return one of the two terms of `_mix_and_tail`; with `mixes`, the derated one."""
    device, lane = asked.device, asked.units.lane
    best = modern.best_tile(
        asked.problem, device, lane, asked.units.instructions, tabulated=bool(mixes)
    )
    searched = "best of all that registers hold"
    limited = f"limited by {best.resource}"
    if mixes:
        points = "; ".join(sorted({f"{m.kind}, {m.source}" for m in mixes}))
        limited += f", at most as the table of mixes has it ({points})"
    return Term(
        "tabulated mix (eq. 11)" if mixes else _MIX,
        peak * best.efficiency,
        _MIX_FORMULA,
        (
            given("arithmetic peak", peak, "FLOP/s", asked.peak_source),
            given("mix", best.mix, "", limited),
            given("tail", best.tail, "", "whole blocks on whole multiprocessors"),
            given("share of multiply-adds", best.share, "", "of the main loop's instructions"),
            given("thread tile rows", best.rows, "", searched),
            given("thread tile columns", best.columns, "", searched),
            given("block m", best.block_m, "", searched),
            given("block n", best.block_n, "", searched),
            given("split k", best.split_k, "", searched),
            *(q for key in needs if (q := device.get(key)) is not None),
        ),
        best.resource if best.mix < 1 else "tail wave" if best.tail < 1 else asked.units.label,
    )


def _read_cache(asked: Asked) -> Term:
    """Return Nakasato's equation 1 at the read cache, with the largest b of equation 2."""
    device, precision = asked.device, asked.problem.precision
    b = nakasato.largest_cache_block(device, precision)
    return term(
        "read cache (Nakasato eq. 1)",
        "cache_bytes_per_s x multiprocessors x b x flops of a multiply-add / (2 S)",
        device,
        ["cache_bytes_per_s", "multiprocessors"],
        lambda rate, count: nakasato.attainable(
            rate * count, b, precision.element_bytes, precision.flops
        ),
        given("b", b, "", "largest that leaves two wavefronts (equation 2)"),
        given("S", precision.element_bytes, "B", "of an element"),
        given("registers", nakasato.tile_registers(b, precision), "", "section 4.2.2"),
        resource="read cache",
    )
