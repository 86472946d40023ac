"""What does each sequence of operations lose?  eta of dot products by each, on the CPU.

    python benchmarks/double_double_sequences.py [--json FILE]

Compiles double_double_sequences.c with the host's compiler and multiplies 48 x 4096 by
4096 x 40 matrices of several spreads of exponents, in one chain along k as kernels for GPUs do.
Errors are exact (`tilewright.double_double.error_of_product`).
"""

from __future__ import annotations

import argparse
import ctypes
import json
import subprocess
import tempfile
from pathlib import Path

import numpy as np

from tilewright.double_double import error_of_product, random
from tilewright.paths import write_atomically
from tilewright.precision import DOUBLE_DOUBLE

HERE = Path(__file__).parent
WRITTEN = HERE / "results" / "cpu" / "double_double_sequences.json"
E = DOUBLE_DOUBLE["e"]
M, N, K, DRAWS = 48, 40, 4096, 4

# Operations of a multiply-add, and double_double_sequences.c's word for the sequence.
SEQUENCES = {"29": -1, "21": 0, "12.75": 4, "12.38": 8, "12.19": 16, "12.09": 32}


def compiled(directory):
    library = Path(directory) / "sequences.so"
    # Contraction would join what has to stay apart.
    options = ["-O2", "-march=native", "-ffp-contract=off", "-fPIC", "-shared"]
    text = HERE / "double_double_sequences.c"
    subprocess.run(["cc", *options, "-o", library, text, "-lm"], check=True)
    return ctypes.CDLL(str(library)).multiply


def eta(multiply, how, a, b):
    c = np.empty((M, N), E.dtype)
    multiply(how, M, N, K, *(ctypes.c_void_p(x.ctypes.data) for x in (a, b, c)))
    error, size = error_of_product(c, a, b)
    return float(np.max(np.abs(error) / size))


def main():
    parse = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parse.add_argument("--json", type=Path, default=WRITTEN)
    given = parse.parse_args()
    rows = []
    with tempfile.TemporaryDirectory() as directory:
        multiply = compiled(directory)
        for phi in (0.0, 2.0, 4.0):
            row = {"phi": phi, "eta": {name: [] for name in SEQUENCES}}
            for seed in range(DRAWS):
                rng = np.random.default_rng([seed, int(phi)])
                a, b = random(rng, (M, K), E, phi), random(rng, (K, N), E, phi)
                for name, how in SEQUENCES.items():
                    row["eta"][name].append(eta(multiply, how, a, b))
            rows.append(row)
            print(f"phi {phi:g}: log2 of eta, {DRAWS} draws")
            for name, found in row["eta"].items():
                print(f"{name:>8} operations", *(f"{x:8.2f}" for x in np.log2(found)), flush=True)
    document = {"m": M, "n": N, "k": K, "rows": rows}
    write_atomically(given.json, (json.dumps(document, indent=1) + "\n").encode())


if __name__ == "__main__":
    main()
