"""Launches that are enqueued one by one: what of their arguments is a call's."""

from __future__ import annotations

import numpy as np

from tilewright.serve.laid_out import ALPHA, Space
from tilewright.serve.ordered import _Arguments


def test_numbers_that_kernels_count_with_are_no_scalars():
    """Whatever they are: an alpha that is made up is a float of a kernel's type."""
    arguments = _Arguments(Space(), (0, 0))
    alpha = arguments.position(np.float32(ALPHA.real))
    counted = arguments.position(np.uint32(ALPHA.real))
    assert counted != alpha
    assert arguments.always == [np.uint32(ALPHA.real)]
