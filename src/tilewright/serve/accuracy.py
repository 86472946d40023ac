"""What a caller may ask of a product's accuracy, and the arithmetic that it names."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tilewright.precision import PRECISIONS, Precision, double_double_row

if TYPE_CHECKING:
    from tilewright.serve.decision import Decision

__all__ = [
    "BY_RESIDUES",
    "INVARIANT",
    "arithmetic_of",
    "by_precision",
    "check_report",
    "refuse_contract",
    "refuse_elsewhere",
    "with_accuracy",
]

# Of `gemm` on a device's arrays: IEEE arithmetic by a kernel that neither m nor n has a say in.
INVARIANT = "batch_invariant"

# What residues on int8 tensor cores may compute: of doubles, and of double-double.
BY_RESIDUES = ("fp64", "accurate")

# Those that a precision's own kernels compute.
_PLAIN = ("ieee", "accurate", "fast")


def with_accuracy(precision: Precision, accuracy: str, *, invariant: bool = True) -> Precision:
    """Return the precision to compute in.

    `invariant`: whether the caller can have its rows batch-invariant on some device.

    Raises
    ------
    ValueError
        If there is no such accuracy for it.
    """
    if accuracy == "ieee":
        return precision
    known: tuple[str, ...] = _PLAIN if precision.parts == 2 else ("ieee",)
    if precision.letter in "sc":
        from tilewright.stencil.split import SCHEMES

        known = ("ieee", "fp32", "tf32", *SCHEMES)
    elif precision.letter in "dz":
        known = ("ieee", "fp64")
    if accuracy not in known:
        able = invariant and precision.parts == 1
        more = f", or on a device {INVARIANT}" if able else ""
        raise ValueError(
            f"accuracy={accuracy!r} is unknown for {precision.name};"
            f" use one of {', '.join(known)}{more}"
        )
    if accuracy != "fast":
        return precision
    return double_double_row(precision.is_complex, accuracy)


def by_precision(accuracy: str) -> dict[str, str]:
    """Return an accuracy for each of s, d, c and z: "ieee" for those that do not know it.

    Raises
    ------
    ValueError
        If none of them does.
    """
    found, unknown = dict.fromkeys("sdcz", "ieee"), list[ValueError]()
    for letter in found:
        try:
            with_accuracy(PRECISIONS[letter], accuracy)
        except ValueError as error:
            unknown.append(error)
        else:
            found[letter] = accuracy
    if len(unknown) == len(found):
        raise unknown[0]
    return found


def arithmetic_of(accuracy: str, precision: Precision) -> str:
    """Return the arithmetic that an accuracy names; nothing for the precision's own kernels."""
    if precision.letter in ("e", "w"):
        return "accurate"
    return "" if accuracy in _PLAIN else accuracy


def check_report(report: Any) -> None:
    """Refuse a report that could be told nothing, before anything is computed."""
    if report is not None and not hasattr(report, "begin"):
        raise TypeError(f"report={report!r} is no Decision; give tilewright.Decision()")


def refuse_contract(accuracy: str, report: Decision | None) -> None:
    """Refuse what numbers of 8 and 16 bits have no choice in."""
    if accuracy != "ieee":
        raise ValueError(f"accuracy={accuracy!r} is not for numbers of 8 and 16 bits; leave it out")
    if report is not None:
        raise ValueError("report is for float32 and wider arrays; leave it out")


def refuse_elsewhere(accuracy: str, is_elsewhere: bool) -> None:
    """Refuse what is only for arrays on a CUDA device: others travel tile by tile, say."""
    if accuracy == INVARIANT and is_elsewhere:
        raise ValueError(f"accuracy={accuracy!r} is for arrays on a CUDA device; move them there")
