"""Sweeps of compiled kernels: what is said of them, and lists that a search times again."""

from __future__ import annotations

import sys

import pytest

from tests.library.test_shipped import script
from tilewright.backend.cuda.architecture import architecture_spec
from tilewright.stencil import stencil

NAMES = ["block_m", "schedule"]


@pytest.fixture
def sweeps():
    before = set(sys.modules)
    yield script("sweeps")
    for name in set(sys.modules) - before:
        if name.split(".")[0] in ("hopper", "choice_fit", "ship"):
            del sys.modules[name]


def test_a_sweep_s_best_and_median_are_told(sweeps):
    sweep = {
        "trans": "NN",
        "size": 64,
        "names": NAMES[:1],
        "rows": [[4000, 32], [2000, 64], [3000, 96]],
    }
    assert list(sweeps.swept([sweep])) == [
        "NN 64: 3 kernels, the best 2.0 us, the median 1.500 times that"
    ]


@pytest.mark.parametrize(
    ("chosen", "said"), [(None, "0.750 of what served, "), (2000, "0.900 of what served, ")]
)
def test_the_best_stands_beside_what_served_as_compiled(sweeps, chosen, said):
    """What served is told by its rescheduled twin, unless its time is given."""
    turns = [{"ns": ns, "config": dict(zip(NAMES, values, strict=True))}
             for ns, values in ((1800, (64, 0)), (2300, (32, 5)), (1900, (96, 0)))]  # fmt: skip
    turns.append({"ns": 2400, "config": {"block_m": 32}})
    race = {"trans": "NN", "size": 64, "cublas_ns": 3600, "chosen_ns": chosen, "turns": turns}
    (line,) = sweeps.in_turns([race])
    assert said in line
    assert line.endswith("2.000 times as fast as cuBLAS")


def test_a_list_is_what_a_search_reads_fitted_to_its_size(sweeps, tmp_path, monkeypatch):
    from hopper.cases import variant_of
    from hopper.named import named_in

    path = tmp_path / "list.json"
    asked = ["sweeps.py", "--size", "1025", "--trans", "TT", "--best", "3", "--only", str(path)]
    monkeypatch.setattr(sys, "argv", asked)
    sweeps.main()
    found = named_in(path, "s", ["TT"])["TT"]
    space = stencil("simt_async").space(variant_of("s", "TT"), architecture_spec("sm_90a"))
    assert len(found) == 3
    assert all(one in space and one["narrow"] == one["staged"] == 1 for one in found)


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        (["--size", "77"], "no sweep of NN at 77; run without --only to see all"),
        (["--best", "0"], "--best 0 names no kernel; give 1 or more"),
        (
            ["--only", "nowhere/list.json"],
            "--only: nowhere/list.json is in no directory",
        ),
    ],
    ids=["size", "best", "folder"],
)
def test_what_cannot_be_listed_is_told(sweeps, asked, said, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["sweeps.py", "--only", "list.json", *asked])
    with pytest.raises(SystemExit):
        sweeps.main()
    assert said in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []
