"""``tilewright portfolio`` on small data: what is served, whether it is whole, how it is built."""

from __future__ import annotations

import functools
import json
from dataclasses import replace
from types import SimpleNamespace

import pytest

from tests.portfolio.examples import H100, costs, kernel, nothing_ahead
from tests.portfolio.times import document, write_times
from tilewright.backend import device
from tilewright.cli.app import run
from tilewright.portfolio import build, select
from tilewright.portfolio.portfolio import read_portfolio
from tilewright.problem import Problem
from tilewright.stencil import Variant, stencil
from tilewright.stencil.geometry import PLAIN, Mode

SQUARE = Problem(4096, 4096, 4096, "s")
CONFIG = stencil("simt_async").default(Variant.of(SQUARE), H100)
GPU = ("--device", "sm_90a")


@pytest.fixture
def shipped(ship):
    """A package with one kernel."""
    return ship(kernel(SQUARE, CONFIG, [PLAIN, Mode(scalar=True)], costs=costs(1.0),
                       won={(4096, 4096, 4096): 5.0}))  # fmt: skip


def told(capsys, *words):
    """Run a command that succeeds; return what it prints as JSON."""
    assert run(["portfolio", *words, "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def test_list_names_what_serves(shipped, capsys):
    (row,) = told(capsys, "list", *GPU)
    assert (row["name"], row["from"], row["kernels"], row["codes"]) == ("s", "the package", 1, 2)
    assert row["device"] == H100.name
    assert run(["portfolio", "list", *GPU]) == 0
    assert "the package" in capsys.readouterr().out


def test_list_names_ones_own(keep, capsys):
    here = device()
    packed = stencil("packed")
    of = Variant.of(SQUARE)
    mine = kernel(SQUARE, packed.default(of, here.spec), None, won={(64, 64, 64): 5.0})
    keep(here.portfolio_key, mine, compute_capability=None, device=here.spec.name)
    (row,) = told(capsys, "list")
    assert (row["name"], row["from"], row["codes"]) == ("s", "your own", 0)
    (row,) = told(capsys, "show", "s")
    assert row["won"] == [[64, 64, 64]]


@pytest.mark.parametrize("command", ["list", "verify"])
def test_where_nothing_is_there_it_says_what_to_do(ship, capsys, command):
    assert run(["portfolio", command, *GPU]) == 0
    assert "tilewright tune" in "".join(capsys.readouterr())
    assert told(capsys, command, *GPU) == []


def test_show_tells_of_kernels(shipped, capsys):
    (row,) = told(capsys, "show", "s", *GPU)
    assert row["config"] == dict(CONFIG)
    assert (row["modes"], row["won"]) == (["plain", "scalar"], [[4096, 4096, 4096]])
    assert run(["portfolio", "show", "s", *GPU]) == 0
    assert "4096x4096x4096" in capsys.readouterr().out.replace("\n", "")


def test_show_says_what_a_kernel_is_compiled_for_besides_products(ship, capsys):
    one = kernel(SQUARE)
    ship(replace(one, grouped=dict(one.modes), triangle=dict(one.modes)))
    (row,) = told(capsys, "show", "s", *GPU)
    assert [row[form] for form in ("batched", "grouped", "triangle")] == [[], ["plain"], ["plain"]]


def test_verify_reads_everything(shipped, capsys, tmp_path):
    (row,) = told(capsys, "verify", *GPU)
    assert (row["codes"], row["damaged"]) == (2, [])
    (row,) = told(capsys, "verify", "--folder", str(tmp_path / "package"))
    assert (row["codes"], row["damaged"]) == (2, [])


def test_verify_refuses_a_folder_without_portfolios(capsys, tmp_path):
    assert run(["portfolio", "verify", "--folder", str(tmp_path / "nothing")]) == 2
    assert "has no portfolios; name one that build wrote" in capsys.readouterr().err


def test_verify_fails_where_machine_code_is_damaged(shipped, capsys, tmp_path):
    path = tmp_path / "package" / shipped.data
    path.write_bytes(path.read_bytes()[:-40])
    assert run(["portfolio", "verify", *GPU, "--json"]) == 1
    out, error = capsys.readouterr()
    assert json.loads(out)[0]["damaged"]
    assert "damaged or wrong" in error
    assert "Traceback" not in error


# -- building, with a compiler that makes nothing ------------------------------------------


@pytest.fixture
def compiling(monkeypatch):
    """Let a digest of the source stand for its machine code, and few shapes for all."""

    def arranged_cubin(source, arch, cache, rewrite):
        text = f"{arch} {source.identity}".encode()
        made = SimpleNamespace(code=text, lowered={"gemm": "_Z4gemm"})
        return made if rewrite is None else rewrite(made, cache)

    def reschedule(cubin, entry, level, cache):
        return SimpleNamespace(code=cubin.code + level.name.encode(), lowered=cubin.lowered)

    monkeypatch.setattr(build, "arranged_cubin", arranged_cubin)
    monkeypatch.setattr("tilewright.reschedule.cubin.reschedule", reschedule)
    monkeypatch.setattr(build, "compiling_ahead", nothing_ahead)
    monkeypatch.setattr(build, "nvrtc_version", lambda: "1.2")
    monkeypatch.setattr(select, "_drawn", functools.partial(select._drawn, count=50))


def built(tmp_path, *words):
    times, work, folder = (str(tmp_path / x) for x in ("c.json", "work", "made"))
    return run(["portfolio", "build", "c", "--times", times, "--work", work, "-o", folder,
                *GPU, *words])  # fmt: skip


def test_build_picks_compiles_and_packs(compiling, tmp_path, capsys):
    write_times(tmp_path)
    assert built(tmp_path) == 0
    assert "kernels" in "".join(capsys.readouterr())
    found = read_portfolio(tmp_path / "made", "c")
    assert (found.arch, found.device, found.copying.begin_ns) == ("sm_90a", H100.name, 1202)
    assert found.made["commit"] == "0123abc"
    assert found.kernels
    for one in found.kernels:
        for digest in one.modes.values():
            assert found.machine_code(digest)
            assert found.codes[digest].symbol == "_Z4gemm"
    (row,) = told(capsys, "verify", "--folder", str(tmp_path / "made"))
    assert row["damaged"] == []


def test_what_is_made_of_times_of_two_models_is_of_neither_alone(compiling, tmp_path):
    """Its races are compared with none of a user's, whose device is one model."""
    times = write_times(tmp_path)
    other = tmp_path / "other.json"
    other.write_text(times.read_text().replace(H100.name, "NVIDIA H200"))
    assert built(tmp_path, "--times", str(other)) == 0
    found = read_portfolio(tmp_path / "made", "c")
    assert found.device == f"{H100.name}, NVIDIA H200"
    assert found.measured_on != (H100.name, H100.multiprocessors)


def test_build_goes_on_where_it_stopped(compiling, tmp_path, capsys):
    write_times(tmp_path)
    assert built(tmp_path, "--seconds", "0") == 1
    assert "run it again" in capsys.readouterr().err
    assert not (tmp_path / "made" / "c.json").exists()
    assert built(tmp_path, "--share", "0/2") == 1
    some = len(list((tmp_path / "work").glob("*.cubin")))
    assert built(tmp_path, "--share", "1/2") == 0
    assert len(list((tmp_path / "work").glob("*.cubin"))) > some > 0


def test_what_was_not_verified_is_left_out(compiling, tmp_path):
    write_times(tmp_path)
    assert built(tmp_path) == 0
    whole = read_portfolio(tmp_path / "made", "c")
    one = whole.kernels[0]
    passed = tmp_path / "passed.json"
    passed.write_text(json.dumps({one.modes[PLAIN]: "an H100"}))
    assert built(tmp_path, "--verified", str(passed)) == 0
    (left,) = read_portfolio(tmp_path / "made", "c").kernels
    assert (left.config, left.variant, left.modes) == (
        one.config, one.variant, {PLAIN: one.modes[PLAIN]},
    )  # fmt: skip
    assert read_portfolio(tmp_path / "made", "c").codes[one.modes[PLAIN]].checked == "an H100"


@pytest.mark.parametrize(
    ("words", "status", "message"),
    [
        (["show", "q", *GPU], 2, "portfolio 'q' serves no such device; see: tilewright"),
        (["show"], 2, "Missing argument"),
        (
            ["measure", "s", "--copied", "--stencil", "skinny", "-o", "times.json"],
            2,
            "copied=True is of a portfolio's kernels alone; leave out --stencil",
        ),
        (
            ["measure", "s", "--copied", "--shapes", "batches", "-o", "times.json"],
            2,
            "copied=True is of a portfolio's kernels alone",
        ),
        (
            ["measure", "s", "--stencil", "skinny", "--shapes", "layers", "-o", "times.json"],
            2,
            "shapes='layers' is no choice with --stencil skinny; use one of any, unaligned",
        ),
        (["measure", "s", "--shapes", "odd", "-o", "times.json"], 2, "use one of any, short"),
        (["list", "--device", "abacus"], 2, "or, by --device, an architecture such as sm_90a"),
        (["build", "q", "--work", "w", *GPU], 2, "portfolio='q' is unknown"),
        (["build", "c", "--work", "w", *GPU], 2, "--times is needed"),
        (["build", "d", "--work", "w", "--times", "c.json", *GPU], 2, "has times of 'c'"),
        (["build", "c", "--work", "w", "--times", "none.json", *GPU], 1, "none.json"),
        (["build", "c", "--work", "w", "--times", "bad.json", *GPU], 2, "is no file of times"),
        (["build", "c", "--work", "w", "--times", "c.json", "--share", "x", *GPU], 2, "share='x'"),
        (["build", "c"], 2, "--work"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else None,
)
@pytest.mark.usefixtures("compiling", "ship")
def test_errors_are_one_line(tmp_path, monkeypatch, capsys, words, status, message):
    monkeypatch.chdir(tmp_path)
    write_times(tmp_path)
    (tmp_path / "bad.json").write_text("[]")
    assert run(["portfolio", *words]) == status
    error = capsys.readouterr().err
    assert message in error
    assert "Traceback" not in error


def test_loss_takes_files_of_one_precision_together(tmp_path, capsys):
    one = write_times(tmp_path)
    case = document()["cases"]["TN"]
    (tmp_path / "more").mkdir()
    more = [[m, n, k + 8] for m, n, k in case["shapes"]]
    other = write_times(tmp_path / "more", cases={"TN": case | {"shapes": more}})
    rows = told(capsys, "loss", str(one), str(other), "--folds", "2")
    assert {row["variant"]: row["problems"] for row in rows} == {"cnn": 4, "ctn": 8, "cnt": 4}
    write_times(tmp_path / "more", precision="s")
    assert run(["portfolio", "loss", str(one), str(other)]) == 2
    assert "times are of precisions c, s; give files of one" in capsys.readouterr().err
