"""An exported library that the benchmark of C against C calls."""

from tests.export.conftest import exported, kernels, portfolios

__all__ = ["exported", "kernels", "portfolios"]
