"""Only what `gemm` would serve is exported: rescheduled code where it is proved."""

from __future__ import annotations

from tilewright.backend.cuda.architecture import architecture_spec
from tilewright.backend.cuda.compiler import nvrtc_version
from tilewright.export.target import Target
from tilewright.space import Config
from tilewright.stencil import Variant, stencil, stencils, unscheduled
from tilewright.tuning.database import default_path
from tilewright.tuning.store import Store

__all__ = ["check_proved", "check_winners"]


def check_proved(arch: str, family: str, variant: Variant, config: Config) -> None:
    """Refuse rescheduled code that no run has shown right on an architecture.

    Raises
    ------
    ValueError
        In one line that says what to do.
    """
    if unscheduled(config) == config:
        return
    for rule in stencil(family).space(variant, architecture_spec(arch)).violated(config):
        if rule.kind == "proof":
            raise ValueError(
                f"config {config.id} for {variant} is rescheduled (schedule={config['schedule']}),"
                f" which is not proved on {arch} with NVRTC {nvrtc_version()}; run"
                " benchmarks/shipped/schedule_proof.py there, tune without --unproved-schedules, or"
                " export with --defaults"
            )


def check_winners(target: Target, variant: Variant) -> None:
    """Refuse a variant whose only winner for some size is rescheduled code without proof.

    `gemm` leaves such a winner aside.  Where the same problem has another one, as `tune` stores
    it, that is exported; where not, a default in the place of what was tuned would surprise.

    Raises
    ------
    ValueError
        As `check_proved`.
    """
    path = default_path()
    if not target.fingerprint or not path.exists():
        return
    versions = {family.name: family.version for family in stencils()}
    trans = f"{variant.trans_a}{variant.trans_b}"
    with Store(path, create=False) as store:
        mine = store.winners(target.fingerprint, variant.precision, trans, versions=versions)
    plain = {row.problem for row in mine if unscheduled(row.config) == row.config}
    for row in mine:
        if row.problem not in plain:
            check_proved(target.arch, row.config.stencil, variant, row.config)
