"""Which products are measured, and with which kernels they are tried."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, zip_longest
from typing import Any

from tilewright.bench.formats import FORMATS
from tilewright.hardware import DeviceSpec
from tilewright.precision import precision
from tilewright.problem import Trans
from tilewright.space import Config
from tilewright.stencil.split import SCHEMES, Scheme
from tilewright.stencil.wgmma import Arithmetic, TensorVariant, Wgmma

__all__ = ["Case", "candidates", "tuned_as"]

_NAMES = ("block_m", "block_n", "instruction_m", "consumers", "turns", "row_bytes", "stages",
          "promote_k", "partials", "cluster_m", "cluster_n", "multiprocessors")  # fmt: skip
# Tried besides the stencil's starts.  1024 x 1024 results are 128 blocks of 128 x 64, for 132
# multiprocessors: each needs its operands at 96 bytes a cycle, more than L2 gives all of them, so
# neighbours might share them.  An H100 was slower so: 10.4 to 10.6 us of BF16 at 1024, against 7.8
# for 128 x 64 without a cluster, which is a start since.  The first are for 2048 and more.
_PLAIN = (
    (128, 128, 128, 2, 0, 128, 6, 0, 1, 2, 1, 132),
    (128, 128, 128, 2, 0, 128, 6, 0, 1, 1, 2, 132),
    (128, 64, 128, 1, 0, 128, 6, 0, 1, 1, 2, 0),
    (128, 64, 128, 1, 0, 128, 6, 0, 1, 2, 2, 0),
    (64, 128, 64, 2, 0, 128, 6, 0, 1, 2, 1, 0),
    (128, 64, 128, 1, 0, 128, 8, 0, 1, 1, 1, 0),
    (64, 128, 64, 2, 0, 128, 8, 0, 1, 1, 1, 0),
)
_PROMOTED = (
    (256, 128, 128, 2, 0, 64, 3, 32, 1, 1, 2, 132),
    (128, 128, 128, 2, 0, 64, 4, 64, 1, 1, 1, 132),
    (128, 128, 128, 2, 0, 64, 4, 64, 1, 2, 1, 132),
    (64, 128, 64, 2, 0, 64, 5, 32, 1, 1, 1, 0),
    (64, 128, 64, 2, 0, 64, 5, 32, 1, 2, 1, 0),
    (128, 64, 128, 1, 0, 64, 6, 32, 1, 1, 2, 0),
    (128, 64, 128, 1, 0, 64, 6, 64, 1, 1, 2, 0),
    (128, 64, 128, 1, 0, 128, 3, 32, 2, 1, 2, 0),
    (128, 64, 64, 1, 0, 64, 6, 32, 2, 1, 1, 0),
)

_FAMILY = Wgmma()
# What is varied around a config, what pays most first; the rest follows from the block.
_VARIED = ("stages", "cluster_m", "cluster_n", "raster_rows", "promote_k", "block_k", "partials",
           "resident", "turns", "instruction_m", "block_m", "block_n",
           "consumers", "multiprocessors")  # fmt: skip


@dataclass(frozen=True)
class Case:
    """One arithmetic with one pair of transposes.

    Parameters
    ----------
    arithmetic : str
        ``"f16"``, ``"bf16"``, ``"tf32"`` or ``"s8"``, multiplied as they are, with a result as
        narrow as the operands where both can be; or a scheme: single precision in parts.
    trans : str
        As BLAS has it, such as ``"NT"``.

    Raises
    ------
    ValueError
        If either is unknown.
    """

    arithmetic: str
    trans: str

    def __post_init__(self) -> None:
        if self.arithmetic not in FORMATS and self.arithmetic not in SCHEMES:
            known = ", ".join(dict.fromkeys((*FORMATS, *SCHEMES)))
            raise ValueError(f"arithmetic={self.arithmetic!r} is unknown; use one of {known}")
        if len(self.trans) != 2 or not set(self.trans) <= set("NT"):
            raise ValueError(f"trans={self.trans!r} is unknown; use NN, NT, TN or TT")

    @property
    def scheme(self) -> Scheme | None:
        """How elements are split; None where they are multiplied as they lie.

        TF32 operands that do not run along k are brought into order by the same pass, in one
        part: matrix units read them so only.
        """
        if self.arithmetic == "tf32" and self.trans == "TN":
            return None
        return SCHEMES.get(self.arithmetic)

    @property
    def peer(self) -> str:
        """What a library is asked for: the same format, or single precision."""
        return self.arithmetic if self.arithmetic in FORMATS else "s"

    @property
    def bound(self) -> str:
        """Name of its arithmetic in bounds."""
        known = FORMATS.get(self.arithmetic)
        return self.arithmetic if known is None else known.arithmetic

    @property
    def result(self) -> str:
        """Type of C."""
        form = FORMATS.get(self.arithmetic)
        if form is None:
            return "float32"
        return form.element if form.element in ("float16", "bfloat16") else form.result

    @property
    def variant(self) -> TensorVariant:
        """What the stencil is compiled for, operands turned where they have to be."""
        scheme = self.scheme
        turned = scheme is not None and scheme.part == "tf32"
        trans = [Trans(letter) for letter in ("TN" if turned else self.trans)]
        return TensorVariant(precision("s"), *trans, arithmetic=self._arithmetic())

    def _arithmetic(self) -> Arithmetic:
        scheme = self.scheme
        if scheme is None:
            element = FORMATS[self.arithmetic].element
            tensor = "tf32" if element == "float32" else element
            return Arithmetic(tensor, self.result)  # type: ignore[arg-type]
        element = {"fp16": "float16", "bf16": "bfloat16", "tf32": "tf32"}[scheme.part]
        return Arithmetic(element, products=scheme.products, scaled=True, routed=True)  # type: ignore[arg-type]

    def __str__(self) -> str:
        return f"{self.arithmetic} {self.trans}"


def tuned_as(case: Case) -> Case:
    """Return the case whose tuned configs serve this one.

    FP16 and BF16 kernels differ in a bit of an instruction, BF16x9 from BF16x6 in products; and
    operands of TF32 run along k, whatever the transposes are.
    """
    name = {"f16": "bf16", "bf16x9": "bf16x6"}.get(case.arithmetic, case.arithmetic)
    return Case(name, "TN" if name in ("tf32", "tf32x3") else case.trans)


def candidates(case: Case, device: DeviceSpec, around: Config | None = None) -> list[Config]:
    """Return configs to try: the stencil's starts and more of their kind, or one's neighbours.

    A scheme's sums leave the matrix unit now and then, or they are worse than SGEMM's.

    Parameters
    ----------
    case : Case
        What is computed.
    device : DeviceSpec
        Whose limits hold.
    around : Config, optional
        Every config that differs from it in one value: the next one of each parameter first.
    """
    space = _FAMILY.space(case.variant, device)
    if around is None:
        starts = _FAMILY.starts(case.variant, device)
        found: Iterator[Config] = chain(starts, _sharing(starts), _besides(case))
    else:
        found = _around(around, {p.name: p.values for p in space.parameters})
    promoted = case.scheme is not None and case.scheme.promote_k > 0
    return [
        config
        for config in dict.fromkeys(found)
        if config in space and (config.integer("promote_k") > 0 or not promoted)
    ]


def _around(config: Config, values: Mapping[str, Sequence[Any]]) -> Iterator[Config]:
    """Yield the neighbours of a config, those at a step of each parameter before others."""
    lists = []
    for name in _VARIED:
        own = values[name].index(config[name])
        others = sorted(range(len(values[name])), key=lambda i, own=own: abs(i - own))[1:]  # type: ignore[misc]
        lists.append([Config(_FAMILY.name, {**config, name: values[name][i]}) for i in others])
    for turn in zip_longest(*lists):
        yield from (one for one in turn if one is not None)


def _sharing(starts: Sequence[Config]) -> Iterator[Config]:
    """Yield starts with tiles that all blocks share; the space refuses those that cannot.

    On an H100 they were slower (docs/tensor_cores.md), so they are no starts themselves.
    """
    for config in starts:
        yield from (config.replace(stream_k=kind) for kind in (1, 2))


def _besides(case: Case) -> Iterator[Config]:
    """Yield what is tried besides the stencil's starts."""
    made = case.variant.arithmetic
    for shape in _PROMOTED if len(made.products) > 1 else _PLAIN:
        values = dict(zip(_NAMES, shape, strict=True))
        values["block_k"] = values.pop("row_bytes") // made.element_bytes
        yield Config(_FAMILY.name, {**values, "resident": 1, "raster_rows": 8})
