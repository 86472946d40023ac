"""What instructions that compute addresses do to each lane's registers.

Bit positions are those of `tilewright.sass.opcodes`, with these, which were found by changing
single bits and reading nvdisasm's listing (sm_80 to sm_100):
negation of A [72], of what lies at [39:32] in [63] unless it is a literal, of what lies at [71:64]
in [75]; carry in (.X) [74]; LOP3's table [79:72]; LEA's shift [79:75] and HI [80], with
SX32 [73]; SHF's signedness and 64-bit types [74:73], right [76], HI [80]; ISETP's EX [72],
signedness [73], connective [75:74], comparison [78:76]; special register [79:72]; PLOP3's uniform
predicate [67]; P2R's mask of predicates [38:32].  Instructions on uniform registers have the same
bits in the same places.  One that is not described here gives no known result.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from functools import partial

import numpy as np

from tilewright.sass.instruction import Guard, Instruction, Operand
from tilewright.sass.lane_values import (
    MASK,
    UNIFORM,
    UNWRITTEN,
    Lanes,
    LaneValue,
    add,
    bitwise,
    join,
    literal,
    multiply,
    negate,
    pointwise,
    select,
    shift_right,
)

__all__ = ["State", "Threads", "execute", "forget", "guarded_keys", "is_kept", "predicate", "under"]

Value = LaneValue | None
# "R", "P" or "U" and the number; "L" and the place in local memory, from the stack pointer on; or a
# guard such as "@P0" and the register written under it.
Key = tuple[str, int]
State = dict[Key, LaneValue]  # what is not in it is unknown; a uniform register still is uniform
Threads = dict[int, LaneValue]  # special registers by number
Guarded = Mapping[Key, Collection[Key]]  # by what is written, what was written under a guard

PT = 7
_SAVED = 7  # predicates, PT not among them
_HALF = np.uint64(32)
_ZERO = literal(0)
_TRUE = literal(1)
_SRZ = 0xFF
# Whose result is the same in all lanes if operands and predicates are.
_PURE = frozenset(
    (
        *("MOV", "SHF", "IABS", "PRMT", "POPC", "FLO", "VIADD", "I2F", "F2I", "F2F", "I2FP"),
        *("MUFU", "FMUL", "FADD", "FFMA", "FCHK", "DADD", "DMUL", "DFMA", "LEA", "IMAD", "IADD3"),
        *("LOP3", "SEL", "FSEL", "FMNMX", "IMNMX", "VIMNMX", "VIADDMNMX", "FSETP", "DSETP"),
        *("ISETP", "PLOP3", "HFMA2", "HADD2", "HMUL2"),
    )
)
# Fields of the predicates that these read, each the lowest of three bits; in the second table
# only where the bit named first is set, the carry of .X and .EX.
_PREDICATES: dict[str, tuple[int, ...]] = {
    **dict.fromkeys(("LOP3", "SEL", "FSEL", "FMNMX", "IMNMX", "VIMNMX", "VIADDMNMX"), (87,)),
    **dict.fromkeys(("FSETP", "DSETP", "ISETP"), (87,)),
    "PLOP3": (87, 77),  # and [70:68], below
}
_CARRIES: dict[str, tuple[int, tuple[int, ...]]] = {
    "IADD3": (74, (87, 77)),
    "IMAD": (74, (87,)),
    "LEA": (74, (87,)),
    "ISETP": (72, (68,)),
}
_WIDE = (0x025, 0x0A5)  # IMAD.WIDE and UIMAD.WIDE, whose low half is that of IMAD
_STACK = 1  # the register that compilers keep the stack pointer in
_UNIFORM_INPUT = 67  # PLOP3's [70:68] is a uniform predicate where this is set


def predicate(state: State, number: int, negated: bool) -> Value:
    """Return a predicate's value, 1 or 0, in each lane."""
    value = _TRUE if number == PT else state.get(("P", number))
    return pointwise(lambda p: p ^ np.uint64(1), value) if negated else value


def is_kept(instruction: Instruction) -> bool:
    """Whether an instruction is to be run whatever is asked of registers.

    One that writes predicates, on which branches depend, uniform registers or local memory, or
    after which nothing is known.
    """
    if instruction.dst_predicates or instruction.udst or _STACK in instruction.dst:
        return True
    return instruction.mnemonic in ("STL", "LDL", "CALL") or not instruction.known


def execute(instruction: Instruction, state: State, threads: Threads, guarded: Guarded) -> set[Key]:
    """Change what is known as one instruction, run by whole warps, does; return what it wrote."""
    if instruction.guard.never:
        return set()
    if not instruction.known or instruction.mnemonic == "CALL":
        state.clear()
        return set()
    guard = instruction.guard
    written = _results(instruction, under(guard, state), threads)
    for key, value in written.items():
        before = state.get(key)
        if key[0] == "U":
            before = before or UNIFORM
        forget(key, state, guarded)
        if not guard.always:
            if value is not None and key[0] == "R" and not guard.uniform:
                state[str(guard), key[1]] = value
            runs = UNIFORM if guard.uniform else predicate(state, guard.index, guard.negated)
            value = select(runs, value, before)
        if value is not None:
            state[key] = value
    return set(written)


def under(guard: Guard, state: State) -> State:
    """Return what is known where a guard holds: also what was written under the same guard."""
    if guard.always:
        return state
    name = str(guard)
    more = {("R", r): value for (prefix, r), value in state.items() if prefix == name}
    return {**state, **more} if more else state


def forget(key: Key, state: State, guarded: Guarded) -> None:
    """Remove what was known of something that is written, and what depended on it."""
    state.pop(key, None)
    for one in guarded.get(key, ()):
        state.pop(one, None)


def guarded_keys(instructions: Iterable[Instruction]) -> Guarded:
    """Return what instructions write under guards, by the register and by the predicate of each."""
    found: dict[Key, set[Key]] = {}
    for one in instructions:
        guard = one.guard
        if not (guard.uniform or guard.index == PT):
            for register in one.dst:
                for of in (("R", register), ("P", guard.index)):
                    found.setdefault(of, set()).add((str(guard), register))
    return found


def _results(instruction: Instruction, state: State, threads: Threads) -> dict[Key, Value]:
    """Return the new value of everything that an instruction writes."""
    pure = instruction.mnemonic in _PURE
    shared = UNIFORM if pure and _all_uniform(instruction, state) else None
    written: dict[Key, Value] = {("R", r): shared for r in instruction.dst}
    written |= {("P", p): shared for p in instruction.dst_predicates}
    written |= {("U", u): UNIFORM for u in instruction.udst}
    if instruction.mnemonic in ("STL", "LDL"):
        written |= _spilled(instruction, state)
    elif _STACK in instruction.dst:
        written |= {key: None for key in state if key[0] == "L" and state[key] is not UNWRITTEN}
    elif instruction.mnemonic in ("LDS", "LDG", "LD") and _all_uniform(instruction, state):
        written |= dict.fromkeys(written, UNIFORM)  # one word, which all lanes receive
    if instruction.udst:
        written["U", instruction.udst[0]] = _uniform_result(instruction, state)
    elif instruction.mnemonic in ("S2R", "CS2R", "LDC"):
        written |= dict.fromkeys(written, _loaded(instruction, state, threads))
    elif instruction.mnemonic == "ISETP":
        first = instruction.raw >> 81 & PT
        if first != PT:
            written["P", first] = _compared(instruction, state) or written["P", first]
    elif instruction.mnemonic in _RULES and (
        len(instruction.dst) == 1 or (instruction.dst and _is_wide(instruction))
    ):
        # Of IMAD.WIDE's pair the rule gives the low half.
        value = _RULES[instruction.mnemonic](instruction, state)
        written["R", instruction.dst[0]] = value or written["R", instruction.dst[0]]
    return written


def _spilled(instruction: Instruction, state: State) -> dict[Key, Value]:
    """Return what registers and places of local memory hold after a spill, or its return.

    Places are told by their distance from the stack pointer: where others are written, none is
    known any more.
    """
    in_stack = any(one.slot == "A" and one.registers == (_STACK,) for one in instruction.srcs)
    bits, first = instruction.access_bits or 32, instruction.offset or 0
    if instruction.mnemonic == "LDL" and not (in_stack and bits >= 32 and instruction.dst):
        return {}
    if instruction.mnemonic != "LDL" and (not in_stack or bits < 32):
        return {key: None for key in state if key[0] == "L"}
    places = [("L", first + 4 * i) for i in range(bits // 32)]
    if instruction.mnemonic == "LDL":
        registers = (("R", r) for r in instruction.dst)
        return {r: state.get(at) for r, at in zip(registers, places, strict=True)}
    data = next(one for one in instruction.srcs if one.slot == "B")
    values = (state.get(("R", data.value + i)) if data.width else _ZERO for i in range(len(places)))
    return dict(zip(places, values, strict=True))


def _uniform_result(instruction: Instruction, state: State) -> LaneValue:
    """Return what the first uniform register holds that an instruction writes."""
    rule = _UNIFORM_RULES.get(instruction.mnemonic)
    if rule is None or not (len(instruction.udst) == 1 or _is_wide(instruction)):
        return UNIFORM
    value = rule(instruction, state)
    # All lanes have the same; what is not known to be so came from an operand that is not known.
    return value if value is not None and value.uniform else UNIFORM


def _is_wide(instruction: Instruction) -> bool:
    return instruction.opcode & 0x1FF in _WIDE


def _bits(instruction: Instruction, low: int, count: int = 1) -> int:
    return instruction.raw >> low & ((1 << count) - 1)


def _read(operand: Operand, state: State) -> Value:
    """Return the first register of an operand, or its number."""
    if operand.kind == "imm":
        return literal(operand.value)
    if operand.kind == "const":
        return UNIFORM
    if not operand.width:
        return _ZERO
    if operand.kind == "ureg":
        return state.get(("U", operand.value), UNIFORM)
    return state.get(("R", operand.value))


def _operand(instruction: Instruction, slot: str, state: State) -> Value:
    """Return the value of slot A, B or C, its sign changed where the instruction says so."""
    operand = next((one for one in instruction.srcs if one.slot == slot), None)
    if operand is None:
        return _ZERO
    value = _read(operand, state)
    swapped = instruction.opcode >> 9 & 7 in (2, 3, 7)  # B lies at [71:64], C at [39:32]
    bit = 72 if slot == "A" else 63 if (slot == "B") != swapped else 75
    return negate(value) if operand.kind != "imm" and _bits(instruction, bit) else value


def _all_uniform(instruction: Instruction, state: State) -> bool:
    """Whether all that an instruction reads is the same in all lanes of a warp."""
    for register in instruction.reads:
        value = state.get(("R", register))
        if value is None or not value.uniform:
            return False
    fields = _PREDICATES.get(instruction.mnemonic, ())
    carry, more = _CARRIES.get(instruction.mnemonic, (0, ()))
    if instruction.mnemonic == "PLOP3" and not _bits(instruction, _UNIFORM_INPUT):
        fields = (*fields, 68)
    for low in (*fields, *(more if _bits(instruction, carry) else ())):
        value = predicate(state, _bits(instruction, low, 3), False)
        if value is None or not value.uniform:
            return False
    return True


def _loaded(instruction: Instruction, state: State, threads: Threads) -> Value:
    """S2R, CS2R: a special register; LDC: a constant, the same for lanes with the same index."""
    if instruction.mnemonic == "LDC":
        return UNIFORM if _all_uniform(instruction, state) else None
    number = _bits(instruction, 72, 8)
    return _ZERO if number == _SRZ else threads.get(number)


def _compared(instruction: Instruction, state: State) -> Value:
    """ISETP's first predicate: A compared with B, and, or, xor another predicate."""
    pairs = any(operand.width > 1 for operand in instruction.srcs)
    if _bits(instruction, 72) or pairs:
        return None
    sign = np.uint64(1 << 31 if _bits(instruction, 73) else 0)  # turns signed order into unsigned
    code, connective = _bits(instruction, 76, 3), _bits(instruction, 74, 2)

    def compare(a: Lanes, b: Lanes, other: Lanes) -> Lanes:
        a, b = a ^ sign, b ^ sign
        # Bits of the comparison: 1 less, 2 equal, 4 greater.
        holds = (
            (np.bool_(code & 1) & (a < b))
            | (np.bool_(code & 2) & (a == b))
            | (np.bool_(code & 4) & (a > b))
        ).astype(np.uint64)
        combined: tuple[Lanes, ...] = (holds & other, holds | other, holds ^ other)
        return combined[connective]

    if connective == 3:
        return None
    other = predicate(state, _bits(instruction, 87, 3), bool(_bits(instruction, 90)))
    a, b = (_operand_as_is(instruction, slot, state) for slot in "AB")
    return pointwise(compare, a, b, other)


def _operand_as_is(instruction: Instruction, slot: str, state: State) -> Value:
    """Return a slot's value; bits that change signs elsewhere mean something else here."""
    operand = next((one for one in instruction.srcs if one.slot == slot), None)
    return _ZERO if operand is None else _read(operand, state)


def _sum(instruction: Instruction, state: State) -> Value:
    """IADD3 and VIADD without carry: A + B + C."""
    packed = instruction.mnemonic == "VIADD" and _bits(instruction, 73)  # two 16-bit sums
    if _bits(instruction, 74) or packed:
        return None
    a, b, c = (_operand(instruction, slot, state) for slot in "ABC")
    return add(add(a, b), c)


def _product(instruction: Instruction, state: State) -> Value:
    """IMAD: A B + C, or the high half of it with a 64-bit C; IMAD.WIDE: its low half."""
    if _bits(instruction, 74):
        return None
    a, b = (_operand_as_is(instruction, slot, state) for slot in "AB")
    if "HI" in instruction.modifiers:
        return _high_product(instruction, a, b)
    return add(multiply(a, b), _operand(instruction, "C", state))


def _high_product(instruction: Instruction, a: Value, b: Value) -> Value:
    operand = next((one for one in instruction.srcs if one.slot == "C"), None)
    if operand is not None and (operand.width or operand.kind != "reg"):
        return None  # adding 64 bits: compilers divide without, and nothing else needs it
    signed = "U32" not in instruction.modifiers

    def high(x: Lanes, y: Lanes) -> Lanes:
        if not signed:
            return (x * y) >> _HALF
        product: Lanes = ((_signed(x) * _signed(y)) >> np.int64(32)).astype(np.uint64)
        return product

    return pointwise(high, a, b)


def _signed(lanes: Lanes) -> np.ndarray[tuple[int, ...], np.dtype[np.int64]]:
    """Return 32-bit values as signed numbers."""
    return lanes.astype(np.uint32).view(np.int32).astype(np.int64)


def _shift_add(instruction: Instruction, state: State) -> Value:
    """LEA: (A << s) + B; LEA.HI: the high half of {C, A} << s, plus B."""
    a, b, c = (_operand(instruction, slot, state) for slot in "ABC")
    if _bits(instruction, 74):
        return None
    shift = _bits(instruction, 75, 5)
    if not _bits(instruction, 80):
        return add(multiply(a, literal(1 << shift)), b)
    if _bits(instruction, 72):
        return None  # the sign of a 64-bit number
    if _bits(instruction, 73):
        c = shift_right(a, 31, signed=True)
    return add(pointwise(partial(_funnel, by=shift), c, a), b)


def _funnel(high: Lanes, low: Lanes, by: int) -> Lanes:
    """Return bits 63 to 32 of {high, low} << by, for by below 32."""
    return ((high << _HALF | low) << np.uint64(by)) >> _HALF


def _logic(instruction: Instruction, state: State) -> Value:
    """LOP3: bit i of the table is the result where A, B, C are bits 2, 1, 0 of i."""
    table = _bits(instruction, 72, 8)

    def look_up(*inputs: Lanes) -> Lanes:
        result = np.zeros(np.broadcast_shapes(*(x.shape for x in inputs)), np.uint64)
        for row in range(8):
            if table >> row & 1:
                term = np.full(result.shape, MASK)
                for x, place in zip(inputs, (2, 1, 0), strict=True):
                    term &= x if row >> place & 1 else ~x
                result |= term
        return result

    return bitwise(look_up, *(_operand_as_is(instruction, slot, state) for slot in "ABC"))


def _shift(instruction: Instruction, state: State) -> Value:
    """SHF by a literal: A is the low word, B the distance, C the high word."""
    low, high = (_operand_as_is(instruction, slot, state) for slot in "AC")
    distance = next((one for one in instruction.srcs if one.slot == "B"), None)
    if distance is None or distance.kind != "imm" or distance.value >= 32:
        return None
    by, kind = distance.value, _bits(instruction, 73, 2)
    signed, wide = not kind & 1, kind < 2  # 0 S64, 1 U64, 2 S32, 3 U32
    right, upper = _bits(instruction, 76), _bits(instruction, 80)
    if not right:
        if not upper:
            return multiply(low, literal(1 << by))
        return pointwise(partial(_funnel, by=by), high, low)
    if upper:
        return shift_right(high, by, signed)
    if not wide:
        return None  # a 32-bit funnel: which of its forms compilers write was not seen
    return pointwise(lambda h, x: (h << _HALF | x) >> np.uint64(by), high, low)


def _selected(instruction: Instruction, state: State) -> Value:
    """SEL: A where the predicate holds, else B."""
    chooses = predicate(state, _bits(instruction, 87, 3), bool(_bits(instruction, 90)))
    a, b = (_operand_as_is(instruction, slot, state) for slot in "AB")
    return select(chooses, a, b)


def _moved(instruction: Instruction, state: State) -> Value:
    """MOV: B, unless the mask of lanes in each four, [75:72], leaves some out."""
    return _operand_as_is(instruction, "B", state) if _bits(instruction, 72, 4) == 0xF else None


def _packed(instruction: Instruction, state: State) -> Value:
    """P2R: predicates under a mask into the bits of A; a later test of a bit restores one."""
    mask = _bits(instruction, 32, _SAVED)

    def pack(before: Lanes, *predicates: Lanes) -> Lanes:
        kept: Lanes = before & ~np.uint64(mask)
        for place, value in zip(places, predicates, strict=True):
            kept = kept | value << np.uint64(place)
        return kept

    places = [place for place in range(_SAVED) if mask >> place & 1]
    values = (predicate(state, place, False) for place in places)
    return pointwise(pack, _operand_as_is(instruction, "A", state), *values)


_RULES: dict[str, Callable[[Instruction, State], Value]] = {
    "IADD3": _sum,
    "VIADD": _sum,
    "IMAD": _product,
    "LEA": _shift_add,
    "LOP3": _logic,
    "SHF": _shift,
    "SEL": _selected,
    "MOV": _moved,
    "P2R": _packed,
}
_UNIFORM_RULES: dict[str, Callable[[Instruction, State], Value]] = {
    "UMOV": lambda instruction, state: _read(instruction.srcs[0], state),
    "UIADD3": _sum,
    "UIMAD": _product,
    "ULEA": _shift_add,
    "ULOP3": _logic,
    "USHF": _shift,
    # A or B, by a uniform predicate, of which nothing is known.
    "USEL": lambda instruction, state: join(
        *(_operand_as_is(instruction, slot, state) for slot in "AB")
    ),
    "R2UR": lambda instruction, state: _read(instruction.srcs[0], state),
}
