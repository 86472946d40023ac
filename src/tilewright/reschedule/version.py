"""The scheduler's version: what proofs on devices and kept code are of."""

from __future__ import annotations

__all__ = ["SCHEDULER_VERSION"]

# Raised whenever `tilewright.reschedule.schedule` may give other code for the same kernel, or
# `tilewright.sass.differences` may let other code pass: what was proved on a device is then
# proved no more.  A test compares code that is kept.  A model that only asks for more cycles lets
# no other code pass, and the code that was proved passes still: that needs no new version.  Nor
# did an integer instruction behind VOTEU, which may read it in the next cycle since 2026-11-22, as
# ptxas has it: there is none in a loop, and nothing else is moved.  Nor did two writes under a
# condition and its opposite, which follow each other at once since that day: they are in text that
# stores, which keeps its place.
SCHEDULER_VERSION = 5
