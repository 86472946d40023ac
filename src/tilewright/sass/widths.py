"""How many registers each operand takes, and the modifiers that decide it.

Every field below was read off cubins beside nvdisasm's listing; see `tilewright.sass.opcodes`.
"""

from __future__ import annotations

from collections.abc import Callable

from tilewright.sass.opcodes import Op

__all__ = ["Widths", "widths_and_modifiers"]

Widths = tuple[int, int, int, int]
Result = tuple[Widths, tuple[str, ...]]

# Size field [75:73] of memory instructions: its name, and registers a thread moves.
_SIZES = {
    0: ("U8", 1),
    1: ("S8", 1),
    2: ("U16", 1),
    3: ("S16", 1),
    4: ("32", 1),
    5: ("64", 2),
    6: ("128", 4),
}
# Shape {[78], [75]} of HMMA: name, registers of A and of B.
_HMMA = {0: ("1688", 2, 1), 1: ("16816", 4, 2), 2: ("1684", 2, 1)}
# Shape {[86], [75]} of IMMA: name, registers of A, B, C.
_IMMA = {0: ("8816", 1, 1, 2), 2: ("16816", 2, 1, 4), 3: ("16832", 4, 2, 4)}
# Shape [77:76] of DMMA: name, registers of A, B, C.
_DMMA = {
    0: ("8x8x4", 2, 2, 4),
    1: ("16x8x4", 4, 2, 8),
    2: ("16x8x8", 8, 4, 8),
    3: ("16x8x16", 16, 8, 8),
}


def _bits(raw: int, low: int, count: int = 1) -> int:
    return raw >> low & ((1 << count) - 1)


def _memory(raw: int, op: Op, arch: int) -> Result:
    """Read the size, [75:73], of loads and stores; [72] (.E) is a 64-bit global address."""
    d, a, b, c = op.widths
    name, registers = _SIZES.get(_bits(raw, 73, 3), ("?", 1))
    if a == 2 and not _bits(raw, 72):
        a = 1
    extended = ("E",) if a == 2 else ()
    wide = (registers if d else 0, a, registers if b else 0, c)
    return wide, extended + (() if name == "32" else (name,))


def _atomic(raw: int, op: Op, arch: int) -> Result:
    """Atomics on 32-bit data; bit 72 is .E."""
    return (op.widths[0], 1 + _bits(raw, 72), op.widths[2], 0), ()


def _constant(raw: int, op: Op, arch: int) -> Result:
    """Constant loads: size [75:73]."""
    name, registers = _SIZES.get(_bits(raw, 73, 3), ("?", 1))
    d, a, b, c = op.widths
    return (d * registers, a, b, c), (() if name == "32" else (name,))


def _copy(raw: int, op: Op, arch: int) -> Result:
    """LDGSTS: its size, [75:73] and since sm_100 [75:74]; D is the shared address, one register."""
    size = 4 + _bits(raw, 74, 2) if arch >= 100 else _bits(raw, 73, 3)
    name, _ = _SIZES.get(size, ("?", 1))
    return op.widths, ("E",) + (() if name == "32" else (name,))


def _ldsm(raw: int, op: Op, arch: int) -> Result:
    """LDSM: 1, 2 or 4 matrices by [73:72]; bit 78 transposes."""
    count = 1 << _bits(raw, 72, 2)
    kind = "MT88" if _bits(raw, 78) else "M88"
    return (min(count, 4), *op.widths[1:]), ("16", kind, *((str(count),) if count > 1 else ()))


def _hmma(raw: int, op: Op, arch: int) -> Result:
    """HMMA: shape {[78],[75]}, FP32 accumulator [76], input type [83:82]."""
    shape, a, b = _HMMA.get(_bits(raw, 78) << 1 | _bits(raw, 75), ("?", 4, 2))
    kind = _bits(raw, 82, 2)
    if kind == 2 and shape == "1688":  # TF32 elements fill a register, where half ones share it
        a, b = 4, 2
    wide = 4 if _bits(raw, 76) else 2
    types = ("F32" if _bits(raw, 76) else "F16", *({1: ("BF16",), 2: ("TF32",)}.get(kind, ())))
    return (wide, a, b, wide), (shape, *types)


def _imma(raw: int, op: Op, arch: int) -> Result:
    shape, a, b, c = _IMMA.get(_bits(raw, 86) << 1 | _bits(raw, 75), ("?", 4, 2, 4))
    return (c, a, b, c), (shape,)


def _dmma(raw: int, op: Op, arch: int) -> Result:
    shape, a, b, c = _DMMA[_bits(raw, 76, 2)]
    if arch < 90:
        shape = "884"  # the only shape then, and nvdisasm's name for it
    return (c, a, b, c), (shape,)


def _convert(raw: int, op: Op, arch: int) -> Result:
    """Conversions: result size [76:75], source size [85:84]; 3 is 64 bits."""
    d = 2 if _bits(raw, 75, 2) == 3 else 1
    b = 2 if _bits(raw, 84, 2) == 3 else 1
    return (d, 0, b, 0), ()


def _imad(raw: int, op: Op, arch: int) -> Result:
    names = {0x025: ("WIDE",), 0x027: ("HI",)}.get(op.base, ())
    unsigned = ("U32",) if not _bits(raw, 73) and op.base != 0x024 else ()
    extended = ("X",) if _bits(raw, 74) else ()
    return op.widths, names + unsigned + extended


def _lea(raw: int, op: Op, arch: int) -> Result:
    """LEA reads C only as LEA.HI, bit 80; bit 74 adds a carry."""
    high, carry = _bits(raw, 80), _bits(raw, 74)
    names = (("HI",) if high else ()) + (("X",) if carry else ())
    return (*op.widths[:3], op.widths[3] if high else 0), names


def _iadd3(raw: int, op: Op, arch: int) -> Result:
    return op.widths, ("X",) if _bits(raw, 74) else ()


def _pair(bit: int) -> Callable[[int, Op, int], Result]:
    """Return a rule that doubles every operand where `bit` is set: the .64 forms of sm_120."""

    def rule(raw: int, op: Op, arch: int) -> Result:
        if arch < 100 or not _bits(raw, bit):
            return op.widths, ()
        d, a, b, c = (2 * w for w in op.widths)
        return (d, a, b, c), ("64",)

    return rule


def _compare(raw: int, op: Op, arch: int) -> Result:
    """ISETP: [80] compares pairs on sm_120; nvdisasm prints it as the type S64 or U64."""
    return _pair(80)(raw, op, arch)[0], ()


def _move(raw: int, op: Op, arch: int) -> Result:
    """MOV: [80] moves a pair; form 2 does with a literal."""
    if raw >> 9 & 7 == 2:
        return (2, 0, 2, 0), ("64",)
    return _pair(80)(raw, op, arch)


def _tensor_copy(raw: int, op: Op, arch: int) -> Result:
    """UTMALDG: dimensions less one at [81:79]; B has 2 addresses, then coordinates."""
    dimensions = _bits(raw, 79, 3) + 1
    return (0, 2, 2 + dimensions, 0), (f"{dimensions}D",)


def _cs2r(raw: int, op: Op, arch: int) -> Result:
    wide = _bits(raw, 80)
    return (1 + wide, 0, 0, 0), () if wide else ("32",)


def _hgmma(raw: int, op: Op, arch: int) -> Result:
    """HGMMA: a 64 x N tile over 128 threads, N = 8 ([57:53] + 1); FP32 accumulator [75].

    Types: BF16 [76], TF32 [77]; k is 16 halves or 8 TF32 elements.
    """
    n = 8 * (_bits(raw, 53, 5) + 1)
    single = _bits(raw, 75)
    registers = n // 2 if single else n // 4
    kind = ("BF16",) if _bits(raw, 76) else ("TF32",) if _bits(raw, 77) else ()
    shape = f"64x{n}x{8 if kind == ('TF32',) else 16}"
    return (registers, 0, 0, registers), (shape, "F32" if single else "F16", *kind)


def _qgmma(raw: int, op: Op, arch: int) -> Result:
    """QGMMA: as HGMMA, k is 32 FP8 elements; A is E5M2 [77], B [76], else E4M3."""
    n = 8 * (_bits(raw, 53, 5) + 1)
    single = _bits(raw, 75)
    kinds = ("E5M2" if _bits(raw, at) else "E4M3" for at in (77, 76))
    registers = n // 2 if single else n // 4
    return (registers, 0, 0, registers), (f"64x{n}x32", "F32" if single else "F16", *kinds)


def _igmma(raw: int, op: Op, arch: int) -> Result:
    """IGMMA: a 64 x N tile of 8-bit integers; thrice the place of N in 8, 16, 24, 32, 48, 64 ...

    The field is [58:53]; compared with nvdisasm for every tile width from 8 to 256.
    """
    place = _bits(raw, 53, 6) // 3
    n = 8 * (place + 1) if place < 4 else 16 * (place - 1)
    return (n // 2, 0, 0, n // 2), (f"64x{n}x32",)


def _select(raw: int, op: Op, arch: int) -> Result:
    """SEL: forms 2 and 3 are sm_120's SEL.64."""
    if raw >> 9 & 7 not in (2, 3):
        return op.widths, ()
    return (2, 2, 2, 0), ("64",)


_RULES: dict[str, Callable[[int, Op, int], Result]] = {
    **dict.fromkeys(("LD", "LDG", "LDL", "LDS", "STG", "STL", "STS"), _memory),
    "ATOMG": _atomic,
    "LDC": _constant,
    "ULDC": _constant,
    "LDCU": _constant,
    "LDGSTS": _copy,
    "LDSM": _ldsm,
    "HMMA": _hmma,
    "IMMA": _imma,
    "DMMA": _dmma,
    "F2F": _convert,
    "F2I": _convert,
    "I2F": _convert,
    "IMAD": _imad,
    "LEA": _lea,
    "IADD3": _iadd3,
    "CS2R": _cs2r,
    "HGMMA": _hgmma,
    "IGMMA": _igmma,
    "QGMMA": _qgmma,
    "IADD": _pair(73),
    "MOV": _move,
    "UMOV": _pair(80),
    "ISETP": _compare,
    "UISETP": _compare,
    "UTMALDG": _tensor_copy,
    "SEL": _select,
}


def widths_and_modifiers(raw: int, op: Op, arch: int) -> Result:
    """Return registers of D, A, B, C and the modifiers worth naming, of one instruction."""
    rule = _RULES.get(op.mnemonic)
    return rule(raw, op, arch) if rule else (op.widths, ())
