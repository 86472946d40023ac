"""How sizes are written: lists, ranges, factors, shapes."""

from __future__ import annotations

import itertools
import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tilewright.bench.sizes import MOST, parse_cases, parse_sizes, problems_of


def cubes(*sizes):
    return [(n, n, n) for n in sizes]


@pytest.mark.parametrize(
    ("text", "sizes"),
    [
        ("1000", cubes(1000)),
        ("512,1024", cubes(512, 1024)),
        ("512:4096", cubes(512, 1024, 2048, 4096)),
        ("100:250", cubes(100, 200)),
        ("256:1024:256", cubes(256, 512, 768, 1024)),
        ("10:35:10,7", cubes(10, 20, 30, 7)),
        ("256:8192:*2", cubes(256, 512, 1024, 2048, 4096, 8192)),
        ("100:350:*1.5", cubes(100, 150, 225, 338)),
        ("1:4:*1.3", cubes(1, 2, 3, 4)),
        ("8192x8192x1024", [(8192, 8192, 1024)]),
        ("64X32x8:32", [(64, 32, 8), (64, 32, 16), (64, 32, 32)]),
        ("1:2:1x3x4:5:1", [(1, 3, 4), (1, 3, 5), (2, 3, 4), (2, 3, 5)]),
        ("512, 512,256:512", cubes(512, 256)),  # each once
    ],
)
def test_sizes(text, sizes):
    assert parse_sizes(text) == sizes


@pytest.mark.parametrize(
    "text",
    [
        *("", "big", "1x2", "1:2:3:4", "0", "-5", "1:2x3", "3,,4", "8:4", "4:8:0", "4:8:*1"),
        *("4:8:*", "4:8:*-2", "4:8:*x", "1:2:3x", "1x2x3x4", "²", "1e3", "1:1000000000:1", "1.5"),
        *("99999999999", "1:100000:1", "1:300:1x1:300:1x1", "1:999999999:*1.000001"),
    ],
)
def test_wrong_sizes_are_named(text):
    with pytest.raises(ValueError, match="size="):
        parse_sizes(text)


numbers = st.integers(1, 5000)


@given(numbers, numbers, numbers)
def test_a_stepped_range_is_pythons(first, length, step):
    last = first + length
    if len(range(first, last + 1, step)) <= MOST:
        assert parse_sizes(f"{first}:{last}:{step}") == cubes(*range(first, last + 1, step))


@given(numbers, st.integers(1, 10**8), st.floats(1.01, 100).map(lambda x: round(x, 3)))
def test_a_geometric_range_grows_by_its_factor(first, length, factor):
    last = first + length
    got = [m for m, _, _ in parse_sizes(f"{first}:{last}:*{factor:.3f}")]
    assert got[0] == first
    assert all(one < two <= last for one, two in itertools.pairwise(got))
    assert all(two <= factor * (one + 0.5) + 0.5 for one, two in itertools.pairwise(got))
    assert round(got[-1] * factor + 0.5 * factor + 0.5) >= last  # nothing is missing at the end


@given(st.lists(st.tuples(numbers, numbers, numbers), min_size=1, max_size=20))
def test_shapes_come_back_as_they_were_written(shapes):
    text = ",".join("x".join(map(str, shape)) for shape in shapes)
    assert parse_sizes(text) == list(dict.fromkeys(shapes))


@given(st.text(string.digits + "x:*,. -", max_size=30))
def test_whatever_is_written_is_sizes_or_a_value_error(text):
    try:
        sizes = parse_sizes(text)
    except ValueError as error:
        message = str(error)
    else:
        message = "size="
        assert sizes
        assert all(value > 0 for shape in sizes for value in shape)
        assert len(sizes) == len(set(sizes)) <= MOST
    assert message.startswith("size=")


def test_cases():
    assert parse_cases("s,z", "NT") == [("s", "N", "T"), ("z", "N", "T")]
    assert parse_cases("S, d", "nt,TN, nt")[:2] == [("s", "N", "T"), ("s", "T", "N")]
    assert len(parse_cases("all", "all")) >= 26
    assert len(problems_of("s,d", "all", parse_sizes("64:256"))) == 24
    # "C" on real data is "T": measured once.
    assert len(problems_of("s", "NT,NC", cubes(64))) == 1
    with pytest.raises(ValueError, match="trans='NX'"):
        parse_cases("s", "NN,NX")
    with pytest.raises(ValueError, match="precision='q'"):
        parse_cases("q", "NN")
