"""What is served: few kernels with machine code, geometry, launch modes and costs, as data."""

from tilewright.portfolio.choose import Choice, choose, default_choice
from tilewright.portfolio.find import own, own_folder, reload, shipped
from tilewright.portfolio.held import Served, held, refuse
from tilewright.portfolio.kernel import Code, PortfolioKernel
from tilewright.portfolio.portfolio import (
    Copying,
    Portfolio,
    PortfolioError,
    read_portfolio,
    write_portfolio,
)

__all__ = [
    "Choice",
    "Code",
    "Copying",
    "Portfolio",
    "PortfolioError",
    "PortfolioKernel",
    "Served",
    "choose",
    "default_choice",
    "held",
    "own",
    "own_folder",
    "read_portfolio",
    "refuse",
    "reload",
    "shipped",
    "write_portfolio",
]
