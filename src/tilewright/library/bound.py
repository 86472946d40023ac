"""`tilewright.bound`: how fast a problem can be on a device of the catalogue or one here."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tilewright.bounds import Bound, Compiled
from tilewright.bounds import bound as bound_of
from tilewright.hardware import CatalogueDevice
from tilewright.library.find import device as find_device
from tilewright.library.find import numbers_of
from tilewright.problem import Problem

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
        Sizes of 1 or more, and precision: s, d, c, z or e (double-double).
    device : str, LiveDevice or CatalogueDevice, optional
        As in `tilewright.device`: ``"gtx580"``, ``"cuda:0"``, or a file such as
        ``"mine.toml"`` of ``tilewright devices --probe``.  A live device is looked up
        in the catalogue by its driver's name; what its driver reports comes first.
    arithmetic, accuracy, promote_k, presplit
        What multiplies, as in `tilewright.bounds.bound`: ``accuracy="fp32"`` is single
        precision the fastest way there is, also from products on matrix units.
    sequence, transfer, overlap, reads_c, warm_cache, sustained, kernel_rate, compiled
        As in `tilewright.bounds.bound`.

    Returns
    -------
    Bound
        ``limit`` in FLOP/s, ``limiting``, ``terms``, ``explain()``, ``as_dict()``.

    Raises
    ------
    ValueError
        If the device or an argument is unknown, or the problem empty.
    """
    return bound_of(
        problem,
        numbers_of(find_device(device)),
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
