"""A rung whose product is wrong is named with the first element that is."""

from __future__ import annotations

import re

import numpy as np
import pytest

from tilewright.bench.ladder.race import refuse_others
from tilewright.tuning.verify import WrongResultError


def test_the_first_wrong_element_is_named():
    expected = np.array([[1.0, 2, np.nan], [3, 4, np.nan]])
    refuse_others("r1", (2, 2, 5), expected.copy(), expected)
    for at, value in (((1, 0), 7), ((0, 2), 0), ((0, 1), np.nan)):
        found = expected.copy()
        found[at] = value
        said = f"r1 2x2x5: C[{at[0]},{at[1]}] is {value:g}, not {expected[at]:g}"
        with pytest.raises(WrongResultError, match=re.escape(said)):
            refuse_others("r1", (2, 2, 5), found, expected)
