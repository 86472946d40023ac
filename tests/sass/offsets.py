"""Addresses of a loop's shared accesses, lane by lane."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from numpy.typing import NDArray

from tilewright.sass import Instruction, Loop
from tilewright.sass.lanes import _accesses, _offsets
from tilewright.sass.shared import WARP


def lane_offsets(
    instructions: Sequence[Instruction], loop: Loop, threads: int
) -> dict[int, NDArray[Any]]:
    """Return bytes from the lowest of each warp's lanes on, by the instruction's address.

    A row a warp and a column a lane; what is not known is left out.
    """
    found = {
        instruction.address: _offsets(instruction, state, threads // WARP)
        for instruction, state in _accesses(instructions, loop, threads)
    }
    return {address: offsets for address, offsets in found.items() if offsets is not None}
