"""The process that searches for another order of a kernel's main loop.

Run as ``python -m tilewright.reschedule.search REQUEST``, REQUEST being a JSON object; machine
code comes on the standard input, and a JSON object goes to the standard output.  A search takes up
to minutes of pure Python: in a process of its own it can be ended when time is up, whatever it is
doing, and leaves the caller's other threads alone.
"""

from __future__ import annotations

import base64
import json
import sys
from typing import Any

from tilewright.parent import end_with
from tilewright.reschedule.hazards import hazards
from tilewright.reschedule.schedule import schedule
from tilewright.sass import RefusedError, decode, main_loop

__all__ = ["search"]


def search(code: bytes, request: dict[str, Any]) -> bytes:
    """Return rescheduled machine code, not yet checked.

    Parameters
    ----------
    code : bytes
        A kernel's machine code.
    request : dict
        ``arch``, the architecture number, and ``ahead``, as `schedule` takes them.

    Raises
    ------
    RefusedError
        With the reason.
    """
    instructions = decode(code, request["arch"])
    # The search takes long, and its result would not pass where the kernel itself does not; copies
    # in latches that ptxas knows to be cleared may stay as they are (`differences`).
    if unclear := [hazard for hazard in hazards(instructions) if not hazard.copy]:
        raise RefusedError(f"the kernel itself is not understood: {unclear[0]}")
    loop = main_loop(instructions)
    if loop is None:
        raise RefusedError("it has no loop of multiply-adds")
    found = schedule(instructions, loop, request["arch"], ahead=request["ahead"])
    return b"".join(one.raw.to_bytes(16, "little") for one in found.instructions)


def main() -> None:
    """Answer the request in the first argument."""
    request = json.loads(sys.argv[1])
    end_with(request["parent"])
    try:
        made = search(sys.stdin.buffer.read(), request)
        answer = {"code": base64.b64encode(made).decode()}
    except RefusedError as error:
        answer = {"refused": str(error)}
    print(json.dumps(answer))


if __name__ == "__main__":
    main()
