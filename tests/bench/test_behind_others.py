"""What a kernel takes behind others: who runs before whom, told by calls that say so."""

from __future__ import annotations

import sys
from types import SimpleNamespace

import pytest

from tests.library.test_shipped import script


@pytest.fixture
def behind_others():
    return script("behind_others")


class Bench:
    """Says what ran last, in place of a time."""

    letter = "s"

    def __init__(self):
        self.order = []
        self.cublas = SimpleNamespace(
            prepare=lambda load: lambda: self.order.append(f"cublas {load.size}")
        )

    def kernel(self, trans, config):
        return config.id

    def workload(self, trans, size):
        def run(kernel, family, config):
            self.order.append(f"{kernel} {size}")
            return len(self.order)

        return SimpleNamespace(size=size, run=run)


def test_each_launch_is_behind_what_its_name_says(behind_others):
    races = behind_others.winners("s", ["NN"], [1024, 2048])
    assert sorted(size for _, size, _ in races) == [1024, 2048]
    bench = Bench()
    for (_, size, mine), (_, _, theirs) in zip(races, reversed(races), strict=True):
        bench.order.clear()
        (row,) = [r for r in behind_others.measure(bench, races) if r["size"] == size]
        own, at = f"{mine.id} {size}", behind_others.TINY
        wanted = {
            "itself": own, "cublas": f"cublas {size}", f"cublas {at}": f"cublas {at}",
            "another of ours": f"{theirs.id} {size}",
            f"another of ours {at}": f"{theirs.id} {at}",
        }  # fmt: skip
        assert row["ns"].keys() == wanted.keys()
        for name, taken in row["ns"].items():
            assert len(taken) == behind_others.ROUNDS
            # A time is how many ran so far: the one before it is two places back.
            assert {bench.order[place - 2] for place in taken} == {wanted[name]}, name
            assert {bench.order[place - 1] for place in taken} == {own}


def test_a_winner_whose_loop_was_moved_is_timed_as_it_stood_too(behind_others, monkeypatch):
    """Behind the same others, and both are asked for their bits."""

    class Live(Bench):
        live = None

        def kernel(self, trans, config):
            return SimpleNamespace(code=b"moved")

    asked = []
    monkeypatch.setattr(behind_others, "source_of", lambda *of: of)
    monkeypatch.setattr(behind_others, "result", lambda bench, load, run: asked.append(run()))
    races = behind_others.winners("s", ["NN"], [2048])
    for code, moved in ((b"stood", True), (b"moved", False)):
        twin = SimpleNamespace(code=code)
        (row,) = behind_others.measure(Live(), races, lambda live, source, twin=twin: twin)
        assert row["moved"] == moved
        assert ("ns_unmoved" in row) == moved
        assert not moved or row["ns_unmoved"].keys() == row["ns"].keys()
    assert len(asked) == 2


def test_sizes_without_races_are_a_line(behind_others, monkeypatch, capsys):
    command = ["behind_others.py", "--sizes", "777", "--json", "x.json"]
    monkeypatch.setattr(sys, "argv", command)
    with pytest.raises(SystemExit):
        behind_others.main()
    assert "--sizes: no race of [777]" in capsys.readouterr().err
