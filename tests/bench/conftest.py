"""Nothing here depends on exact times."""

from __future__ import annotations

import pytest


@pytest.fixture(autouse=True)
def _hasty(hasty: None) -> None: ...
