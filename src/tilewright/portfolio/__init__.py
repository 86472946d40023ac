"""What is served: few kernels with machine code, geometry, launch modes and costs, as data."""

from tilewright.portfolio.choose import Choice, choose
from tilewright.portfolio.find import own_folder, reload, shipped
from tilewright.portfolio.held import Served, held, refuse
from tilewright.portfolio.kernel import Code
from tilewright.portfolio.portfolio import Portfolio, PortfolioError

__all__ = [
    "Choice",
    "Code",
    "Portfolio",
    "PortfolioError",
    "Served",
    "choose",
    "held",
    "own_folder",
    "refuse",
    "reload",
    "shipped",
]
