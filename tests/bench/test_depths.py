"""Where warps were, counted from a profiler's page of samples."""

from __future__ import annotations

import argparse

import pytest

from tests.library.test_shipped import script

HEAD = ("Address", "Source", "# Samples", "Instructions Executed", "stall_wait", "stall_math",
        "stall_wait (Not Issued)")  # fmt: skip
# Two instructions before the loop, two in it with a rare one between, and one behind.
ROWS = (("0x0", "S2R", 3, 8, 3, 0, 9), ("0x10", "MOV", 1, 8, 0, 1, 9),
        ("0x20", "FFMA", 40, 800, 10, 30, 9), ("0x30", "BAR", 5, 80, 5, 0, 9),
        ("0x40", "FFMA", 45, 800, 0, 45, 9), ("0x50", "EXIT", 6, 8, 6, 0, 9))  # fmt: skip


@pytest.fixture
def depths():
    return script("depths")


def page(rows=ROWS):
    lines = [HEAD, *rows]
    text = "\n".join(",".join(f'"{cell}"' for cell in line) for line in lines)
    return f'"Kernel Name","gemm",\n{text}\n'


def test_the_loop_is_what_runs_most_often(depths):
    (found,) = depths.regions(page())
    assert found["before"] == {"instructions": 2, "samples": 4, "reasons": {"wait": 3, "math": 1}}
    assert found["loop"] == {"instructions": 3, "samples": 90, "reasons": {"math": 75, "wait": 15}}
    assert found["after"] == {"instructions": 1, "samples": 6, "reasons": {"wait": 6, "math": 0}}


def test_each_kernel_of_a_page_is_counted_alone(depths):
    assert depths.regions(page() + page(ROWS[2:])) == [
        depths.regions(page())[0],
        depths.regions(page(ROWS[2:]))[0],
    ]


def test_winners_are_those_of_the_races(depths):
    found = depths.winners((1024, 4096))
    assert sorted((trans, size) for trans, size, _ in found) == sorted(
        (trans, size) for trans in ("NN", "NT", "TN", "TT") for size in (1024, 4096)
    )


@pytest.mark.parametrize("text", ["", "# A page", '"Kernel Name","gemm",\n"a","b"\n'])
def test_what_is_no_page_of_samples_is_refused(depths, tmp_path, text):
    path = tmp_path / "page.csv"
    path.write_text(text)
    with pytest.raises(argparse.ArgumentTypeError, match="is no page of samples"):
        depths.page_in(str(path))
    with pytest.raises(argparse.ArgumentTypeError, match="cannot be read"):
        depths.page_in(str(tmp_path / "nowhere"))


@pytest.mark.parametrize("text", ["1000", "1024,x", ""])
def test_sizes_are_those_of_races(depths, text):
    with pytest.raises(argparse.ArgumentTypeError, match="has others than"):
        depths.sizes_in(text)
    assert depths.sizes_in("4096,512") == [4096, 512]
