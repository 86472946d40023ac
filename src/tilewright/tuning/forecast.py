"""What a compiled candidate may reach, by its machine code: which to time first."""

from __future__ import annotations

from math import prod

from tilewright.sass import inspect_kernel, read_cubin
from tilewright.stencil import Launch

__all__ = ["forecast"]


def forecast(
    code: bytes, launch: Launch, multiprocessors: int, dynamic_shared_bytes: int = 0
) -> float | None:
    """Return the share of the multiply-adds' peak that a kernel is expected to reach.

    The static model's share (`tilewright.sass.loop_cycles`) times what the grid leaves of it: all
    wait for the multiprocessor that has the most thread blocks, whether these run beside each
    other there or one after another.

    Parameters
    ----------
    code : bytes
        A cubin with one kernel, or with one that adds up what the first leaves: of the two, the
        one that multiplies has the longer text.
    launch : Launch
        How the kernel is launched for the problem in question.
    multiprocessors : int
        Of the device.
    dynamic_shared_bytes : int
        Shared memory of a block that is asked for at launch.

    Returns
    -------
    float or None
        0 to 1; None where the machine code has no loop of multiply-adds, or
        blocks do not fit on a multiprocessor.
    """
    kernel = max(read_cubin(code).kernels, key=lambda one: len(one.code))
    seen = inspect_kernel(kernel, prod(launch.block), dynamic_shared_bytes)
    if seen.cycles is None or not seen.occupancy.blocks:
        return None
    blocks = prod(launch.grid if launch.split_k is None else launch.on(multiprocessors).grid)
    most = -(-blocks // multiprocessors)
    return seen.cycles.pipe_share * blocks / (most * multiprocessors)
