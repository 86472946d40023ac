"""What limits the shares of k that persistent blocks take (division.cuh)."""

from __future__ import annotations

__all__ = ["LEAST_SHARE", "MOST_IN_TREE", "MOST_SINGLE"]

# A share has at least so many steps of k, as LEAST_STEPS of simt_async/persistent.cuh says.
LEAST_SHARE = 64

# In single precision: an owner adds parts up one after another, 2 us each on an H100, where 50
# shares of one tile of 128 x 128, k 3126, took 94 us.  By costs as once fitted to such shapes the
# best number grows with the root of k, from 7 at 1024 to 20 at 8192; with 12 none of these is
# slower than with its own by more than a seventh.
MOST_SINGLE = 12

# The same where parts are added up by halves: an owner then waits for five parts one after another.
MOST_IN_TREE = 32
