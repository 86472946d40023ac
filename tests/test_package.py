"""What a wheel is made of."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


@pytest.mark.skipif(
    shutil.which("git") is None or not (ROOT / ".git").exists(), reason="needs a clone and git"
)
def test_no_file_of_the_package_is_one_that_git_is_told_to_ignore() -> None:
    """Those a build leaves out, though a checkout has them."""
    command = ["git", "ls-files", "--cached", "--ignored", "--exclude-standard", "src"]
    found = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    assert found.stdout == ""
