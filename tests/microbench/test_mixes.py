"""Mixtures of multiply-adds and loads, and the tables of a device that come of them."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.microbench.compiled import narrow, trip
from tilewright.bounds.lai_seznec import throughput
from tilewright.hardware.catalogue import catalogue_device, read_device
from tilewright.microbench.experiment import Row
from tilewright.microbench.mixes import RATIOS, Mixture, mixes_of, mixture, points

EVERY = list(dict.fromkeys(mix for mix, _, _ in points()))


@pytest.mark.parametrize("mix", EVERY, ids=str)
def test_every_mixture_has_its_ratio_in_the_cubin(mix: Mixture) -> None:
    loop = narrow()
    found = trip(loop, mixture(loop, mix))
    names = found.names()
    sums = names.get(mix.multiply_add, 0)
    load = {None: "LDS", 32: "LDS", 64: "LDS.64", 128: "LDS.128"}[mix.load_bits]
    loads = names.get(load, 0)
    assert sum(names.values()) == sums + loads + loop.overhead
    if mix.ratio is None:
        assert loads == 0
    else:
        assert sums == mix.ratio * loads
        assert loads > 0
    assert sums + loads >= 450  # the loop's own instructions are under one in a hundred


@pytest.mark.parametrize("mix", EVERY, ids=str)
def test_no_multiply_add_names_what_a_load_writes(mix: Mixture) -> None:
    """Else the mixture would measure a dependence."""
    loop = narrow()
    found = trip(loop, mixture(loop, mix))
    loaded = {r for i in found.instructions if i.mnemonic == "LDS" for r in i.dst}
    named = {
        r for i in found.instructions if i.mnemonic in ("FFMA", "DFMA") for r in (*i.dst, *i.reads)
    }
    assert not loaded & named


def test_operands_lie_in_the_banks_that_a_row_names() -> None:
    loop = narrow()
    for banks, most in (("one_bank", 3), ("two_banks", 2), ("kept", 2)):
        body = mixture(loop, Mixture("FFMA", None, None, banks))
        for slot in body:
            in_even = [r % 2 == 0 for r in (slot.a, slot.b, slot.c)]
            assert max(sum(in_even), 3 - sum(in_even)) == most
            assert slot.reuse == (1 if banks == "kept" else 0)


def _row(**changed: object) -> Row:
    row: Row = {
        "multiply_add": "FFMA",
        "load_bits": 128,
        "ratio": 12,
        "lane_pattern": "conflict_free",
        "bank_pattern": "kept",
        "warps_per_multiprocessor": 8,
        "instructions_per_cycle": 90.0,
    }
    return row | changed  # type: ignore[return-value]


def test_rows_become_a_devices_table(tmp_path: Path) -> None:
    """The best occupancy of each mixture; a bound then takes it in place of the units' rates."""
    rows = [
        _row(),
        _row(warps_per_multiprocessor=16, instructions_per_cycle=100.5),
        _row(warps_per_multiprocessor=32, error="too hot"),
        _row(lane_pattern="conflicting", instructions_per_cycle=103.0),
        _row(bank_pattern="one_bank", instructions_per_cycle=104.0),
        _row(multiply_add="DFMA", instructions_per_cycle=60.0),
        _row(ratio=None, load_bits=None),
        _row(ratio=0, load_bits=128, instructions_per_cycle=8.0),
    ]
    found = mixes_of(rows, "result: mixes")
    assert [(m["width_bits"], m["ratio"], m["throughput"]) for m in found] == [
        (128, 0, 8.0),
        (128, 12, 100.5),
    ]
    text = (Path(__file__).parents[2] / "src/tilewright/hardware/catalogue/h100.toml").read_text()
    text = text.split("[[mixes]]")[0]
    for mix in found:
        text += "\n[[mixes]]\n"
        text += "".join(
            f"{key} = {value!r}\n" if not isinstance(value, str) else f'{key} = "{value}"\n'
            for key, value in mix.items()
        )
    path = tmp_path / "measured.toml"
    path.write_text(text)
    device = read_device(path)
    assert {m.ratio for m in device.mixes} == {0.0, 12.0}
    rate, _ = throughput(device, 12, 128)
    assert rate == pytest.approx(100.5)
    without = throughput(catalogue_device("gtx580"), 12, 128)[0]
    assert without == pytest.approx(24.5)  # another device's table stays its own


def test_the_papers_ratios_come_for_every_width() -> None:
    found = {
        (mix.load_bits, mix.ratio)
        for mix, lanes, _ in points()
        if lanes == "conflict_free" and mix.multiply_add == "FFMA" and mix.bank_pattern == "kept"
    }
    assert {(bits, ratio) for bits in (32, 64, 128) for ratio in RATIOS} <= found
