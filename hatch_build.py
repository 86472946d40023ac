"""Compiles the core when a wheel is built, or the package is installed from a clone.

Without a C compiler the wheel has no library, and the core is compiled where it is first needed.
A release for other machines is made by the ``ziglang`` package's compiler, for an old glibc:
``TILEWRIGHT_WHEEL=x86_64 pip wheel --no-build-isolation .`` (or ``aarch64``), ``hatchling`` and
``ziglang`` being installed.
"""

from __future__ import annotations

import os
import sys
import sysconfig
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

# glibc 2.17 is what manylinux2014 promises, and the oldest that NumPy's wheels run on.
_GLIBC = (2, 17)


class CustomBuildHook(BuildHookInterface):  # type: ignore[type-arg]
    """See the module."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Compile the core into the package's folder, and name the wheel after its platform."""
        source = Path(self.root) / "src"
        sys.path.insert(0, str(source))
        from tilewright.core.build import CoreError, compile_core, packaged_name

        release = os.environ.get("TILEWRIGHT_WHEEL", "")
        folder = source / "tilewright" / "core"
        for old in folder.glob("libtilewright_core-*.so"):
            old.unlink()
        target = folder / packaged_name()
        command, platform = [], sysconfig.get_platform().replace("-", "_").replace(".", "_")
        if release:
            major, minor = _GLIBC
            command = [sys.executable, "-m", "ziglang", "cc"]
            command += ["-target", f"{release}-linux-gnu.{major}.{minor}"]
            platform = f"manylinux_{major}_{minor}_{release}"
        try:
            compile_core(target, command=command)
        except (CoreError, OSError) as problem:
            if release:
                raise
            self.app.display_warning(str(problem))
            return
        build_data["artifacts"].append(f"src/tilewright/core/{target.name}")
        if version == "standard":
            build_data["pure_python"] = False
            build_data["tag"] = f"py3-none-{platform}"
