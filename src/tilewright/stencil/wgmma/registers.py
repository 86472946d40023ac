"""Lists of an instruction's registers, which PTX wants by name: one for each number of sums."""

from __future__ import annotations

__all__ = ["register_lists"]

# Numbers of sums that instruction.cuh has lists for.
_IN_TEXT = 32, 48, 64, 96, 128

# Operands behind the sums: rows, columns, whether sums go on, and the order of either.
_OPERANDS = 5


def register_lists(columns: int) -> dict[str, str]:
    """Return macros that instruction.cuh lacks for an instruction of so many columns.

    Parameters
    ----------
    columns : int
        Of an instruction's 64 x `columns` results, of which a thread holds half as many.

    Returns
    -------
    dict
        ``NAMES``, ``BEHIND(x)`` and ``REGISTERS``; empty where the text has them.
    """
    count = columns // 2
    if count in _IN_TEXT:
        return {}
    behind = range(count, count + _OPERANDS)
    return {
        "NAMES": '"' + ", ".join(f"%{i}" for i in range(count)) + '"',
        "BEHIND(x)": "x(" + ", ".join(f'"{i}"' for i in behind) + ")",
        "REGISTERS": ", ".join(f"SUM({i})" for i in range(count)),
    }
