"""The command line: one file a command."""

from __future__ import annotations

import sys

__all__ = ["main"]


def main() -> None:
    """Run the command line and exit: 0 fine, 1 the job failed, 2 wrong usage, 130 stopped."""
    import os
    import signal
    import warnings

    try:
        from tilewright.cli.app import run
    except KeyboardInterrupt:  # before there is anything to stop
        sys.exit(130)

    if sys.stderr is None:  # closed: what is told goes nowhere, not into a file in its place
        sys.stderr = open(os.devnull, "w")  # noqa: SIM115
        os.dup2(sys.stderr.fileno(), 2)
    warnings.formatwarning = lambda message, *_, **__: f"tilewright: {message}\n"
    # Who ends a job (SIGTERM) leaves as little half written as who stops it (Ctrl-C).
    if signal.getsignal(signal.SIGTERM) != signal.SIG_IGN:  # as a job that is to go on has it
        signal.signal(signal.SIGTERM, signal.default_int_handler)
    sys.exit(run(sys.argv[1:]))
