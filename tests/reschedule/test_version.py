"""The scheduler's version stands for the code it makes: other code needs another version."""

from __future__ import annotations

import hashlib

from tests.reschedule.test_schedule import rescheduled
from tilewright.reschedule.version import SCHEDULER_VERSION

# Of the small SGEMM that is kept as a cubin, one round of every step, by version.  Whoever changes
# what the scheduler makes raises SCHEDULER_VERSION and adds the new digest here: proofs and
# measurements of the old one then count no more.
DIGESTS = {
    1: "513eb2ca8db6d967",
    2: "92e6d72c36c823dd",
    3: "bbdf45556caf5d07",
    4: "bbdf45556caf5d07",  # registers of kernels with CGAERRBAR and YIELD; this one has neither
    5: "bbdf45556caf5d07",  # stalls behind what the uniform pipe computes; this one has none
}


def test_the_version_is_raised_when_the_code_changes() -> None:
    code = b"".join(one.raw.to_bytes(16, "little") for one in rescheduled())
    assert hashlib.sha256(code).hexdigest()[:16] == DIGESTS.get(SCHEDULER_VERSION), (
        "the scheduler makes other code: raise SCHEDULER_VERSION and add its digest here"
    )
