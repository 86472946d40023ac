"""`bound`: collects every term that a device's numbers allow into one `Bound`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import sqrt

from tilewright.bounds import lai_seznec, modern, nakasato
from tilewright.bounds.bound import Bound
from tilewright.bounds.levels import levels
from tilewright.bounds.modern import Compiled
from tilewright.bounds.terms import Term, given, term
from tilewright.bounds.units import Units, units_of
from tilewright.hardware import CatalogueDevice, Mix, Quantity, catalogue_device
from tilewright.problem import Problem

__all__ = ["bound"]

_MIX, _MIX_FORMULA = "instruction mix and tail wave", "arithmetic peak x mix x tail"


@dataclass(frozen=True)
class _Asked:
    """A problem on a device: what every term is computed from.

    `peak` is that of the arithmetic, at the clock that is asked for.
    """

    problem: Problem
    device: CatalogueDevice
    units: Units
    peak: Term

    @property
    def peak_source(self) -> str:
        """Where the terms that begin with the peak have it from."""
        return f"term {self.peak.name!r}"


def bound(
    problem: Problem,
    device: CatalogueDevice | str,
    *,
    arithmetic: str = "ieee",
    sequence: str | None = None,
    transfer: bool = False,
    overlap: bool = False,
    reads_c: bool = True,
    warm_cache: bool = False,
    sustained: bool = False,
    kernel_rate: float | None = None,
    compiled: Compiled | None = None,
) -> Bound:
    """Return how fast a problem can be on a device, and which resource says so.

    Parameters
    ----------
    problem : Problem
        Sizes, at least 1 each, and precision: s, d, c, z or e (double-double).
    device : CatalogueDevice or str
        A device with sourced numbers, or its id in the catalogue.
    arithmetic : str
        ``"ieee"``: the problem's own precision on the fastest units that have it.
        ``"tf32"``, ``"fp16"``, ``"bf16"``, ``"int8"``: matrix units, A and B stored so; the
        problem's precision is then ``"s"``.
    sequence : str, optional
        Double-double's instruction sequence; without it the one its kernels compute with.
    transfer : bool
        Whether A, B and C come from the host and C goes back.
    overlap : bool
        Whether transfer hides behind the kernel; Nakasato's equations 3 to 5 add the times.
    reads_c : bool
        Whether C is read too, as it must be unless beta = 0.
    warm_cache : bool
        Whether earlier calls may have left operands in the last cache: then as many bytes as
        it holds need not come from memory.
    sustained : bool
        Whether calls follow each other without end, so that the power limit sets the clock.
        A short run may keep the highest clock, which is what counts otherwise.
    kernel_rate : float, optional
        FLOP/s of a kernel, for the transfer term; the smallest other term without it.
    compiled : Compiled, optional
        What the machine code of one kernel says; then the bound is that kernel's.

    Returns
    -------
    Bound
        Every term, unknown ones with their reason; operations are counted as BLAS does, with
        four real products to a complex one.

    Raises
    ------
    ValueError
        If an argument is wrong or the problem empty; the message names it.

    References
    ----------
    J. Lai and A. Seznec, "Bound the Peak Performance of SGEMM on GPU with software-controlled
    fast memory", 2012.  N. Nakasato, "A Fast GEMM Implementation on a Cypress GPU", 2010.
    """
    if isinstance(device, str):
        device = catalogue_device(device)
    if not problem.flops:
        raise ValueError(f"size={problem.shape} is empty; a bound needs sizes of 1 or more")
    if kernel_rate is not None and not kernel_rate > 0:
        raise ValueError(f"kernel_rate={kernel_rate} is no rate; give FLOP/s above 0")
    units = units_of(problem, device, arithmetic, sequence)
    asked = _Asked(problem, device, units, units.peak(device))
    terms = [asked.peak]
    if sustained:
        terms.append(_clock(asked))
        asked = asked if terms[-1].value is None else replace(asked, peak=terms[-1])
    terms.append(_memory(asked, reads_c, warm_cache))
    terms += _multiprocessor(asked) + _shared_cache(asked) + _compiled(asked, compiled)
    known = [t.value for t in terms if t.value is not None]
    reads = levels(problem, device, min(known), tuple(terms)) if known else ()
    if transfer:
        terms.append(_transfer(asked, terms, kernel_rate, reads_c, overlap))
    notes = _notes(asked)
    return Bound(problem, device.id, device.name, units.label, tuple(terms), reads, notes)


def _clock(asked: _Asked) -> Term:
    """Return the peak at the clock that the power limit leaves in an endless run."""
    lane = asked.units.lane
    key = "matrix" if lane.startswith("tensor") else lane.removeprefix("fma_lanes.")
    peak = asked.peak.value or 0.0
    return term(
        "clock under the power limit",
        f"arithmetic peak x min(1, sustained_clock_hz.{key} / clock_hz)",
        asked.device,
        (f"sustained_clock_hz.{key}", "clock_hz"),
        lambda sustained, clock: peak * min(1.0, sustained / clock),
        given("arithmetic peak", peak, "FLOP/s", asked.peak_source),
        resource="power",
    )


def _memory(asked: _Asked, reads_c: bool, warm_cache: bool) -> Term:
    """Return the term of compulsory traffic: every element once, C written and perhaps read."""
    p, units = asked.problem, asked.units
    operands = (p.m * p.k + p.k * p.n) * units.element_bytes
    results = p.m * p.n * units.result_bytes * (2 if reads_c else 1)
    cache = asked.device.get("l2_bytes") if warm_cache else None
    kept = 0.0 if cache is None else cache.value
    traffic = operands + results
    used = () if cache is None else (cache,)
    return term(
        "device memory",
        f"flops x memory_bytes_per_s / (bytes{' - l2_bytes' if used else ''})",
        asked.device,
        ["memory_bytes_per_s"],
        # All of it may be in the cache: then memory sets no limit.
        lambda rate: p.flops * rate / (traffic - kept) if traffic > kept else float("inf"),
        given("flops", p.flops, "FLOP"),
        given("bytes", traffic, "B", "A, B and C once each"),
        *used,
        resource="device memory",
    )


def _multiprocessor(asked: _Asked) -> list[Term]:
    """Return the terms of the main loop, by the model that fits the device."""
    device = asked.device
    if device.get("wave_registers") is not None:
        return [_read_cache(asked)]
    if device.value("async_copy") == 0 and asked.problem.precision.parts == 1:
        return _software_controlled(asked)
    if device.value("async_copy") == 1:
        return _mix_and_tail(asked)
    if device.spec.kind == "gpu":
        reason = f"unknown for {device.id}: async_copy (how blocks reach shared memory)"
        return [Term(_MIX, None, "see the bounds' documentation",
                     reason=reason)]  # fmt: skip
    return []


def _software_controlled(asked: _Asked) -> list[Term]:
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


def _mix_and_tail(asked: _Asked) -> list[Term]:
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


def _at_best_tile(asked: _Asked, peak: float, needs: Sequence[str], mixes: Sequence[Mix]) -> Term:
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


def _read_cache(asked: _Asked) -> Term:
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


def _shared_cache(asked: _Asked) -> list[Term]:
    """Return equation 1 at the last shared cache, where blocks as large as registers read it."""
    device, p = asked.device, asked.problem
    if device.spec.kind == "cpu" or device.value("async_copy") != 1:
        return []  # the two papers' devices reach their limits before this one
    size = asked.units.element_bytes
    held = device.value("registers_per_multiprocessor") or 0.0
    shared_by = max(1.0, device.value("cluster_blocks") or 1.0)
    b = sqrt(held * shared_by / max(1, p.precision.element_bytes // 4))
    direct = device.get("l2_bytes_per_s") is not None or device.get("clock_hz") is None
    needs = ["l2_bytes_per_s"] if direct else ["l2_bytes_per_cycle", "clock_hz"]
    source = "b_m b_n = b^2 fills a multiprocessor's registers"
    if shared_by > 1:
        source = f"b_m b_n = b^2 fills the registers of {shared_by:g} blocks, which one load serves"
    return [
        term(
            "shared cache (L2)",
            f"{' x '.join(needs)} x flops / (S k (m max(1, n / b_n) + n max(1, m / b_m)))",
            device,
            needs,
            lambda rate, clock=1.0: modern.cache_rate(p, rate * clock, b, size),
            given("b", b, "", source),
            given("S", size, "B", "of an element"),
            resource="shared cache",
        )
    ]


def _compiled(asked: _Asked, compiled: Compiled | None) -> list[Term]:
    """Return the terms of one kernel's machine code."""
    if compiled is None or asked.peak.value is None:
        return []
    peak = asked.peak.value
    whole = given("arithmetic peak", peak, "FLOP/s", asked.peak_source)
    shares = {
        "useful_share": ("compiled loop", "issue slots"),
        "port_share": ("register ports", "register ports"),
    }
    found = []
    for key, (name, resource) in shares.items():
        share = getattr(compiled, key)
        if share is not None:
            inputs = (whole, given(key, share, "", "machine code of the kernel"))
            found.append(Term(name, peak * share, f"arithmetic peak x {key}", inputs, resource))
    return found


def _transfer(
    asked: _Asked, terms: list[Term], kernel_rate: float | None, reads_c: bool, overlap: bool
) -> Term:
    """Return Nakasato's equations 3 to 5; without a kernel's rate, with the smallest term."""
    p = asked.problem
    known = [t.value for t in terms if t.value is not None]
    rate = kernel_rate or min(known, default=float("inf"))
    origin = "given" if kernel_rate else "smallest of the other terms"
    join = "max" if overlap else "sum"
    inputs: tuple[Quantity, ...] = (
        given("flops", p.flops, "FLOP"),
        given("bytes", nakasato.transfer_bytes(p, reads_c=reads_c), "B", "A, B, C in and C out"),
        given("F", rate, "FLOP/s", origin),
    )
    link = asked.device.value("link_bytes_per_s")
    if link:
        size = nakasato.size_where_link_fades(link, rate, p.precision, reads_c=reads_c)
        where = "square problems reach 90 % of F from here on, without overlap"
        inputs = (*inputs, given("N", size, "", where))
    return term(
        "host transfer (Nakasato eqs. 3-5)",
        f"flops / {join}(bytes / link_bytes_per_s, flops / F)",
        asked.device,
        ["link_bytes_per_s"],
        lambda speed: nakasato.transfer_rate(p, speed, rate, reads_c=reads_c, overlap=overlap),
        *inputs,
        resource="host link",
    )


def _notes(asked: _Asked) -> tuple[str, ...]:
    """Return the assumptions behind the numbers."""
    notes = []
    if asked.problem.precision.is_complex:
        notes.append("a complex product is four real ones; the three-product method is another")
    if asked.problem.precision.parts == 2:
        notes.append("pairs are multiplied by this sequence on double-precision units, not by"
                     " splitting them into integers for matrix units")  # fmt: skip
    if asked.device.id == "cpu" or asked.device.spec.kind == "cpu":
        notes.append("a CPU's clock may exceed what its driver reports")
    return tuple(notes)
