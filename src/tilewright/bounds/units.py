"""Which units multiply, and what one multiply-add of elements costs them."""

from __future__ import annotations

from dataclasses import dataclass

from tilewright.bounds.double_double import SEQUENCE_OF, SEQUENCES, Sequence
from tilewright.bounds.schemes import OF_SINGLE, SCHEMES, Scheme
from tilewright.bounds.terms import Term, given, term
from tilewright.hardware.catalogue import CatalogueDevice
from tilewright.hardware.quantity import Quantity
from tilewright.problem import Problem

__all__ = ["ARITHMETIC", "PEAK", "Units", "units_of"]

PEAK = "arithmetic peak"  # the term that every bound has

# Arithmetics by name: the problem's own precision, nothing less; single precision from parts;
# double precision from residues (`tilewright.bounds.residues`).
ARITHMETIC = ("ieee", *SCHEMES, "residues")

# What tensor cores call the types that they take: as the precision's letter, or all of FP8 alike.
_LANES = {"float8_e4m3fn": "fp8", "float8_e5m2": "fp8"}


@dataclass(frozen=True)
class Units:
    """What multiplies.

    Parameters
    ----------
    label : str
        For people.
    lane : str
        Quantity of the multiply-adds a cycle and multiprocessor.
    published : str
        Quantity of the published peak, used where lanes or clock are unknown.
    instructions : float
        Of one multiply-add of elements.
    element_bytes, result_bytes : int
        Of A and B, and of C.
    sequence : Sequence or None
        Of double-double arithmetic.
    scheme : Scheme or None
        Of single precision emulated by products of parts.
    """

    label: str
    lane: str
    published: str
    instructions: float
    element_bytes: int
    result_bytes: int
    sequence: Sequence | None = None
    scheme: Scheme | None = None

    @property
    def products(self) -> int:
        """Products of parts for one of elements."""
        return 1 if self.scheme is None else self.scheme.products

    @property
    def parts(self) -> int:
        """Stored parts of an element of A or B."""
        return 1 if self.scheme is None else self.scheme.parts

    @property
    def of_single(self) -> bool:
        """Whether tensor cores compute single precision, elements of which may be complex."""
        return self.scheme is not None or self.lane == "tensor.tf32"

    @property
    def warpgroups(self) -> bool:
        """Whether the tensor cores have instructions of this type that read shared memory."""
        return self.lane.startswith("tensor.") and self.lane not in ("tensor.s", "tensor.d")

    def peak(self, device: CatalogueDevice) -> Term:
        """Return the arithmetic peak in FLOP/s as BLAS counts them."""
        if self.sequence is not None:
            return self._emulated(device)
        needs = (self.lane, "multiprocessors", "clock_hz")
        each = self.products
        counted = () if each == 1 else (given("products", each, "", str(self.scheme)),)
        shared = "" if each == 1 else " / products"
        if any(device.get(key) is None for key in needs) and device.get(self.published):
            return term(
                PEAK,
                f"{self.published}{shared}",
                device,
                [self.published],
                lambda peak: peak / each,
                *counted,
                resource=self.label,
            )
        extra = device.get("extra_flops.s") if self.lane == "fma_lanes.s" else None
        others: tuple[Quantity, ...] = counted if extra is None else (extra,)
        plus = 0.0 if extra is None else extra.value
        lanes = f"2 x {self.lane}" if extra is None else f"(2 x {self.lane} + extra_flops.s)"
        return term(
            PEAK,
            f"{lanes} x multiprocessors x clock_hz{shared}",
            device,
            needs,
            lambda lane, count, clock: (2 * lane + plus) * count * clock / each,
            *others,
            resource=self.label,
        )

    def _emulated(self, device: CatalogueDevice) -> Term:
        """Return the peak of a sequence of double-precision instructions."""
        sequence = self.sequence
        assert sequence is not None
        counts = (
            given("additions", sequence.additions, "", sequence.source),
            given("multiplications", sequence.multiplications, "", sequence.source),
        )
        formula = "2 / (additions / add rate + multiplications / multiply-add rate)"
        published = device.get("peak.d")
        if device.get("clock_hz") is None and published is not None:
            return term(
                PEAK,
                f"{formula}, both peak.d / 2",
                device,
                ["peak.d"],
                lambda peak: sequence.rate(peak / 2),
                *counts,
                resource=self.label,
            )
        adds = device.get("add_lanes.d")
        faster = () if adds is None else (adds,)

        def rate(lane: float, count: float, clock: float) -> float:
            add = (adds.value if adds is not None else lane) * count * clock
            return sequence.rate(lane * count * clock, add)

        return term(
            PEAK,
            f"{formula}, rates = lanes x multiprocessors x clock_hz",
            device,
            (self.lane, "multiprocessors", "clock_hz"),
            rate,
            *faster,
            *counts,
            resource=self.label,
        )


def units_of(
    problem: Problem, device: CatalogueDevice, arithmetic: str, sequence: str | None
) -> Units:
    """Return the fastest units that do this arithmetic on the device.

    Parameters
    ----------
    problem : Problem
        Its precision.
    device : CatalogueDevice
        Where it runs.
    arithmetic : str
        One of `ARITHMETIC` but residues, or ``"tf32"`` where an accuracy names it; one that the
        precision has.
    sequence : str or None
        A key of `SEQUENCES`, for double-double; the precision's own without it.

    Raises
    ------
    ValueError
        If the sequence is unknown.
    """
    precision = problem.precision
    size = precision.element_bytes
    if arithmetic == "ieee" and precision.is_short:
        type_ = _LANES.get(precision.dtype_name, precision.letter.removesuffix("_f32"))
        label, lane = f"{type_} tensor cores", f"tensor.{type_}"
        return Units(label, lane, f"peak.{type_}", 1, size, precision.result_bytes)
    if arithmetic in OF_SINGLE:
        scheme = SCHEMES.get(arithmetic)
        type_ = arithmetic if scheme is None else scheme.stored
        label = f"{type_} tensor cores" + ("" if scheme is None else f", {scheme}")
        element = 4 if scheme is None else scheme.element_bytes
        return Units(label, f"tensor.{type_}", f"peak.{type_}", 1, element, 4, scheme=scheme)
    per_element = precision.flops // 2
    if precision.parts == 2:
        if sequence is not None and sequence not in SEQUENCES:
            raise ValueError(f"sequence={sequence!r} is unknown; use one of {', '.join(SEQUENCES)}")
        chosen = SEQUENCES[sequence or SEQUENCE_OF[precision.letter]]
        label = f"double-precision units, sequence {chosen.name}"
        return Units(
            label, "fma_lanes.d", "peak.d", per_element * chosen.instructions, size, size, chosen
        )
    real = "s" if precision.real_bytes == 4 else "d"
    matrix, simple = device.value(f"tensor.{real}"), device.value(f"fma_lanes.{real}")
    if matrix is not None and matrix >= (simple or 0):
        return Units("tensor cores", f"tensor.{real}", f"peak.{real}", per_element, size, size)
    return Units("multiply-add units", f"fma_lanes.{real}", f"peak.{real}", per_element, size, size)
