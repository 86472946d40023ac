"""Netlib's testers of level-3 BLAS against the library that ``tilewright run`` preloads.

    git clone --depth 1 https://github.com/Reference-LAPACK/lapack
    python benchmarks/netlib_testers.py build lapack testers      # gfortran, a C compiler
    python benchmarks/netlib_testers.py run testers -o FILE       # a CUDA device

The testers are linked with the reference BLAS and CBLAS, which come in the same archive, as shared
libraries; every right call of theirs is computed on the device (TILEWRIGHT_BLAS_LEAST=0), wrong
ones reach the reference.  A row has what a tester says of GEMM, and how many calls were served.
"""

from __future__ import annotations

import argparse
import glob
import json
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from tilewright.backend import device
from tilewright.cli.run import read_log
from tilewright.export.preload import preloaded_library

LETTERS = "sdcz"
_C = ("-O2", "-w", "-DADD_")
_FORTRAN = ("gfortran", "-O1", "-w", "-std=legacy", "-static-libgfortran")
_BESIDE = "-Wl,-rpath,$ORIGIN"
_SAID = re.compile(r"(\w+) +(PASSED .*|.*FAILED.*|.*FATAL.*|.*SUSPECT.*)")


def called(*command: str | Path) -> None:
    subprocess.run([str(word) for word in command], check=True)


def build(lapack: Path, made: Path) -> None:
    """Compile the reference and the testers into a folder."""
    made.mkdir(exist_ok=True)
    blas, cblas = lapack / "BLAS", lapack / "CBLAS"
    include = f"-I{cblas / 'include'}"
    headers = cblas / "include"
    (headers / "cblas_mangling.h").write_bytes(
        (headers / "cblas_mangling_with_flags.h.in").read_bytes()
    )
    # Without xerbla: the testers have theirs.
    sources = [one for one in sorted(blas.glob("SRC/*.f*")) if one.stem != "xerbla"]
    called("gfortran", "-O2", "-w", "-std=legacy", "-fPIC", "-shared", *sources, "-o",
           made / "libblas.so", "-nodefaultlibs", "-lc", "-lm")  # fmt: skip
    wrappers = [*sorted(cblas.glob("src/*.c")), *sorted(cblas.glob("src/*.f"))]
    called("gfortran", *_C, include, "-fPIC", "-shared", *wrappers, "-o", made / "libcblas.so",
           f"-L{made}", "-lblas", _BESIDE, "-nodefaultlibs", "-lc", "-lm")  # fmt: skip
    tests = cblas / "testing"
    for letter in LETTERS:
        called(*_FORTRAN, blas / "TESTING" / f"{letter}blat3.f", "-o", made / f"{letter}blat3",
               f"-L{made}", "-lblas", _BESIDE)  # fmt: skip
        called(*_FORTRAN, *_C, include, tests / f"c_{letter}blat3.f", tests / f"c_{letter}blas3.c",
               tests / f"c_{letter}3chke.c", tests / "auxiliary.c", tests / "c_xerbla.c", "-o",
               made / f"c_{letter}blat3", f"-L{made}", "-lcblas", "-lblas", _BESIDE)  # fmt: skip
        (made / f"{letter}blat3.in").write_bytes(
            (blas / "TESTING" / f"{letter}blat3.in").read_bytes()
        )
        (made / f"c_{letter}blat3.in").write_bytes((tests / f"{letter}in3").read_bytes())


def tested(made: Path, library: Path, name: str) -> dict[str, Any]:
    """Run a tester; return its row."""
    environment = {**os.environ, "LD_PRELOAD": str(library), "TILEWRIGHT_BLAS_LEAST": "0"}
    with tempfile.TemporaryDirectory() as folder, (made / f"{name}.in").open() as given:
        environment["TILEWRIGHT_CALLS_LOG"] = folder
        done = subprocess.run(
            [made.absolute() / name], stdin=given, capture_output=True, text=True, cwd=folder,
            env=environment, check=False,
        )  # fmt: skip
        # The Fortran testers write to a file.
        files = [Path(one).read_text() for one in glob.glob(f"{folder}/*.out")]
        rows = read_log(Path(folder))
    text = "\n".join([done.stdout, *files])
    said = [found for line in text.splitlines() if (found := _SAID.search(line.strip()))]
    served = sum(row["calls"] for row in rows if row["served"])
    return {
        "tester": name, "status": done.returncode, "served": served,
        "passed_on": sum(row["calls"] for row in rows) - served,
        "said": [found[2] for found in said if re.fullmatch("(?i)(cblas_)?.gemm", found[1])],
    }  # fmt: skip


def main() -> None:
    """Build or run, as the command line has it."""
    parser = argparse.ArgumentParser(description="Netlib's level-3 BLAS testers, served")
    parser.add_argument("what", choices=("build", "run"))
    parser.add_argument("folders", nargs="+", type=Path)
    parser.add_argument("-o", "--output", type=Path)
    asked = parser.parse_args()
    if asked.what == "build":
        build(*asked.folders)
        return
    live, library = device(), preloaded_library()
    names = [f"{kind}{letter}blat3" for kind in ("", "c_") for letter in LETTERS]
    results = [tested(asked.folders[0], library, name) for name in names]
    text = json.dumps({"device": live.spec.name, "results": results}, indent=1) + "\n"
    if asked.output is None:
        sys.stdout.write(text)
    else:
        asked.output.write_text(text)


if __name__ == "__main__":
    main()
