"""Nothing ships for these tests but what they ship themselves."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.portfolio.examples import forget
from tilewright.portfolio import find


@pytest.fixture(autouse=True)
def nothing_ships(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> Iterator[None]:
    """Leave the package's portfolios out, where a test does not ask for its own (`ship`)."""
    if "ship" not in request.fixturenames:
        monkeypatch.setattr(find, "shipped_folder", lambda capability: None)
    forget()
    yield
    monkeypatch.undo()
    forget()
