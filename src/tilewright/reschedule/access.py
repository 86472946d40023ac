"""Everything that an instruction of sm_90 reads and writes, and how its result arrives.

`Instruction` names the registers and the predicates written; reordering needs the predicates read,
carries and uniform predicates too, and has to know what else an instruction does.  The fields are
those that nvdisasm prints, and ``tests/reschedule/test_access.py`` compares them on every kernel.

Resources are numbered through: registers from 0, uniform registers, predicates, uniform predicates.
"""

from __future__ import annotations

from dataclasses import dataclass

from tilewright.sass.instruction import Instruction

__all__ = ["CLASSES", "PREDICATE", "UNIFORM", "UNIFORM_PREDICATE", "Access", "access", "name_of"]

UNIFORM, PREDICATE, UNIFORM_PREDICATE = 256, 512, 520
PT = 7

# How a result arrives.  Fixed classes: a number of cycles after issue.  The others: when the
# barrier that the instruction names is released, in order among themselves.
_FIXED = {
    "fma": "FFMA FMUL FADD HADD2 HFMA2 HMUL2 IMAD VIADD",
    "alu": "FSEL FMNMX FSETP MOV SEL ISETP IADD3 LEA LOP3 PRMT SHF PLOP3 IABS VIADDMNMX VIMNMX"
    " I2FP",
    "packed": "P2R",
    "to uniform": "R2UR",
    "vote": "VOTEU",
    "uniform": "USEL UISETP UIADD3 ULEA ULOP3 USHF UIMAD UPLOP3",
    "uniform move": "UMOV ULDC",
    "wide": "",  # IMAD.WIDE and IMAD.HI: twice through the multiplier
    "fp64": "DADD DMUL DFMA",
    "fp64 set": "DSETP",
    "special": "CS2R",
    "elect": "ELECT",
}
_VARIABLE = {
    "shared": "LDS LDSM STS SHFL",
    "global": "LDG LDGSTS STG LDL STL ATOMG",
    # Of any space, as a cluster's blocks read each other's shared memory.
    "generic": "LD",
    "constant": "LDC",
    "other": "S2R S2UR MUFU F2I F2F I2F POPC FLO FCHK",
    "copies": "LDGDEPBAR",
    # The tensor core's doubles: barriers say when they have read and written, in order.  Other
    # shapes and types take a fixed time that differs from each to each, and are not modelled.
    "dmma": "DMMA",
    # Barriers in shared memory, and what asks the copy engine for boxes: each is over when its own
    # barrier says so.
    "engine": "SYNCS UTMALDG FENCE",
}
_ORDER = {
    "order": "BAR DEPBAR NOP BRA EXIT BSSY BSYNC MEMBAR ERRBAR CGAERRBAR CCTL WARPSYNC YIELD"
    " UCGABAR_ARV UCGABAR_WAIT ACQBULK",
}
CLASSES = {
    mnemonic: name
    for table in (_FIXED, _VARIABLE, _ORDER)
    for name, mnemonics in table.items()
    for mnemonic in mnemonics.split()
}
FIXED, VARIABLE = frozenset(_FIXED), frozenset(_VARIABLE)

# First bit of each predicate that an instruction reads besides its guard: [90:87], and a second.
_READS = {
    **dict.fromkeys(
        ("SEL", "FSEL", "FMNMX", "FSETP", "ISETP", "DSETP", "LEA", "LOP3", "VIMNMX"), (87,)
    ),
    **dict.fromkeys(
        ("VIADDMNMX", "IMAD", "BRA", "USEL", "UISETP", "ULEA", "ULOP3", "UIMAD", "VOTE", "YIELD"),
        (87,),
    ),
    **dict.fromkeys(("IADD3", "UIADD3"), (87, 77)),
    "PLOP3": (87, 77),
    "UPLOP3": (87, 77),
    "VOTEU": (87,),
    "LDGSTS": (87,),
}
# IADD3, IMAD and LEA read their carry only as .X, LDGSTS its condition always.
_CARRIES = frozenset(("IADD3", "UIADD3", "IMAD", "LEA", "ULEA", "UIMAD"))
_EXTENDED = 74
_HIGH_PART = 72  # ISETP.EX compares high parts: the low ones' predicate is at [70:68]
_UNIFORM_WRITES = {
    "UISETP": (81, 84), "UIADD3": (81, 84), "ULEA": (81,), "ULOP3": (81,), "UIMAD": (81,),
    "UPLOP3": (81, 84), "VOTEU": (81,),
}  # fmt: skip
# Forms of what the decoder claims no register for that name none: others may.
_WITHOUT_REGISTERS = {
    "ACQBULK": (0x82E,), "BAR": (0xB1D,), "BRA": (0x947, 0x547), "BSSY": (0x945,),
    "BSYNC": (0x941,), "CCTL": (0x98F,), "DEPBAR": (0x91A,), "ERRBAR": (0x9AB,), "EXIT": (0x94D,),
    "FENCE": (0x3C6,), "LDGDEPBAR": (0x9AF,), "MEMBAR": (0x992,), "NOP": (0x918,),
    "UCGABAR_ARV": (0x9C7,), "UCGABAR_WAIT": (0xDC7,), "WARPSYNC": (0x948,),
}  # fmt: skip
# P2R with a mask of predicates at [38:32]; other forms are not modelled.
_PREDICATES_BY_MASK = 0x803
_UNIFORM_CONDITION = 0x547  # BRA.U: a uniform predicate at [26:24]


@dataclass(frozen=True, slots=True)
class Access:
    """What one instruction depends on and what depends on it.

    Parameters
    ----------
    reads, writes : frozenset of int
        Resources.
    kind : str
        Class of `CLASSES`; "unknown" where the instruction is not modelled.
    """

    reads: frozenset[int]
    writes: frozenset[int]
    kind: str

    @property
    def pure(self) -> bool:
        """Whether it computes registers from registers and does nothing else."""
        return self.kind in FIXED and self.kind not in ("special", "elect")

    @property
    def fixed(self) -> bool:
        """Whether its result arrives a fixed number of cycles after its issue."""
        return self.kind in FIXED

    @property
    def variable(self) -> bool:
        """Whether its result, and its sources' release, are announced by barriers."""
        return self.kind in VARIABLE

    @property
    def in_order(self) -> bool:
        """Whether accesses of its class finish one after another."""
        return self.variable and self.kind != "engine"


def access(instruction: Instruction) -> Access:
    """Return what an instruction of sm_90 reads and writes.

    An instruction that is not in `CLASSES` has the kind "unknown" and claims
    nothing: whoever reorders leaves its block alone.
    """
    name = instruction.mnemonic
    kind = CLASSES.get(name) if instruction.known else None
    packs = name == "P2R"
    if (
        kind is None
        or _may_name_more(instruction)
        or (packs and instruction.opcode != _PREDICATES_BY_MASK)
    ):
        return Access(frozenset(), frozenset(), "unknown")
    if name == "IMAD" and instruction.modifiers[:1] in (("WIDE",), ("HI",)):
        kind = "wide"
    reads = set(instruction.reads) | {UNIFORM + r for r in instruction.ureads}
    writes = set(instruction.dst) | {UNIFORM + r for r in instruction.udst}
    uniform = kind in ("uniform", "uniform move")
    base = UNIFORM_PREDICATE if uniform else PREDICATE
    reads |= {base + p for p in _condition_fields(instruction) if p != PT}
    if instruction.guard.index != PT:
        reads.add((UNIFORM_PREDICATE if uniform else PREDICATE) + instruction.guard.index)
    if name in ("PLOP3", "UPLOP3") and (third := instruction.raw >> 68 & PT) != PT:
        among = UNIFORM_PREDICATE if uniform or instruction.raw >> 67 & 1 else PREDICATE
        reads.add(among + third)
    if packs:
        reads |= {PREDICATE + p for p in range(PT) if instruction.raw >> 32 + p & 1}
    if instruction.opcode == _UNIFORM_CONDITION:
        reads.add(UNIFORM_PREDICATE + (instruction.raw >> 24 & PT))
    writes |= {PREDICATE + p for p in instruction.dst_predicates}
    for low in _UNIFORM_WRITES.get(name, ()):
        if (number := instruction.raw >> low & PT) != PT:
            writes.add(UNIFORM_PREDICATE + number)
    return Access(frozenset(reads), frozenset(writes), kind)


def _may_name_more(instruction: Instruction) -> bool:
    """Whether an instruction may read registers that the decoder does not know of."""
    forms = _WITHOUT_REGISTERS.get(instruction.mnemonic)
    if forms is None:
        return False
    address = instruction.mnemonic == "CCTL" and instruction.raw >> 24 & 0xFF != 0xFF
    return instruction.opcode not in forms or address


def _condition_fields(instruction: Instruction) -> list[int]:
    """Return the numbers of predicates that an instruction's operand fields name."""
    name, raw = instruction.mnemonic, instruction.raw
    if name in _CARRIES and not raw >> _EXTENDED & 1:
        return []
    if name == "BRA" and instruction.opcode == _UNIFORM_CONDITION:
        return []
    fields = [raw >> low & PT for low in _READS.get(name, ())]
    if name in ("ISETP", "UISETP") and raw >> _HIGH_PART & 1:
        fields.append(raw >> 68 & PT)
    return fields


def name_of(resource: int) -> str:
    """Return a resource's name in a listing."""
    files = (UNIFORM_PREDICATE, "UP"), (PREDICATE, "P"), (UNIFORM, "UR"), (0, "R")
    first, letters = next(one for one in files if resource >= one[0])
    return f"{letters}{resource - first}"
