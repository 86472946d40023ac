"""Importance: parameters that decide come first, those that do not are near 0."""

from __future__ import annotations

import numpy as np
import pytest

from tilewright.space import Config
from tilewright.tuning.importance import LEAST, importances

pytest.importorskip("sklearn")


def test_the_parameter_that_decides_is_told_with_its_doubt():
    random = np.random.default_rng(0)
    values = random.integers(0, 4, size=(LEAST, 3))
    configs = [
        Config("toy", {"much": int(x), "little": int(y), "idle": int(z), "fixed": 1})
        for x, y, z in values
    ]
    seconds = [1 + 4 * x + 0.6 * y for x, y, _ in values.tolist()]
    found = importances(configs, seconds)
    assert found[0].name == "much"
    assert {one.name for one in found} == {"much", "little", "idle"}
    assert all(one.low <= one.share <= one.high for one in found)
    idle = next(one for one in found if one.name == "idle")
    assert abs(idle.share) < 0.1 < found[0].low
