"""From a config to what the compiler makes of it: checked, compiled and read, without a GPU."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tilewright.backend.cuda.architecture import architecture_spec
from tilewright.backend.cuda.compiler import Cubin, compile_cubin
from tilewright.problem import Problem, Trans
from tilewright.sass import Inspection, inspect_kernel, read_cubin
from tilewright.space import Config, Value
from tilewright.stencil import Resources, Variant
from tilewright.stencil import stencil as find_stencil

__all__ = ["ConfigInspection", "inspect_config"]


@dataclass(frozen=True)
class ConfigInspection:
    """A compiled config: what was estimated of it, and what its machine code says.

    Parameters
    ----------
    config : Config
        The point of the stencil's space.
    variant : Variant
        What it was compiled for.
    estimated : Resources
        What the stencil expects of it; constraints judge by that.
    unlikely : tuple of str
        Heuristics that the config fails, each with its reason; it runs all the
        same.
    cubin : Cubin
        The compiled file.
    kernel : Inspection
        What its machine code says.
    """

    config: Config
    variant: Variant
    estimated: Resources
    unlikely: tuple[str, ...]
    cubin: Cubin
    kernel: Inspection

    def as_dict(self) -> dict[str, Any]:
        """Return everything but the kernel and the file as plain data for JSON."""
        return {
            "stencil": self.config.stencil,
            "variant": str(self.variant),
            "config": dict(self.config),
            "config_id": self.config.id,
            "estimated": {
                "registers": self.estimated.registers,
                "shared_bytes": self.estimated.shared_bytes,
                "threads": self.estimated.threads,
            },
            "unlikely": list(self.unlikely),
        }


def inspect_config(
    config: Mapping[str, Value] | None = None,
    *,
    stencil: str = "portable",
    precision: str = "s",
    trans: str = "NN",
    arch: str = "sm_90a",
    partial: bool = False,
) -> ConfigInspection:
    """Compile a config and return what its machine code says; needs no GPU.

    Parameters
    ----------
    config : Mapping, optional
        A value for each of the stencil's parameters; the stencil's default for
        the architecture if left out.
    stencil : str
        Name of the stencil.
    precision : str
        BLAS letter: s, d, c or z.
    trans : str
        Operations of A and B, such as ``"NT"``.
    arch : str
        Architecture to compile for.
    partial : bool
        Whether parameters that `config` leaves out take the default's values.

    Raises
    ------
    ValueError
        If a name or value is no choice of the stencil, or fails a constraint of
        divisibility or of the hardware; the config does not reach the compiler.
    BackendError
        If NVRTC is not installed, or refuses the kernel.
    """
    if len(trans) != 2 or any(letter not in tuple(Trans) for letter in trans):
        raise ValueError(f"trans={trans!r} is not a pair of N, T and C; write NN, NT, TN or TT")
    family = find_stencil(stencil)
    variant = Variant.of(Problem(1, 1, 1, precision, trans[0], trans[1]))  # type: ignore[arg-type]
    device = architecture_spec(arch)
    space = family.space(variant, device)
    values: Mapping[str, Value] = config or {}
    if config is None or partial:
        values = {**family.default(variant, device), **values}
    checked = space.config(values, kinds=("divisibility", "hardware"))
    source = family.source(checked, variant, "cuda")
    estimated = family.resources(checked, variant)
    cubin = compile_cubin(source, arch)
    kernel = read_cubin(cubin.code).kernel(cubin.lowered[source.entry])
    return ConfigInspection(
        config=checked,
        variant=variant,
        estimated=estimated,
        unlikely=tuple(f"{rule.name}: {rule.reason}" for rule in space.violated(checked)),
        cubin=cubin,
        kernel=inspect_kernel(kernel, estimated.threads, source.dynamic_shared_bytes),
    )
