"""The command line: one file a command."""

from __future__ import annotations

import sys

__all__ = ["main"]


def main() -> None:
    """Run the command line and exit: 0 fine, 1 the job failed, 2 wrong usage."""
    import signal
    import warnings

    from tilewright.cli.app import run

    warnings.formatwarning = lambda message, *_, **__: f"tilewright: {message}\n"
    # Who ends a job (SIGTERM) leaves as little half written as who stops it (Ctrl-C).
    if signal.getsignal(signal.SIGTERM) != signal.SIG_IGN:  # as a job that is to go on has it
        signal.signal(signal.SIGTERM, signal.default_int_handler)
    sys.exit(run(sys.argv[1:]))
