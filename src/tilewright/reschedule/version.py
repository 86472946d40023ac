"""The scheduler's version, part of every proof and of the key of cached code."""

from __future__ import annotations

__all__ = ["SCHEDULER_VERSION"]

# Raised whenever `schedule` may give other code for the same kernel, or `differences` may accept
# code that it refused: proofs on a device then hold no more.  A test compares the digest of a kept
# kernel's code.  A latency model that asks for more cycles needs no new version: it accepts nothing
# new, and the code that is proved still passes.
SCHEDULER_VERSION = 5
