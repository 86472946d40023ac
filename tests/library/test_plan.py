"""Plans: a warm call writes what changed and launches; whatever is unusual it leaves alone."""

from __future__ import annotations

import ctypes
import struct
import threading

import numpy as np
import pytest

import tilewright
from tilewright import timeline
from tilewright.backend import GemmCall, Operand
from tilewright.backend.cuda.launch import ArgumentBlock
from tilewright.library.double_double import DoubleDouble
from tilewright.library.gemm import Prepared
from tilewright.library.plan import Plan, Plans
from tilewright.precision import DOUBLE_DOUBLE, PRECISIONS

A, B, C = 0x10000, 0x20000, 0x30000


class FakeLaunch:
    """Records what the driver would read."""

    def __init__(self, arguments):
        self.arguments = ArgumentBlock(arguments)
        self.lock = threading.Lock()
        self.seen = []

    def enqueue(self, stream):
        slots = [ctypes.string_at(at, 8) for at in self.arguments.pointers]
        pointers = tuple(struct.unpack("<Q", slots[at])[0] for at in (5, 8, 13))
        scalars = tuple(struct.unpack("<f", slots[at][:4])[0] for at in (3, 4, 11, 12))
        self.seen.append((stream, pointers, scalars))


def made(letter="s", exchanged=False):
    call = GemmCall(
        PRECISIONS[letter], 8, 8, 8, 1, Operand(A, 0, 8), Operand(B, 0, 8), 0, Operand(C, 0, 8)
    )
    launch = FakeLaunch(call.arguments())
    return Plan(
        launch,
        Prepared(None, None, call, exchanged, call.arguments(), True),
        (8, 8),
        (256, 256, 256),
    ), launch


def test_addresses_scalars_and_stream_reach_the_launch():
    plan, launch = made()
    assert plan.start(A, B, C, 1, 0, 7)
    assert plan.start(A + 4, B + 8, C + 12, 2.5, -1, 9)
    assert launch.seen[0] == (7, (A, B, C), (1, 0, 0, 0))
    assert launch.seen[1] == (9, (A + 4, B + 8, C + 12), (2.5, 0, -1, 0))
    assert plan.start(A, B, C, 1, 0, 0)
    assert launch.seen[2] == (0, (A, B, C), (1, 0, 0, 0))


def test_double_double_scalars_reach_the_launch_whole():
    third = DoubleDouble(1) / 3
    for scalar in DOUBLE_DOUBLE["w"].scalar(third):
        assert scalar.nbytes == 16
    block = ArgumentBlock(DOUBLE_DOUBLE["e"].scalar(third))
    words = struct.unpack("<2d", ctypes.string_at(block.pointers[0], 16))
    assert words == (1 / 3, float(third.lo))
    assert block.pointers[0] % 8 == 0


def test_a_row_major_result_exchanges_the_operands():
    plan, launch = made(exchanged=True)
    plan.start(A, B, C, 1, 0, 0)
    assert launch.seen[0][1] == (B, A, C)


@pytest.mark.parametrize(
    ("alpha", "beta"),
    [
        (0, 0),
        (0.0, 1),
        (1j, 0),
        (1, 1j),
        ("x", 0),
        (None, 0),
        (np.array([1, 2]), 0),
        (1e39, 0),
        (1, -1e300),
    ],
)
def test_scalars_that_need_a_closer_look_are_left_alone(alpha, beta):
    plan, launch = made()
    assert not plan.start(A, B, C, alpha, beta, 0)
    assert launch.seen == []


def test_a_scalar_that_changes_its_value_is_read_every_time():
    plan, launch = made()
    alpha = np.array(2.0)
    plan.start(A, B, C, alpha, 0, 0)
    alpha[()] = 3
    plan.start(A, B, C, alpha, 0, 0)
    assert [scalars[0] for _, _, scalars in launch.seen] == [2, 3]


def test_complex_scalars_are_for_complex_plans():
    plan, launch = made("c")
    assert plan.start(A, B, C, 1 + 2j, 3j, 0)
    assert launch.seen[0][2] == (1, 2, 0, 3)


@pytest.mark.parametrize(
    ("a", "b", "c"), [(C, B, C), (C + 255 - 3, B, C), (C - 252, B, C), (A, C + 4, C)]
)
def test_overlap_is_left_to_the_exact_check_and_its_answer_kept(a, b, c):
    plan, launch = made()
    assert not plan.start(a, b, c, 1, 0, 0)
    plan.accept(a, b, c)
    assert plan.start(a + 64, b + 64, c + 64, 1, 0, 0)
    assert len(launch.seen) == 1


def test_neighbours_do_not_overlap():
    plan, _ = made()
    assert plan.start(C - 256, C + 256, C, 1, 0, 0)


@pytest.mark.parametrize(("letter", "step"), [("s", 2), ("d", 4), ("c", 4), ("z", 8)])
def test_a_misaligned_address_is_left_alone(letter, step):
    plan, _ = made(letter)
    assert not plan.start(A + step, B, C, 1, 0, 0)
    assert not plan.start(A, B, C + step, 1, 0, 0)


def test_plans_are_forgotten_when_other_kernels_are_to_serve():
    plans = Plans()
    assert plans.get("key") is None
    plan = made()[0]
    assert plans.remember("key", lambda: plan) is plan
    assert plans.get("key") is plan
    tilewright.reload()
    assert plans.get("key") is None
    plans.remember("key", lambda: plan)
    plans.clear()
    assert len(plans) == 0


def test_two_threads_that_make_one_plan_share_it():
    plans = Plans()
    first = plans.remember("key", lambda: made()[0])
    assert plans.remember("key", lambda: made()[0]) is first


def test_a_plan_made_while_a_timeline_is_recorded_tells_its_launches():
    kept = Plans()
    timeline.on_change(kept.clear)
    quiet, launch = made()
    # Nothing stands between a plan and its launch while nobody records.
    assert quiet._enqueue == launch.enqueue
    kept.remember("key", lambda: quiet)
    recorder = timeline.start()
    try:
        assert kept.get("key") is None
        told, _ = made()
        assert told.start(A, B, C, 1, 0, 7)
        assert quiet.start(A, B, C, 1, 0, 7)
    finally:
        timeline.stop()
    assert [one.name for one in recorder.host] == ["launch"]
