"""The catalogue of devices: complete, sourced, and what is wrong in a file is named."""

from __future__ import annotations

import pytest

import tilewright as tw
from tilewright.hardware.catalogue import catalogue, read_device
from tilewright.hardware.quantity import QUANTITIES
from tilewright.hardware.spec import DeviceSpec

DEVICES = ["a100", "avx2", "b200", "c2050", "gtx280", "gtx580", "gtx680", "h100", "h200", "hd5870"]
DEVICES += ["mi300x", "rtx4070"]


def test_catalogue_is_complete_and_sourced():
    assert list(catalogue()) == DEVICES
    for name in DEVICES:
        device = tw.device(name)
        assert device.id == name
        for quantity in device.quantities.values():
            assert quantity.name in QUANTITIES
            assert quantity.unit == QUANTITIES[quantity.name][0]
            assert len(quantity.source) > 5
        assert isinstance(device.spec, DeviceSpec)


GOOD = """
name = "X"
vendor = "Y"
kind = "gpu"
[sources]
paper = "A paper"
[numbers]
multiprocessors = { value = 4, source = "paper" }
warp_size = { value = 32, source = "paper" }
max_threads_per_block = { value = 256, source = "paper: Table 1" }
shared_bytes_per_block = { value = 1024, source = "paper" }
fma_lanes.s = { value = 8, source = "paper" }
"""


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('kind = "gpu"', 'kind = "tpu"', r"x\.toml: kind='tpu' is wrong"),
        ('name = "X"', "", r"x\.toml: name=None is wrong; give a string"),
        ("value = 8,", 'value = "8",', r"x\.toml: fma_lanes\.s='8' is wrong; give a number"),
        ("value = 8,", "value = 0,", "leave out what is unknown"),
        ("value = 8,", "value = true,", "give a number"),
        ("fma_lanes.s", "fma_lanes.q", "that quantity is not known"),
        ('8, source = "paper"', "8", "say where it is from"),
        ('8, source = "paper"', '8, source = "rumour"', r"name an entry of \[sources\]"),
        ("[sources]", "colour = 3\n[sources]", "colour=3 is not known"),
        ("warp_size", "schedulers", "warp_size=None is wrong; every device needs it"),
        ('name = "X"', "name = ", r"x\.toml is not TOML"),
        ('name = "X"', "name = " + "[" * 5000, r"x\.toml is not TOML"),
        ("value = 4,", "value = 0.5,", "give a whole number up to"),
        ("value = 4,", "value = 1e300,", "give a whole number up to"),
        ("value = 8,", "value = inf,", "give a number of 0 or more"),
        ("value = 8,", "value = nan,", "give a number of 0 or more"),
    ],
)
def test_bad_files_are_refused_in_one_line(tmp_path, old, new, message):
    path = tmp_path / "x.toml"
    path.write_text(GOOD)
    assert read_device(path).value("fma_lanes.s") == 8
    assert read_device(path).quantities["max_threads_per_block"].source == "A paper: Table 1"
    path.write_text(GOOD.replace(old, new, 1))
    with pytest.raises(ValueError, match=message) as refused:
        read_device(path)
    assert "\n" not in str(refused.value)


def test_bad_mixes_are_refused(tmp_path):
    path = tmp_path / "x.toml"
    mix = '[[mixes]]\nwidth_bits=64\nratio=6\nthroughput=30\nkind="published"\nsource="paper"\n'
    path.write_text(GOOD + mix)
    assert read_device(path).mixes[0].throughput == 30
    for old, new in (
        ("=64", "=48"),
        ('"published"', '"guessed"'),
        ("=30", "=0"),
        ("ratio=6", 'ratio=6\nlanes="some"'),
        ("=30", "=inf"),
        ("=6", "=nan"),
        ("=30", '="30"'),
        ("ratio=6", ""),
    ):
        path.write_text(GOOD + mix.replace(old, new))
        with pytest.raises(ValueError, match=r"x\.toml"):
            read_device(path)
