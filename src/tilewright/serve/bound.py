"""`tilewright.bound`: how fast a problem can be on a device of the catalogue or one here."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tilewright.bounds import Bound, Compiled, How, assemble
from tilewright.hardware.catalogue import CatalogueDevice
from tilewright.problem import Problem
from tilewright.serve.find import device as find_device
from tilewright.serve.find import numbers_of

if TYPE_CHECKING:
    from tilewright.backend import LiveDevice

__all__ = ["bound"]


def bound(
    problem: Problem,
    device: str | LiveDevice | CatalogueDevice | None = None,
    *,
    arithmetic: str = "ieee",
    accuracy: str | None = None,
    promote_k: int | None = None,
    presplit: bool = False,
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
        Sizes of 1 or more, and precision: s, d, c, z, double-double such as e, or one of tensor
        cores such as bf16.
    device : str, LiveDevice or CatalogueDevice, optional
        As in `tilewright.device`: ``"gtx580"``, ``"cuda:0"``, or a file such as
        ``"mine.toml"`` of ``tilewright devices --probe``.  A live device is looked up
        in the catalogue by its driver's name; what its driver reports comes first.
    arithmetic : str
        ``"ieee"``: the problem's own precision on the fastest units that have it.
        ``"fp16x3"``, ``"tf32x3"``, ``"bf16x6"``, ``"bf16x9"``: single precision from products of
        parts on tensor cores; they go with ``"c"`` too, as a real product
        (`tilewright.bounds.schemes.real_product`).  ``"residues"``: double precision from products
        of residues (`tilewright.bounds.residues`), with ``"d"`` and ``"z"``.
    accuracy : str, optional
        ``"ieee"``, ``"tf32"``, ``"fp32"`` or ``"fp64"`` in place of `arithmetic`: the fastest that
        meets it.
    promote_k : int, optional
        Steps of k after which sums leave the tensor cores for single-precision registers; 32
        for products of parts, 128 for FP8, else never.
    presplit : bool
        Whether A and B are given in parts already; else a pass before the product splits them.
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
        ``limit`` in FLOP/s, ``limiting``, ``terms``, ``explain()``, ``as_dict()``.  Unknown
        terms bear their reason; operations are counted as BLAS does, with four real products
        to a complex one.

    Raises
    ------
    ValueError
        If the device or an argument is unknown or wrong, or the problem empty.

    References
    ----------
    J. Lai and A. Seznec, "Bound the Peak Performance of SGEMM on GPU with software-controlled
    fast memory", 2012.  N. Nakasato, "A Fast GEMM Implementation on a Cypress GPU", 2010.
    """
    how = How(
        arithmetic=arithmetic,
        accuracy=accuracy,
        promote_k=promote_k,
        presplit=presplit,
        sequence=sequence,
        transfer=transfer,
        overlap=overlap,
        reads_c=reads_c,
        warm_cache=warm_cache,
        sustained=sustained,
        kernel_rate=kernel_rate,
        compiled=compiled,
    )
    return assemble(problem, numbers_of(find_device(device)), how)
