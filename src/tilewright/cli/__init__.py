"""The command line: one file a command."""

from __future__ import annotations

import sys

__all__ = ["main"]


def main() -> None:
    """Run the command line and exit: 0 fine, 1 the job failed, 2 wrong usage."""
    import warnings

    from tilewright.cli.app import run

    warnings.formatwarning = lambda message, *_, **__: f"tilewright: {message}\n"
    sys.exit(run(sys.argv[1:]))
