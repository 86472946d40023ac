"""What several tests of calls look at."""

from __future__ import annotations

from typing import Any

import pytest

from tilewright.serve import calls


@pytest.fixture
def laid(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What calls are laid out as, from here on; none was before."""
    found = []

    def lay_out(*arguments: Any, **options: Any) -> Any:
        found.append(original(*arguments, **options))
        return found[-1]

    original = calls.lay_out
    monkeypatch.setattr(calls, "lay_out", lay_out)
    calls.forget_plans()
    return found
