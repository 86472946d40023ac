"""Launch modes of what is tuned: which a candidate is compiled in, and how stores keep it."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import pytest

from tests.tuning.measurement_examples import example
from tilewright.backend.cuda.architecture import architecture_spec
from tilewright.problem import Problem
from tilewright.space.aliases import oldest
from tilewright.stencil import Mode, Variant
from tilewright.stencil.geometry import PLAIN
from tilewright.stencil.portable import Portable
from tilewright.stencil.simt_async import SimtAsync
from tilewright.tuning.budget import Budget
from tilewright.tuning.record import digest, from_record, to_record
from tilewright.tuning.store import Store
from tilewright.tuning.tuner import _Session

FAMILY = SimtAsync()
EVEN, ODD = Problem(1024, 1024, 1024, "s"), Problem(1023, 1024, 1024, "s", lda=1023)
H100 = architecture_spec("sm_90a")
CONFIG = FAMILY.default(Variant.of(EVEN), H100)


def session(problem: Problem, family: Any = FAMILY) -> _Session:
    live: Any = SimpleNamespace(spec=H100, arch="sm_90a")
    store: Any = None
    return _Session(live, problem, family, Budget(1.0), None, store)


def test_a_candidate_is_compiled_in_the_mode_that_serves_the_problem() -> None:
    assert session(EVEN)._mode_of(CONFIG) == PLAIN
    assert session(ODD)._mode_of(CONFIG) == Mode(scalar=True, staged=True)
    assert session(ODD, Portable())._mode_of(Portable().default(Variant.of(ODD), H100)) == PLAIN


def test_rescheduled_code_and_boxes_are_not_tried_where_they_do_not_serve() -> None:
    rescheduled, boxed = CONFIG.replace(schedule=5), CONFIG.replace(tma=1)
    assert session(EVEN)._mode_of(rescheduled) == PLAIN
    assert session(ODD)._mode_of(rescheduled) is None  # its results are staged
    assert session(ODD)._mode_of(boxed) is None


@pytest.mark.parametrize("mode", [PLAIN, Mode(scalar=True), Mode(clamped=True, staged=True)])
def test_stores_and_exports_keep_it(tmp_path: Any, mode: Mode) -> None:
    measured = example(config=CONFIG, mode=mode)
    with Store(tmp_path / "s") as store:
        assert store.get(store.add(measured)) == measured
        assert [m.mode for m in store.query(config=measured.stored_config.id)] == [mode]
    assert from_record(to_record(measured)) == measured


def test_what_an_older_version_stored_is_the_same_measurement(tmp_path: Any) -> None:
    """It had the mode among the parameters, and other names; digests say what is stored."""
    measured = example(config=CONFIG, mode=Mode(scalar=True))
    record = to_record(measured)
    del record["mode"]
    record["parameters"] = {**oldest(FAMILY.name, CONFIG), "narrow": 1}
    assert from_record(record) == measured
    assert digest(measured) == "377f2d3b35358b1f752e6a9c5cf43bf6bcfd4439d634f712f14489a9760152d8"
    with Store(tmp_path / "s") as store:
        store.add(measured)
        assert store._all("SELECT parameters FROM config")[0][0] == json.dumps(
            record["parameters"], sort_keys=True, separators=(",", ":")
        )
