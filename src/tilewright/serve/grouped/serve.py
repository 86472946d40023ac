"""grouped_gemm(): products of matrices of different sizes in one call."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from tilewright.problem import Trans
from tilewright.serve.arrange import shapes_of
from tilewright.serve.arrays.adapters import adapter_of, adapter_on_cuda
from tilewright.serve.checks import refuse_masked
from tilewright.serve.gemm import gemm
from tilewright.serve.grouped.overlaps import place_of, refuse_overlaps
from tilewright.serve.narrow.types import is_narrow, results_of, type_name
from tilewright.serve.overlap import overlaps_itself

if TYPE_CHECKING:
    from tilewright.backend import LiveDevice

__all__ = ["grouped_gemm"]


def grouped_gemm(
    a: Sequence[Any],
    b: Sequence[Any],
    c: Sequence[Any] | None = None,
    *,
    alpha: complex = 1,
    beta: complex = 0,
    trans_a: str | Trans = "N",
    trans_b: str | Trans = "N",
    accuracy: str = "ieee",
    out_dtype: Any = None,
    device: str | LiveDevice | None = None,
) -> list[Any]:
    """Return alpha op(a[i]) op(b[i]) + beta c[i] for each i: products of any sizes, as a list.

    On a CUDA device one launch computes up to 128 products of CuPy's arrays or PyTorch's, where a
    kernel for groups takes them; all others are calls of `tilewright.gemm`, one after the other.

    Parameters
    ----------
    a, b : sequence of array
        As many matrices each, of one kind, one device and one dtype, as `tilewright.gemm` takes
        them.  op(a[i]) is m x k and op(b[i]) k x n, of sizes that no other product need have.
    c : sequence of array, optional
        The results, changed in place and returned.  Without it they are new arrays.
    alpha, beta, trans_a, trans_b, accuracy, out_dtype, device
        As of `tilewright.gemm`, the same for all products.

    Returns
    -------
    list of array
        `c`'s arrays, or new ones: of CuPy and PyTorch on a CUDA device parts of one allocation,
        which is freed with the last of them.

    Raises
    ------
    ValueError
        If an argument is wrong; the message names it.  Nothing was computed.
    TypeError
        If `a`, `b` and `c` are not arrays of one kind.
    BackendError
        If the device refuses to compile or to run a kernel.

    Notes
    -----
    The contract is `tilewright.gemm`'s.  No c[i] may overlap another one, or any a[j] or b[j];
    operands may be in several products.
    """
    lists = _lists(a, b, c)
    if not lists[0]:
        return []
    options: dict[str, Any] = {
        "alpha": alpha, "beta": beta, "trans_a": trans_a, "trans_b": trans_b,
    }  # fmt: skip
    if accuracy == "ieee" and device is None:
        # Imported by such calls alone: those of host arrays do without CUDA.
        from tilewright.serve.grouped.members import in_one_launch

        made = in_one_launch(*lists, **options, out_dtype=out_dtype)
        if made is not None:
            results, rest = made
            for at in rest:
                gemm(lists[0][at], lists[1][at], results[at], **options)
            return results
    options |= {"accuracy": accuracy, "out_dtype": out_dtype, "device": device}
    return _one_by_one(*lists, **options)


def _one_by_one(a: list[Any], b: list[Any], c: list[Any], **options: Any) -> list[Any]:
    """Return the products by calls of `tilewright.gemm`, once all arrays go together."""
    ops = Trans.parse(options["trans_a"], "trans_a"), Trans.parse(options["trans_b"], "trans_b")
    _all_or_none(c)
    for at, (x, y, z) in enumerate(zip(a, b, c, strict=True)):
        refuse_masked(**{f"a[{at}]": x, f"b[{at}]": y, f"c[{at}]": z})
        _check(at, (x, y, z), ops, a[0])
        if options["out_dtype"] is not None and z is not None and z.dtype != c[0].dtype:
            raise ValueError(f"c[{at}].dtype={z.dtype} but c[0].dtype={c[0].dtype}; give one type")
    if not is_narrow(a[0]):
        _look(a, b, c)
    refuse_overlaps(a, b, c)
    return [gemm(x, y, z, **options) for x, y, z in zip(a, b, c, strict=True)]


def _lists(a: Any, b: Any, c: Any) -> tuple[list[Any], list[Any], list[Any]]:
    """Return as many arrays of each, None for results that are to be made."""
    made: list[list[Any]] = []
    for name, given in (("a", a), ("b", b), ("c", c)):
        if given is None and name == "c":
            made.append([None] * len(made[0]))
        elif isinstance(given, list | tuple):
            made.append(list(given))
        else:
            raise TypeError(f"{name} is a {type(given).__name__}; give a list of matrices")
        if len(made[-1]) != len(made[0]):
            raise ValueError(
                f"len({name})={len(made[-1])} but len(a)={len(made[0])}; give one for each product"
            )
    a, b, c = made
    if c and c[0] is None:
        _all_or_none(c)
    return a, b, c


def _all_or_none(c: list[Any]) -> None:
    """Refuse results of which some are given."""
    none = [at for at, x in enumerate(c) if x is None]
    if none and len(none) < len(c):
        raise TypeError(f"c[{none[0]}] is None; give an array, or no c at all")


def _check(at: int, of: tuple[Any, Any, Any], ops: tuple[Trans, Trans], first: Any) -> None:
    """Refuse matrices that are no product, by the numbers that they have in their lists."""
    for name, x in zip("abc", of, strict=True):
        if x is None:
            if name != "c":
                raise TypeError(f"{name}[{at}] is None; give an array")
            continue
        if not hasattr(x, "shape"):
            raise TypeError(f"{name}[{at}] is a {type(x).__name__}; give an array")
        if len(x.shape) != 2:
            raise ValueError(
                f"{name}[{at}].shape={tuple(x.shape)} is not a matrix; give two dimensions"
            )
        layout = str(getattr(x, "layout", ""))  # which other libraries' arrays may have, too
        if layout.startswith("torch.") and layout != "torch.strided":
            raise ValueError(
                f"{name}[{at}].layout={layout} is not dense; give {name}[{at}].to_dense()"
            )
        if not _alike(x, first):
            raise TypeError(
                f"{name}[{at}] is a {type(x).__name__} but a[0] is a {type(first).__name__};"
                " give arrays of one kind"
            )
    if of[0].dtype != first.dtype:
        raise ValueError(f"a[{at}].dtype={of[0].dtype} but a[0].dtype={first.dtype}; give one type")
    if of[1].dtype != first.dtype:
        raise ValueError(f"b[{at}].dtype={of[1].dtype} but a[0].dtype={first.dtype}; give one type")
    if of[2] is not None:
        _check_result(at, of[2], first)
    try:
        shapes_of(*of, *ops)
    except ValueError as error:
        raise ValueError(f"product {at}: {error}") from None


def _look(*lists: list[Any]) -> None:
    """Refuse arrays on a CUDA device that `gemm` would refuse once others are computed."""
    adapter = adapter_on_cuda(lists[0][0])
    if adapter is None:
        return
    from tilewright.serve.arrays.device import one_device, operand_of

    for at, product in enumerate(zip(*lists, strict=True)):
        adapter_of(*product)
        views = {}
        for name, x in zip("abc", product, strict=True):
            if x is not None and 0 not in x.shape:  # gemm looks at no others
                views[f"{name}[{at}]"] = seen = adapter.view(f"{name}[{at}]", x)
                operand_of(f"{name}[{at}]", seen, seen)
        if views:
            one_device(views)


def _alike(x: Any, first: Any) -> bool:
    """Whether `gemm` takes both at once: NumPy's subclasses are its arrays."""
    kinds = type(x) is type(first) or (isinstance(x, np.ndarray) and isinstance(first, np.ndarray))
    return kinds or adapter_on_cuda(x, first) is not None


def _check_result(at: int, c: Any, first: Any) -> None:
    """Refuse a result that cannot be written, or does not hold products of a[0]'s type."""
    kinds = results_of(type_name(first.dtype)) if is_narrow(first) else ()
    if type_name(c.dtype) not in kinds if kinds else c.dtype != first.dtype:
        wanted = " or ".join(kinds) or first.dtype
        raise ValueError(f"c[{at}].dtype={c.dtype} does not hold the result; give {wanted}")
    words = getattr(c, "words", c)  # of double-double
    if isinstance(words, np.ndarray) and not words.flags.writeable:
        raise ValueError(f"c[{at}] is read-only; give a writeable array")
    place = place_of(c)
    # A double-double's words lie side by side.
    if place is not None and overlaps_itself(place[2][:2], place[3][:2]):
        raise ValueError(
            f"c[{at}].strides={tuple(place[3][:2])} overlap themselves;"
            f" give c[{at}] memory of its own"
        )
