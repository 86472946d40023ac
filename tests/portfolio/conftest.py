"""Fixtures that plant portfolios: the package's, and the user's own."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.portfolio.examples import forget, write
from tilewright.portfolio import Portfolio, PortfolioKernel, find

Plant = Callable[..., Portfolio]


@pytest.fixture
def ship(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Plant]:
    """Let kernels come with the package, and nothing else."""
    folder = tmp_path / "package"
    folder.mkdir()
    monkeypatch.setattr(
        find, "shipped_folder", lambda capability: folder if capability == 90 else None
    )

    def plant(*kernels: PortfolioKernel, name: str = "s", **facts: Any) -> Portfolio:
        made = write(folder, kernels, name, **facts)
        forget()
        return made

    forget()
    yield plant
    monkeypatch.undo()
    forget()


@pytest.fixture
def keep() -> Iterator[Plant]:
    """Let kernels be the user's own on a device with this key."""

    def plant(key: str, *kernels: PortfolioKernel, name: str = "s", **facts: Any) -> Portfolio:
        made = write(find.own_folder(key), kernels, name, **facts)
        forget()
        return made

    forget()
    yield plant
    forget()
