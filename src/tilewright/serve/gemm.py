"""gemm(): arrays in, the tuned kernel chosen and launched, arrays out."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from tilewright.problem import Trans
from tilewright.serve.accuracy import (
    INVARIANT,
    arithmetic_of,
    check_report,
    refuse_contract,
    refuse_elsewhere,
    with_accuracy,
)
from tilewright.serve.arrange import shapes_of
from tilewright.serve.arrays.adapters import adapter_of
from tilewright.serve.checks import (
    check_given,
    check_scalars,
    first_limit,
    limits_of,
    one_precision,
)
from tilewright.serve.host_blas import at_once
from tilewright.serve.narrow.types import is_narrow
from tilewright.serve.request import Device, Request
from tilewright.serve.routes.residues.options import residues_asked, with_verdict
from tilewright.serve.warm import looks

if TYPE_CHECKING:
    from tilewright.serve.decision import Decision
    from tilewright.serve.epilogue.serve import Epilogue
    from tilewright.serve.routes.residues.options import Residues

__all__ = ["gemm"]

# Imports within functions are of what few calls take: the first call of a process is short.

# Bytes of the device's memory, and of the host's.
_Limits = tuple[int | None, int | None]


def gemm(
    a: Any,
    b: Any,
    c: Any = None,
    *,
    alpha: complex = 1,
    beta: complex = 0,
    trans_a: str | Trans = "N",
    trans_b: str | Trans = "N",
    accuracy: str = "ieee",
    out_dtype: Any = None,
    report: Decision | None = None,
    device: Device = None,
    max_device_memory: int | None = None,
    max_host_memory: int | None = None,
    max_workspace: int | None = None,
    certify: bool = False,
    epilogue: Epilogue | None = None,
) -> Any:
    """Return alpha op(a) op(b) + beta c, computed by the best kernel known here.

    The kernel is the one of which the shortest time is expected, of the portfolio that ships for
    the device's architecture and of what `tilewright.tune` found here; elsewhere the tuned
    kernel nearest in size, or else a default.  This function never tunes, and what is tuned
    while a process runs serves it after `tilewright.reload`.

    Parameters
    ----------
    a, b : array
        Arrays of two dimensions or more, of one dtype: float32, float64, complex64 or complex128;
        also float16, bfloat16, float8_e4m3fn and float8_e5m2 (products summed in float32 and
        rounded once; on Hopper's tensor cores, which cut sums: docs/tensor_cores.md has the
        bound) and int8 (exact in int32, modulo 2^32), of any kind but pyopencl's.
        NumPy arrays, memory-mapped ones too; arrays that give and take parts (Zarr's, h5py's,
        Dask's); other arrays in the host's memory with DLPack, such as PyTorch's on the
        CPU; pyopencl arrays; or arrays on one CUDA device: CuPy's, PyTorch's, or anything's
        with DLPack.  Or `DoubleDouble` arrays whose words are NumPy's, CuPy's or
        pyopencl's.  op(a) is m x k, op(b) is k x n; dimensions before the last two are a batch's,
        and broadcast as NumPy's matmul has it.
    c : array, optional
        m x n, behind the batch's whole shape, of the same kind and dtype; changed in place and
        returned.  Without it a new row-major array is returned, beside its inputs: of their kind,
        or a CuPy array for DLPack arrays of another library on a CUDA device.
    alpha, beta : scalar
        With beta = 0, `c` is not read: NaN there disappears.  With alpha = 0, neither
        `a` nor `b` is read.  For `DoubleDouble` arrays also whatever that type takes.
    trans_a, trans_b : {"N", "T", "C"}
        BLAS's transposes; "C" on real data is "T".
    accuracy : str
        "ieee": arithmetic of the inputs' precision, never less.  Of `DoubleDouble` arrays it
        means "accurate", bounded by 4 (k + 2) u^2 |A| |B|, u = 2^-53, on int8 tensor cores
        where that is known and faster; "fast" is bounded by 32 (k + 2) u^2 |A| |B| and needs less
        than half of the kernels' operations.
        Of float32 and complex64 arrays, "fp32": max |C' - AB| / (|A| |B|) at most the larger of
        single precision's and 2^-19, on tensor cores where that is known; a guard on the device
        looks at the operands and falls back to IEEE arithmetic where it is not.  "tf32": operands
        may be cut to 11 significant bits.  "fp16x3", "bf16x6", "bf16x9", "tf32x3": this very scheme
        of `tilewright.stencil.split`, without a guard, to measure it.  "batch_invariant": "ieee",
        and a row's bits follow from its own elements, op(b) and the storage orders, not from how
        many rows and products are computed with it; of arrays on a CUDA device, where op(a)'s and
        c's rows are contiguous.  Where a device has no
        tensor cores that are proved (Hopper's are), "fp32" and "tf32" are "ieee", and the
        schemes run as a model of such units, slowly.  docs/fp32_accurate.md has the bounds.
        Of float64 and complex128 arrays, "fp64": max |C' - AB| / (|A| |B|) at most 2 sqrt(k) - 1
        roundings, the least bound of any order of double precision's sums, on int8 tensor cores
        where that is known and faster; a guard on the device falls back to IEEE arithmetic.
        docs/fp64_accurate.md has the proof.
    out_dtype : dtype, optional
        Of the new array, where `a` is float16 or bfloat16: that type (the default) or float32.
        FP8 gives bfloat16 (the default) or float32, int8 gives int32.
    report : Decision, optional
        Told which arithmetic served the call, and why.
    device : str or LiveDevice, or a list or tuple of these, optional
        Where arrays in the host's memory are multiplied; see `tilewright.device`.  Arrays that
        are on a device are multiplied there.  Several devices share the tiles of one product of
        float32 to complex128 matrices, in the host's memory or on CUDA devices, each matrix on any
        of them; bits do not depend on how many there are, and the call waits for the result.
    max_device_memory, max_host_memory : int, optional
        Of float32 to complex128: bytes that a product of matrices in the host's memory takes of
        the device's, and of the host's besides the matrices: pinned buffers, or parts that are
        read.  By default what is free, and up to 192 MiB.
    max_workspace : int, optional
        With ``accuracy="fp64"``, or "accurate" of `DoubleDouble` arrays: bytes of the device's
        memory that residues may take.  C is computed in tiles, and sums in pieces, where that is
        less than all at once would take, or the device has less: with the same bits, in more time.
        Where no tile is small enough, IEEE arithmetic serves, and `report` says so.
    certify : bool
        With ``accuracy="fp64"``: check what residues give, from the integers on that operands are
        rounded to until their product is put together, modulo the prime 2^31 - 1 with random
        vectors (Freivalds 1977).  The check is made on the device; the call then waits for the
        product and reads the verdict, and raises if it is wrong.  A wrong product passes with a
        probability below 2e-8.  Where IEEE arithmetic serves there is nothing to check: `report`
        has ``certified`` among its numbers where there was.
    epilogue : Epilogue, optional
        Scales, a bias and an activation that follow before results are rounded: for NumPy's,
        CuPy's and PyTorch's arrays.  On Hopper's tensor cores the kernel applies them to float16,
        bfloat16 and FP8 arrays; int8 arrays then give float32, float16 or bfloat16.

    Returns
    -------
    array
        `c`, or a new array of a's kind.

    Raises
    ------
    ValueError
        If an argument is wrong; the message names it.
    TypeError
        If `a`, `b` and `c` are not arrays of one kind.
    BackendError
        If the device refuses to compile or to run the kernel.
    CertificateError
        If a certified product is wrong; what `c` holds then is not to be used.

    Notes
    -----
    NumPy arrays may have any strides.  They are read and written in place wherever BLAS
    could take them: unit stride along one axis, any leading dimension along the other.
    Only an array that BLAS itself could not take (two non-unit strides, a negative or
    zero stride, elements not aligned to their size) is copied.  Of arrays on a device such a
    one is refused, but 8- and 16-bit numbers take a copy.  On a device that does not share the
    host's memory, NumPy arrays travel there and back, large ones tile by tile
    (`tilewright.serve.streamed`): they may be larger than the device's memory.  On a CPU NumPy's
    own BLAS serves them unless a tuned kernel is known to be faster (`tilewright.serve.host_blas`).
    Equal config and equal data give equal bits.

    Operands of large products may be copied on the device where that is expected to be faster
    (`tilewright.serve.routes.realigned`).  What calls need of memory besides their arrays comes
    from CuPy's or PyTorch's allocator for their arrays, else from the driver; up to 64 MiB stay
    taken for the next call on a stream, until `tilewright.release`.

    Arrays on a device are multiplied in the caller's order, and the call returns at once:
    CuPy's and PyTorch's on their current stream, pyopencl's on the array's queue, other
    DLPack arrays on the stream that `c` (else `a`) names in its
    ``__cuda_array_interface__``, or else on the legacy default stream.
    """
    limits = limits_of(max_device_memory, max_host_memory)
    residues = residues_asked(a, accuracy, certify, max_workspace)
    plain = report is None and limits is None and epilogue is None and not residues.certify
    # Names with a colon are those of other calls among what is known.
    known = plain and ":" not in str(accuracy)
    if known and (device is None or not isinstance(device, list | tuple)):
        if type(a) is np.ndarray and accuracy == "ieee" and out_dtype is None:
            made = at_once(a, b, c, alpha, beta, trans_a, trans_b, device)
            if made is not None:
                return made
        look = looks.get(type(a))
        if look is not None:
            name = residues.named(accuracy)
            made = look(a, b, c, alpha, beta, trans_a, trans_b, name, out_dtype, device)
            if made is not None:
                return made
    check_report(report)
    check_given(a, b)
    rest = {
        "accuracy": accuracy, "report": report, "device": device,
        "max_device_memory": max_device_memory, "max_host_memory": max_host_memory,
        "max_workspace": max_workspace, "certify": certify,
    }  # fmt: skip
    if epilogue is not None:
        from tilewright.serve.epilogue.serve import gemm_then

        return gemm_then(gemm, epilogue, a, b, c, alpha, beta, trans_a, trans_b, out_dtype, rest)
    if not isinstance(a, np.ndarray) and hasattr(a, "__dlpack_device__"):
        from tilewright.serve.arrays.host_dlpack import through_numpy

        made = through_numpy(
            gemm, {"a": a, "b": b}, c, alpha=alpha, beta=beta, trans_a=trans_a, trans_b=trans_b,
            out_dtype=out_dtype, **rest,
        )  # fmt: skip
        if made is not None:
            return made
    adapter = None if is_narrow(a) else adapter_of(a, b, c)
    # DLPack tells no type before an array is exported.
    given_a, a = a, a if adapter is None else adapter.view("a", a)
    if adapter is None or is_narrow(a):
        return _narrow(
            a, given_a, b, c, alpha, beta, trans_a, trans_b, accuracy, out_dtype, report, device,
            limits,
        )  # fmt: skip
    if out_dtype is not None:
        raise ValueError(
            f"out_dtype={out_dtype!r} is for arrays of 8- and 16-bit numbers, and these are of"
            f" {a.dtype}; leave it out"
        )
    return _wide(
        adapter, a, b, c, alpha, beta, trans_a, trans_b, accuracy, report, device, limits, residues
    )


def _narrow(
    a: Any, given: Any, b: Any, c: Any, alpha: Any, beta: Any, trans_a: Any, trans_b: Any,
    accuracy: str, out_dtype: Any, report: Decision | None, device: Device,
    limits: _Limits | None,
) -> Any:  # fmt: skip
    """Return the product of numbers of 8 and 16 bits; a is a view of what was given, if any."""
    from tilewright.serve.narrow.serve import narrow_gemm

    refuse_elsewhere(accuracy, isinstance(a, np.ndarray))
    refuse_contract("ieee" if accuracy == INVARIANT else accuracy, report)
    if isinstance(device, list | tuple):
        raise ValueError(
            f"device={device!r} is for float32 and wider arrays, not {a.dtype}; name one"
        )
    if limits is not None:
        raise ValueError(
            f"{first_limit(limits)} is for float32 and wider arrays, not {a.dtype}; leave it out"
        )

    def in_single(x: Any, y: Any, wide: Any, alpha: Any, beta: Any) -> Any:
        return gemm(
            x, y, wide, alpha=alpha, beta=beta, trans_a=trans_a, trans_b=trans_b,
            accuracy=accuracy, device=device,
        )  # fmt: skip

    return narrow_gemm(
        in_single, given, b, c, alpha, beta, trans_a, trans_b, out_dtype, device,
        invariant=accuracy == INVARIANT,
    )  # fmt: skip


def _wide(
    adapter: Any, a: Any, b: Any, c: Any, alpha: Any, beta: Any, trans_a: Any, trans_b: Any,
    accuracy: str, report: Decision | None, device: Device, limits: _Limits | None,
    residues: Residues,
) -> Any:  # fmt: skip
    """Return the product of numbers that kernels take in their own precision; a is a view."""
    if limits is not None and not getattr(adapter, "IS_OF_HOST", False):
        raise ValueError(
            f"{first_limit(limits)} is for float32 to complex128 matrices in the host's memory;"
            " leave it out"
        )
    b = adapter.view("b", b)
    c = None if c is None else adapter.view("c", c)
    op_a, op_b = Trans.parse(trans_a, "trans_a"), Trans.parse(trans_b, "trans_b")
    precision = one_precision(a, b, c)
    if accuracy == INVARIANT and precision.parts == 1:
        refuse_elsewhere(accuracy, not hasattr(a, "ordinal"))
    else:
        precision = with_accuracy(precision, accuracy)
    arithmetic = arithmetic_of(accuracy, precision)
    if residues.certify:
        report = with_verdict(report, limits, device)
    if report is not None:
        report.begin(accuracy)
    if precision.parts == 2:
        from tilewright.serve.arrays.double_double.scalars import pairs_of

        alpha, beta = pairs_of(alpha, beta)
    batch, m, n, k = shapes_of(a, b, c, op_a, op_b)
    check_scalars(alpha, beta, precision, c)
    if c is None:
        c = adapter.empty_like(a, (*batch, m, n))
    request = Request(
        precision, m, n, k, alpha, beta, op_a, op_b, a, b, c, arithmetic, report, limits,
        residues=residues,
    )  # fmt: skip
    if 0 not in (*batch, m, n) and not ((k == 0 or alpha == 0) and beta == 1):
        adapter.run(request if not batch else request.arranged(), device)
        if residues.certify:
            from tilewright.serve.routes.residues.decision import refuse_uncertified

            assert report is not None
            refuse_uncertified(report)
    return adapter.result(c)
