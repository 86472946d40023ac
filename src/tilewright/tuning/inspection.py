"""From a config to what the compiler makes of it: checked, compiled and read, without a GPU."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tilewright.backend.cache import KernelCache
from tilewright.backend.cuda.architecture import architecture_spec
from tilewright.backend.cuda.compiler import Cubin, compile_cubin
from tilewright.problem import Problem, pair_of
from tilewright.reschedule.compare import Comparison, compare
from tilewright.reschedule.cubin import reschedule
from tilewright.reschedule.levels import Level, baseline_and_level, schedule_space
from tilewright.reschedule.proofs import proved
from tilewright.sass import Inspection, inspect_kernel, read_cubin
from tilewright.space import Config, Value
from tilewright.stencil import Resources, Source, Variant
from tilewright.stencil import stencil as find_stencil
from tilewright.stencil.geometry import Mode
from tilewright.stencil.stored import config_and_mode
from tilewright.stencil.wgmma.named import family_of, variant_of

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
    mode : Mode
        The launch mode that it was compiled in.
    estimated : Resources
        What the stencil expects of it; constraints judge by that.
    unlikely : tuple of str
        Heuristics that the config fails, each with its reason; it runs all the
        same.
    unproved : tuple of str
        What nobody has shown right on such a device, each with its reason; it is
        not served.
    cubin : Cubin
        The compiled file, rescheduled if the config asks for it.
    kernel : Inspection
        What its machine code says.
    rescheduled : Comparison or None
        What rescheduling changed, and should gain.
    """

    config: Config
    variant: Variant
    mode: Mode
    estimated: Resources
    unlikely: tuple[str, ...]
    unproved: tuple[str, ...]
    cubin: Cubin
    kernel: Inspection
    rescheduled: Comparison | None = None

    def as_dict(self) -> dict[str, Any]:
        """Return everything but the kernel and the file as plain data for JSON."""
        return {
            "stencil": self.config.stencil,
            "variant": str(self.variant),
            "config": dict(self.config),
            "mode": str(self.mode),
            "config_id": self.config.id,
            "estimated": {
                "registers": self.estimated.registers,
                "shared_bytes": self.estimated.shared_bytes,
                "threads": self.estimated.threads,
            },
            "unlikely": list(self.unlikely),
            "unproved": list(self.unproved),
            **({} if self.rescheduled is None else {"schedule": self.rescheduled.as_dict()}),
        }


def inspect_config(
    config: Mapping[str, Value] | None = None,
    *,
    stencil: str | None = None,
    precision: str = "s",
    trans: str = "NN",
    arch: str = "sm_90a",
    partial: bool = False,
    mode: Mode | None = None,
    arithmetic: str = "ieee",
) -> ConfigInspection:
    """Compile a config and return what its machine code says; needs no GPU.

    Parameters
    ----------
    config : Mapping, optional
        A value for each of the stencil's parameters; the stencil's default for
        the architecture if left out.
    stencil : str, optional
        Name of the stencil; without it ``"portable"``, or what has the arithmetic.
    precision : str
        BLAS letter: s, d, c or z.
    trans : str
        Operations of A and B, such as ``"NT"``.
    arch : str
        Architecture to compile for.
    partial : bool
        Whether parameters that `config` leaves out take the default's values.
    mode : Mode, optional
        The launch mode to compile it in; without it what a stored config names, or the plain one.
    arithmetic : str
        As in `tilewright.stencil.wgmma.variant_of`.

    Raises
    ------
    ValueError
        If a name or value is no choice of the stencil, or fails a constraint of
        divisibility or of the hardware; the config does not reach the compiler.
    BackendError
        If NVRTC is not installed, or refuses the kernel; or the scheduler does.
    """
    ops = pair_of(trans, "NTCR")  # a stored problem may have R
    asked = Problem(1, 1, 1, precision, *ops)  # type: ignore[arg-type]
    variant = variant_of(asked, arithmetic)
    family = find_stencil(family_of(asked, arithmetic, stencil) or "portable")
    device = architecture_spec(arch)
    if not family.computes(variant):
        raise ValueError(f"stencil={family.name!r} has no {asked.precision.name}; leave it out")
    if family.only_on and not family.suits(device):
        raise ValueError(f"arch={arch!r} lacks what {family.name} takes; use {family.only_on}")
    space = schedule_space(family, variant, device, proved(arch))
    if not isinstance(config, Mapping | None):
        raise TypeError(f"config is a {type(config).__name__}; give a mapping of names to values")
    values, stored_mode = config_and_mode(family.name, config or {})
    mode = stored_mode if mode is None else mode
    usual = family.default(variant, device)  # which refuses a GPU where a CPU is needed
    given: Mapping[str, Value] = values
    if config is None or partial:
        given = {**usual, **values}
    checked = space.config(given, kinds=("divisibility", "hardware"))
    baseline, level = baseline_and_level(checked)
    if mode not in (able := family.modes(baseline, variant, device)):
        names = ", ".join(map(str, able))
        raise ValueError(f"mode={mode} is none of this config; use one of {names}")
    source = family.source(baseline, variant, "cuda", mode)
    estimated = family.resources(baseline, variant)
    cubin, changed = compile_cubin(source, arch), None
    if level is not None:
        cubin, changed = _rescheduled(cubin, source, level, estimated.threads)
    kernel = read_cubin(cubin.code).kernel(cubin.lowered[source.entry])
    failed = [(rule.kind, f"{rule.name}: {rule.reason}") for rule in space.violated(checked)]
    return ConfigInspection(
        config=checked,
        variant=variant,
        mode=mode,
        estimated=estimated,
        unlikely=tuple(text for kind, text in failed if kind == "heuristic"),
        unproved=tuple(text for kind, text in failed if kind == "proof"),
        cubin=cubin,
        kernel=inspect_kernel(kernel, estimated.threads, source.dynamic_shared_bytes),
        rescheduled=changed,
    )


def _rescheduled(
    plain: Cubin, source: Source, level: Level, threads: int
) -> tuple[Cubin, Comparison]:
    """Return a cubin with its main loop rescheduled, and what that changed."""
    made = reschedule(plain, source.entry, level, KernelCache())
    before, after = (
        read_cubin(one.code).kernel(one.lowered[source.entry]) for one in (plain, made)
    )
    return made, compare(before, after, threads, source.dynamic_shared_bytes)
