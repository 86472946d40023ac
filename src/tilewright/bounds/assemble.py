"""Collects every term that a device's numbers allow into one `Bound`."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import sqrt
from numbers import Integral, Real

from tilewright.bounds import modern, nakasato, residues, tensor_terms
from tilewright.bounds.asked import Asked
from tilewright.bounds.bound import Bound
from tilewright.bounds.levels import levels
from tilewright.bounds.main_loop import multiprocessor
from tilewright.bounds.modern import Compiled
from tilewright.bounds.schemes import PROMOTE_FP8, PROMOTE_K, arithmetic_of, real_product
from tilewright.bounds.terms import Term, given, term
from tilewright.bounds.units import ARITHMETIC, PEAK, Units, units_of
from tilewright.hardware.catalogue import CatalogueDevice
from tilewright.hardware.quantity import Quantity
from tilewright.problem import Problem

__all__ = ["How", "assemble"]


@dataclass(frozen=True)
class How:
    """How a product is computed: the arguments of `tilewright.bound` by the same names."""

    arithmetic: str = "ieee"
    accuracy: str | None = None
    promote_k: int | None = None
    presplit: bool = False
    sequence: str | None = None
    transfer: bool = False
    overlap: bool = False
    reads_c: bool = True
    warm_cache: bool = False
    sustained: bool = False
    kernel_rate: float | None = None
    compiled: Compiled | None = None


def assemble(problem: Problem, device: CatalogueDevice, how: How) -> Bound:
    """Return the bound of a problem on a device with these numbers; see `tilewright.bound`.

    Raises
    ------
    ValueError
        If an argument is wrong or the problem empty; the message names it.
    """
    _check(problem, how)
    names = (how.arithmetic,) if how.accuracy is None else arithmetic_of(how.accuracy)
    for what, given_name in (("accuracy", how.accuracy), ("arithmetic", how.arithmetic)):
        letters = ("d", "z") if residues.NAME in names else ("s", "c")
        if given_name not in (None, "ieee") and problem.precision.letter not in letters:
            raise ValueError(
                f"{what}={given_name!r} goes with precision {' or '.join(letters)},"
                f" not {problem.precision}; use precision {letters[problem.precision.is_complex]},"
                " or ieee"
            )
    found = [
        _of_residues(problem, device, how)
        if name == residues.NAME
        else _bound_with(problem, device, units_of(problem, device, name, how.sequence), how)
        for name in names
    ]
    # What no unit of the device multiplies may still have other limits, which mean nothing.
    able = [one for one in found if one.term(PEAK).value is not None]
    return max(able, key=lambda one: one.limit) if able else found[0]


def _check(problem: Problem, how: How) -> None:
    """Refuse what has no bound, and arguments that mean nothing together."""
    if not isinstance(problem, Problem):
        raise ValueError(f"problem={problem!r} is none; give a tilewright.Problem")
    if how.accuracy is not None and how.arithmetic != "ieee":
        raise ValueError(
            f"accuracy={how.accuracy!r} goes without arithmetic={how.arithmetic!r}; give one"
        )
    if not problem.flops:
        raise ValueError(f"size={problem.shape} is empty; a bound needs sizes of 1 or more")
    if how.kernel_rate is not None and not _is_positive(how.kernel_rate, Real):
        raise ValueError(f"kernel_rate={how.kernel_rate!r} is no rate; give FLOP/s above 0")
    if how.promote_k is not None and not _is_positive(how.promote_k, Integral):
        raise ValueError(f"promote_k={how.promote_k!r} is no interval; give 1 step of k or more")
    if how.compiled is not None and not isinstance(how.compiled, Compiled):
        raise ValueError(f"compiled={how.compiled!r} is none; give a tilewright.bounds.Compiled")
    if how.arithmetic not in ARITHMETIC:
        raise ValueError(
            f"arithmetic={how.arithmetic!r} is unknown; use one of {', '.join(ARITHMETIC)}"
        )
    whole = how.accuracy in (None, "ieee", "fp64") and how.arithmetic in ("ieee", residues.NAME)
    plain = whole and not problem.precision.is_short
    for name, value, without in (
        ("promote_k", how.promote_k, plain and "arithmetic on tensor cores"),
        ("presplit", how.presplit or None, whole and "arithmetic in parts"),
        ("overlap", how.overlap or None, not how.transfer and "transfer"),
        ("kernel_rate", how.kernel_rate, not how.transfer and "transfer"),
        ("sequence", how.sequence, problem.precision.parts != 2 and "double-double"),
    ):
        if value is not None and without:
            raise ValueError(f"{name}={value} means nothing without {without}; leave it out")


def _is_positive(x: object, kind: type[Real | Integral]) -> bool:
    """Whether it is a number of a kind, above 0."""
    return isinstance(x, kind) and x > 0  # type: ignore[operator]  # of numbers.Real


def _bound_with(problem: Problem, device: CatalogueDevice, units: Units, how: How) -> Bound:
    promote_k = how.promote_k or (None if units.scheme is None else PROMOTE_K)
    if promote_k is None and units.lane == "tensor.fp8":
        promote_k = PROMOTE_FP8
    multiplied = real_product(problem) if units.of_single else problem
    asked = Asked(problem, multiplied, device, units, units.peak(device), promote_k)
    emulates = units.of_single and (units.scheme is not None or asked.expands)
    emulates = emulates and asked.peak.value is not None
    splits = emulates and not how.presplit
    terms = [asked.peak]
    if how.sustained:
        terms.append(_clock(asked))
        asked = asked if terms[-1].value is None else replace(asked, peak=terms[-1])
    # What a split has just written may be in the cache.
    terms.append(_memory(asked, how.reads_c, how.warm_cache or splits))
    terms += multiprocessor(asked) + _shared_cache(asked) + _compiled(asked, how.compiled)
    if units.warpgroups and asked.peak.value is not None:
        terms += tensor_terms.beside_products(asked, how.reads_c)
    known = [t.value for t in terms if t.value is not None]
    reads = (
        levels(multiplied, device, min(known), tuple(terms), units.element_bytes) if known else ()
    )
    notes = _notes(asked)
    if emulates:
        notes += tensor_terms.notes(asked, terms, splits, how.warm_cache)
    if splits:
        terms.append(tensor_terms.with_split(asked, terms, how.warm_cache))
    if how.transfer:
        terms.append(_transfer(asked, terms, how.kernel_rate, how.reads_c, how.overlap))
    without = units.lane.startswith("tensor.") and terms[0].value is None
    return Bound(problem, device.id, device.name, units.label, tuple(terms), reads, notes, without)


def _of_residues(problem: Problem, device: CatalogueDevice, how: How) -> Bound:
    plain = How(sustained=how.sustained, reads_c=False, warm_cache=True)
    products = assemble(residues.products(problem), device, plain)
    choice = assemble(residues.choice(problem), device, plain)
    terms, label = residues.terms_of(problem, device, products, choice, how.reads_c)
    if how.transfer:
        units = units_of(problem, device, "ieee", None)
        asked = Asked(problem, problem, device, units, terms[0])
        terms.append(_transfer(asked, terms, how.kernel_rate, how.reads_c, how.overlap))
    notes = ("operands may ask for more moduli, or for IEEE arithmetic",)
    without = products.without_tensor_cores
    return Bound(problem, device.id, device.name, label, tuple(terms), (), notes, without)


def _clock(asked: Asked) -> Term:
    """Return the peak at the clock that the power limit leaves in an endless run."""
    lane = asked.units.lane
    # Types differ in what a multiply takes: each of the short ones has a clock of its own.
    short = lane.removeprefix("tensor.") if asked.units.warpgroups else "matrix"
    key = short if lane.startswith("tensor") else lane.removeprefix("fma_lanes.")
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


def _memory(asked: Asked, reads_c: bool, warm_cache: bool) -> Term:
    """Return the term of compulsory traffic: every element once, C written and perhaps read."""
    p, units = asked.problem, asked.units
    a, b, c = p.elements
    traffic = (a + b) * units.element_bytes + c * units.result_bytes * (2 if reads_c else 1)
    cache = asked.device.get("l2_bytes") if warm_cache else None
    kept = 0.0 if cache is None else cache.value
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


def _shared_cache(asked: Asked) -> list[Term]:
    """Return equation 1 at the last shared cache, where blocks as large as registers read it."""
    device, p = asked.device, asked.problem
    if device.spec.kind == "cpu" or device.value("async_copy") != 1:
        return []  # the two papers' devices reach their limits before this one
    size = asked.units.element_bytes
    held = device.value("registers_per_multiprocessor") or 0.0
    shared_by = max(1.0, device.value("cluster_blocks") or 1.0)
    words = max(1, p.precision.element_bytes // 4) * (1 if asked.promote_k is None else 2)
    b = sqrt(held * shared_by / words)
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


def _compiled(asked: Asked, compiled: Compiled | None) -> list[Term]:
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
    asked: Asked, terms: list[Term], kernel_rate: float | None, reads_c: bool, overlap: bool
) -> Term:
    """Return Nakasato's equations 3 to 5; without a kernel's rate, with the smallest term."""
    p = asked.given
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


def _notes(asked: Asked) -> tuple[str, ...]:
    """Return the assumptions behind the numbers."""
    notes = []
    if asked.given.precision.is_complex:
        notes.append("a complex product is four real ones; the three-product method is another")
    if asked.given.precision.parts == 2:
        notes.append("pairs are multiplied by this sequence on double-precision units, not by"
                     " splitting them into integers for tensor cores")  # fmt: skip
    clock = asked.device.get("clock_hz")
    if asked.device.spec.kind == "cpu" and clock is not None:
        notes.append(f"a CPU's clock is no constant; the one here is {clock.source}")
    return tuple(notes)
