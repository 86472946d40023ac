"""What a device's process may do to the one that watches it: answer, die, hang."""

from __future__ import annotations

import os
import time
from typing import Any


def serve(todo: Any, answers: Any) -> None:
    """Do what each row says, as `serve` of benchmarks/schedule_proof.py would."""
    answers.put(("device", {"device": "H100", "driver": "580", "arch": "sm_90a"}))
    while (row := todo.get()) is not None:
        answers.put(("started", row))
        time.sleep(0.2)  # a queue's thread has sent what was put, before the process dies
        if row["id"] == "dies":
            os._exit(11)
        if row["id"] == "hangs":
            time.sleep(60)
        if row["id"] == "loses":  # the device, for as long as the process lives
            answers.put(("done", {**row, "status": "failed", "reason": "an illegal address"}))
            return
        answers.put(("done", {**row, "status": "same"}))


def serve_nothing(todo: Any, answers: Any) -> None:
    """End at once, like a machine without a device."""
    os._exit(3)
