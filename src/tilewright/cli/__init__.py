"""The command line: one file a command."""

from __future__ import annotations

import sys

__all__ = ["main"]


def main() -> None:
    """Run the command line and exit: 0 fine, 1 the job failed, 2 wrong usage."""
    from tilewright.cli.app import run

    sys.exit(run(sys.argv[1:]))
