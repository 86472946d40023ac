"""Lists of an instruction's registers, which PTX wants by name."""

from __future__ import annotations

__all__ = ["register_lists"]

# Operands behind the sums, at most: four words of rows, where columns are, whether sums go on.
_OPERANDS = 6


def register_lists(columns: int) -> dict[str, str]:
    """Return the macros that instruction.cuh names registers by.

    Parameters
    ----------
    columns : int
        Of an instruction's 64 x `columns` results, of which a thread holds half as many.

    Returns
    -------
    dict
        ``NAMES``, ``REGISTERS`` and ``PLACE_0`` to ``PLACE_5``.
    """
    count = columns // 2
    places = {f"PLACE_{i}": f'"{count + i}"' for i in range(_OPERANDS)}
    return {
        "NAMES": '"' + ", ".join(f"%{i}" for i in range(count)) + '"',
        "REGISTERS": ", ".join(f"SUM({i})" for i in range(count)),
    } | places
