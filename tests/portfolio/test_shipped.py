"""What comes with the package is whole, and is what the stencils of today make."""

from __future__ import annotations

from dataclasses import replace
from importlib.resources import files
from pathlib import Path

import pytest

from tests.portfolio.examples import H100
from tilewright.portfolio import Portfolio
from tilewright.portfolio.kernel import GROUPED
from tilewright.portfolio.portfolio import read_portfolio
from tilewright.sass import read_cubin
from tilewright.sass.decode import opcodes
from tilewright.serve import passes
from tilewright.stencil import stencil

PACKAGE = Path(str(files("tilewright.portfolio")))
# griddepcontrol.wait on Hopper.
WAITS = 0x82E
SHIPPED = sorted(
    (folder.name, file.stem) for folder in PACKAGE.glob("sm_*") for file in folder.glob("*.json")
)


@pytest.fixture(params=SHIPPED, ids="-".join)
def portfolio(request: pytest.FixtureRequest) -> Portfolio:
    folder, name = request.param
    return read_portfolio(PACKAGE / folder, name)


def test_it_serves_the_device_that_it_was_verified_on(portfolio):
    assert portfolio.serves(H100)


def test_machine_code_is_what_the_manifest_names(portfolio):
    for digest, code in portfolio.codes.items():
        symbols = [one.name for one in read_cubin(portfolio.machine_code(digest)).kernels]
        assert code.symbol in symbols
        assert not code.second or code.second in symbols


def test_kernels_name_machine_code_that_is_there(portfolio):
    named = set(portfolio.sources.values())
    for kernel in portfolio.kernels:
        named |= {digest for modes in kernel.forms for digest in modes.values()}
    assert named == set(portfolio.codes)


def test_passes_are_launched_by_their_own_entries():
    portfolio = read_portfolio(PACKAGE / "sm_90", "passes")
    for _, source in passes.sources(H100):
        code = portfolio.codes[portfolio.sources[source.identity]]
        assert (code.symbol, code.second) == (source.entry, source.second)


def test_kernels_launch_as_their_stencils_do(portfolio):
    """A stencil that changed since serves nothing of it: build the portfolio again."""
    for kernel in portfolio.kernels:
        family = stencil(kernel.config.stencil)
        assert kernel.version == family.version
        made = family.geometry(kernel.config)
        # Where staging no longer pays was measured.
        assert kernel.geometry.stages_k <= made.stages_k
        # Machine code that was built before launches began early waits for nothing.
        assert kernel.geometry.early <= made.early
        known = {"stages_k": made.stages_k, "early": made.early}
        assert replace(kernel.geometry, **known) == made


def test_machine_code_waits_where_launches_begin_early(portfolio):
    for kernel in portfolio.kernels if portfolio.compute_capability >= 90 else ():
        early = kernel.forms[:GROUPED] if kernel.geometry.early else ()
        for digest in {one for modes in early for one in modes.values()}:
            symbol = portfolio.codes[digest].symbol
            code = read_cubin(portfolio.machine_code(digest)).kernel(symbol)
            assert WAITS in opcodes(code.code, code.arch), kernel.name
