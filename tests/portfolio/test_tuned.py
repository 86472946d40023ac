"""What is tuned is kept: the user's own portfolio gains its winner, and loses nothing."""

from __future__ import annotations

import errno
import multiprocessing
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

import tilewright as tw
from tests.portfolio.examples import H100, Hopper, costs, cubin_of, digest, kernel, write
from tests.tuning.measurement_examples import example
from tilewright.backend import Kernel, device
from tilewright.portfolio import choose, own_folder
from tilewright.portfolio.find import own
from tilewright.portfolio.portfolio import PortfolioError, read_portfolio
from tilewright.portfolio.tuned import keep as keep_winner
from tilewright.problem import Problem
from tilewright.stencil import Variant, stencil
from tilewright.stencil.geometry import PLAIN, Mode
from tilewright.tuning.measurement import Stage

SQUARE, SMALL = Problem(4096, 4096, 4096, "s"), Problem(64, 64, 64, "s")
NN = Variant.of(SQUARE)
FAMILY = stencil("simt_async")
FIRST, SECOND, THIRD = FAMILY.starts(NN, H100)[:3]
KEY = "here"


class Compiling(Hopper):
    """Makes what stands for a cubin, of its own."""

    def compile(self, source, rewrite=None):
        """Return text that differs with the macros, and where it is to be rewritten."""
        code = repr((sorted(source.defines.items()), rewrite is not None)).encode()
        cubin = SimpleNamespace(code=code, lowered={"gemm": "_Z4gemm"})
        return Kernel(SimpleNamespace(cubin=cubin), source.entry, 0.0, code)


def won(config=FIRST, problem=SQUARE, ns=1000, **facts):
    facts = {
        "stencil_version": stencil(config.stencil).version,
        "stage": Stage.WINNER,
        "backend": "cuda",
    } | facts
    return example(config=config, problem=problem, times_ns=(ns,), **facts)


def live(backend="cuda"):
    made = Compiling(key=KEY)
    made.backend = backend
    return made


def kernels():
    return {one.config: one for one in read_portfolio(own_folder(KEY), "s").kernels}


def test_a_winner_serves_after_a_reload():
    assert choose(live(), SQUARE).kernel is None
    made = keep_winner(live(), won())
    assert choose(live(), SQUARE).kernel is None
    tw.reload()
    chosen = choose(live(), SQUARE)
    assert (chosen.config, chosen.kernel) == (FIRST, made.kernels[0])
    assert chosen.tuned_on == "SGEMM NN 4096"
    assert (made.device, made.arch) == (H100.name, "sm_90a")


def test_a_winner_outside_of_the_thresholds_serves_where_it_is_compiled_anew():
    space = FAMILY.space(NN, H100)
    beyond = next(one for one in space.without("heuristic").sample(999, 0) if one not in space)
    keep_winner(live("opencl"), won(beyond))
    tw.reload()
    assert choose(live("opencl"), SQUARE).config == beyond


def test_of_two_winners_of_one_problem_the_faster_stays():
    keep_winner(live(), won(FIRST, ns=1000))
    keep_winner(live(), won(SECOND, ns=1100))
    assert list(kernels()) == [FIRST]
    keep_winner(live(), won(SECOND, ns=900))
    assert list(kernels()) == [SECOND]
    keep_winner(live(), won(SECOND, ns=800))
    assert kernels()[SECOND].won == {(4096, 4096, 4096): 800}


def test_winners_of_other_problems_stay():
    keep_winner(live(), won(FIRST, SQUARE))
    keep_winner(live(), won(FIRST, SMALL))
    keep_winner(live(), won(SECOND, replace(SMALL, m=65, lda=0, ldc=0)))
    keep_winner(live(), won(FAMILY.default(Variant.of(Problem(1, 1, 1, "s", "T")), H100),
                            Problem(64, 64, 64, "s", "T")))  # fmt: skip
    found = read_portfolio(own_folder(KEY), "s").kernels
    assert len(found) == 3
    assert sorted(len(one.won) for one in found) == [1, 1, 2]
    keep_winner(live(), won(THIRD, SMALL, ns=1))
    assert (64, 64, 64) not in kernels()[FIRST].won
    assert kernels()[THIRD].won == {(64, 64, 64): 1}


def test_machine_code_is_kept_where_the_device_loads_it():
    made = keep_winner(live(), won())
    ((mark, code),) = made.codes.items()
    assert digest(made.machine_code(mark)) == mark
    assert (code.symbol, code.shared_bytes > 0) == ("_Z4gemm", True)
    assert code.checked.startswith(H100.name)
    keep_winner(live(), won(SECOND, SMALL))
    both = read_portfolio(own_folder(KEY), "s")
    assert len(both.codes) == 2
    assert all(digest(both.machine_code(one)) == one for one in both.codes)


def test_elsewhere_configs_alone_are_kept():
    made = keep_winner(live("opencl"), won())
    assert (made.codes, made.kernels[0].modes) == ({}, {})


def test_a_schedule_belongs_to_the_machine_code_and_not_to_the_config():
    plain = keep_winner(live(), won(FIRST, SMALL))
    made = keep_winner(live(), won(FIRST.replace(schedule=5)))
    assert list(kernels()) == [FIRST]
    assert [code.rescheduled for code in plain.codes.values()] == [False]
    assert [made.codes[digest].rescheduled for digest in kernels()[FIRST].modes.values()] == [True]


def test_damaged_machine_code_is_left_out_and_compiled_when_it_serves():
    made = keep_winner(live(), won())
    (own_folder(KEY) / made.data).write_bytes(b"damaged")
    keep_winner(live(), won(SECOND, SMALL))
    found = read_portfolio(own_folder(KEY), "s")
    assert set(kernels()[SECOND].modes.values()) == set(found.codes)
    assert kernels()[FIRST].modes == {}
    tw.reload()
    assert choose(live(), SQUARE).config == FIRST
    assert choose(live(), SQUARE).digest() == ""


def test_a_portfolio_that_cannot_be_read_is_set_aside_and_made_anew():
    keep_winner(live(), won())
    manifest = own_folder(KEY) / "s.json"
    whole = manifest.read_text()
    manifest.write_text("{")
    with pytest.warns(UserWarning, match=r"s\.json is no portfolio.*it was moved to .*/s-unread-"):
        keep_winner(live(), won(SECOND, SMALL))
    assert list(kernels()) == [SECOND]
    (aside,) = own_folder(KEY).glob("s-unread-*")
    assert (aside / "s.json").read_text() == "{"
    (aside / "s.json").write_text(whole)
    assert [one.config for one in read_portfolio(aside, "s").kernels] == [FIRST]


def test_a_portfolio_stays_where_this_process_cannot_open_it_now(monkeypatch):
    keep_winner(live(), won())

    def refuse(*_, **__):
        raise OSError(errno.EMFILE, "Too many open files")

    with monkeypatch.context() as patched:
        patched.setattr(Path, "read_text", refuse)
        with pytest.raises(OSError, match="Too many open files"):
            keep_winner(live(), won(SECOND, SMALL))
    assert list(kernels()) == [FIRST]


@pytest.mark.parametrize("sizes", [[-1, 64, 64], [10**400, 64, 64]])
def test_races_of_no_sizes_are_found_where_a_portfolio_is_read(sizes):
    keep_winner(live(), won())
    manifest = own_folder(KEY) / "s.json"
    known, wrong = (f"[{','.join(map(str, x))}," for x in ([4096] * 3, sizes))
    text = manifest.read_text()
    assert known in text
    manifest.write_text(text.replace(known, wrong))
    with pytest.raises(PortfolioError, match=r"s\.json is no portfolio: won=.* are no sizes"):
        read_portfolio(own_folder(KEY), "s")


def test_what_was_built_here_stays_with_its_costs_modes_and_sources():
    """A winner beside it, or of the same config, takes nothing away."""
    scalar = Mode(scalar=True)
    built = [
        kernel(SQUARE, FIRST, [PLAIN, scalar], costs=costs(3.0), routed=[PLAIN]),
        kernel(SQUARE, SECOND, costs=costs(4.0)),
    ]
    write(own_folder(KEY), built, sources={"a": built[0].modes[PLAIN]})
    keep_winner(live(), won(THIRD, SMALL))
    found = kernels()
    assert (found[FIRST], found[SECOND]) == tuple(built)
    keep_winner(live(), won(FIRST, SMALL, ns=1))
    found = kernels()
    assert found[FIRST].costs == built[0].costs
    assert found[FIRST].modes[scalar] == built[0].modes[scalar]
    assert found[FIRST].routed == built[0].routed
    assert found[FIRST].won == {(64, 64, 64): 1}
    portfolio = read_portfolio(own_folder(KEY), "s")
    assert portfolio.machine_code(built[0].routed[PLAIN]) == cubin_of(FIRST, NN, PLAIN, "routed")
    assert portfolio.sources == {"a": built[0].modes[PLAIN]}
    assert portfolio.machine_code(built[0].modes[PLAIN]) == cubin_of(FIRST, NN, PLAIN)


def test_winners_of_an_older_stencil_give_way_however_fast_they_were(monkeypatch):
    keep_winner(live(), won(ns=1))
    monkeypatch.setattr(type(FAMILY), "version", FAMILY.version + 1)
    keep_winner(live(), won(SECOND, ns=1000))
    assert list(kernels()) == [SECOND]


def add(turn: int) -> None:
    problem = Problem(64 + turn, 64, 64, "s")
    keep_winner(live("opencl"), won((FIRST, SECOND, THIRD)[turn % 3], problem))


def test_processes_that_end_at_once_lose_nothing():
    with multiprocessing.get_context("fork").Pool(2) as pool:
        pool.map(add, range(8), chunksize=1)
    found = [size for one in read_portfolio(own_folder(KEY), "s").kernels for size in one.won]
    assert sorted(found) == [(64 + turn, 64, 64) for turn in range(8)]


def test_where_a_winner_cannot_be_kept_nothing_is_tuned(monkeypatch, tmp_path):
    (tmp_path / "file").touch()
    monkeypatch.setenv("TILEWRIGHT_PORTFOLIO_DIR", str(tmp_path / "file"))

    def tuned(problem, device=None):
        raise AssertionError("the budget is spent")

    monkeypatch.setattr("tilewright.tuning.tuner.tune", tuned)
    with pytest.raises(OSError, match=r"TILEWRIGHT_PORTFOLIO_DIR: .*file is not a directory"):
        tw.tune(SQUARE)


def test_tuning_serves_the_next_process():
    """The whole loop on a small budget: tune, then multiply with what was found."""
    here, problem = device(), Problem(96, 80, 64, "s")
    result = tw.tune(problem, here, budget="4s", strategy="random")
    tw.reload()
    chosen = choose(here, problem)
    assert chosen.config == result.served.config
    assert chosen.tuned_on == "SGEMM NN 96x80x64"
    assert own(here.portfolio_key, "s").kernels == (chosen.kernel,)
    a = np.arange(64 * 64, dtype="f4").reshape(64, 64) % 7
    assert np.array_equal(tw.gemm(a, a, device=here), a @ a)
