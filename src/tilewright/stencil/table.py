"""A kernel's last argument that is a table by value: of products of a group (prelude/grouped.h).

::

    | tensor maps, 128 bytes each | rows of 16 bytes: an address and two ints, or two longs, ... |

A launch brings its arguments along, so that a table takes no memory, no copy that somebody waits
for, and none of what a captured graph must keep.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from tilewright.dataclass import dataclass
from tilewright.stencil.source_files import read_source

if TYPE_CHECKING:
    from tilewright.stencil.call import GemmCall, Operand, TensorMap
    from tilewright.stencil.source import Source

__all__ = [
    "MAPS",
    "MAP_BYTES",
    "PROBLEMS",
    "ROW_BYTES",
    "Part",
    "Row",
    "Table",
    "grouped_source",
    "row",
]

PROBLEMS, MAPS = 128, 128
"""Of a launch at most: as much as its table has room for.

With them the arguments of most kernels take 8 KB, those of tensor cores, which have maps, 22 KB;
from compute capability 7.0 and CUDA 12.1 on a launch takes 32 KB.
"""

MAP_BYTES, ROW_BYTES = 128, 16

# By whether there is no address, and how many they are.
_NUMBERS = {
    (False, 1): struct.Struct("<q"), (False, 2): struct.Struct("<2i"),
    (True, 2): struct.Struct("<2q"), (True, 4): struct.Struct("<4i"),
}  # fmt: skip

Row = tuple[Any, bytes]
"""An address and eight bytes behind it; or None, and sixteen."""


def row(address: Any, *numbers: int) -> Row:
    """Return a row: an address, or None, and numbers that fill it up, all of one size."""
    return address, _NUMBERS[address is None, len(numbers)].pack(*numbers)


@dataclass(frozen=True)
class Part:
    """A problem of a group: a product, or a part of one.

    Parameters
    ----------
    whole : GemmCall
        The product whose operands it reads.
    m, n : int
        Its own size.
    c : Operand
        Where it goes.
    row, column : int
        Of the whole result: where it begins, in rows of op(A) and columns of op(B).
    """

    whole: GemmCall
    m: int
    n: int
    c: Operand
    row: int = 0
    column: int = 0


@dataclass(frozen=True)
class Table:
    """Maps and rows of a launch's problems, without those that fill the table up.

    Parameters
    ----------
    maps : sequence of TensorMap
        At most `map_room`.
    rows : sequence of Row
        As many for each problem.
    map_room, row_room : int
        How many the kernel's table has.
    """

    maps: Sequence[TensorMap]
    rows: Sequence[Row]
    map_room: int
    row_room: int

    def raw(self, address: Callable[[Any], int], encoded: Callable[[TensorMap], bytes]) -> bytes:
        """Return its bytes, given what makes numbers of addresses and bytes of maps."""
        maps = b"".join(map(encoded, self.maps))
        firsts = (b"" if at is None else address(at).to_bytes(8, "little") for at, _ in self.rows)
        rows = b"".join(first + rest for first, (_, rest) in zip(firsts, self.rows, strict=True))
        room = self.map_room * MAP_BYTES, self.row_room * ROW_BYTES
        return maps.ljust(room[0], b"\0") + rows.ljust(room[1], b"\0")


def grouped_source(source: Source, old: str, new: str) -> Source:
    """Return a kernel for groups: a part of its text is another file, and it has a last argument.

    Parameters
    ----------
    source : Source
        Of one product.
    old, new : str
        Files; the second stands in the place of the first.
    """
    text = source.text.replace(read_source(old), read_source(new))
    return replace(
        source, text=text, defines={**source.defines, "PROBLEMS": PROBLEMS, "MAPS": MAPS}
    )
