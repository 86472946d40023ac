"""A stencil whose configs fail in every way a candidate can, for real.

Workers import this module and find the stencil registered.  `fault` chooses:
0 none, 1 does not compile, 2 wrong at the edge, 3 segmentation fault, 4 endless loop,
5 eats all memory it gets, 6 wrong in what only the winner's certificate looks at, 7 eats all
memory and is ended by that, as compilers are, 8 wrong in a row that small problems do not have.
"""

from __future__ import annotations

import ctypes
from typing import ClassVar

import numpy as np

from tilewright.hardware import DeviceSpec
from tilewright.space import Config, Parameter, Space
from tilewright.stencil import Dialect, Geometry, Resources, Source, Stencil, Variant, register
from tilewright.stencil.geometry import PLAIN, Mode

TEXT = """
kernel void gemm(long m, long n, long k, float alpha, float unused, global const float *A,
                 long oa, long lda, global const float *B, long ob, long ldb, float beta,
                 float unused2, global float *C, long oc, long ldc)
{
#if FAULT == 1
    this does not compile;
#endif
    const long i = get_global_id(0), j = get_global_id(1);
#if FAULT == 3
    if (i == 0) *(volatile global int *)0 = 1;
#elif FAULT == 4
    for (volatile int forever = 1; forever;) {}
#endif
    if (i >= m || j >= n) return;
    float sum = 0;
    for (int round = 0; round < ROUNDS; ++round) {
        sum = 0;
        for (long l = 0; l < k; ++l) sum += A[oa + i + l * lda] * B[ob + l + j * ldb];
    }
#if FAULT == 2
    if (i == m - 1) sum += 1;
#elif FAULT == 6
    if (k == 0) sum += 1;
#elif FAULT == 8
    if (i == 47) sum += 1;
#endif
    C[oc + i + j * ldc] = alpha * sum + (beta == 0 ? 0 : beta * C[oc + i + j * ldc]);
}
"""


class Faulty(Stencil):
    """A naive kernel with a fault to choose, and a speed: `rounds` times too slow."""

    name: ClassVar[str] = "faulty"
    version: ClassVar[int] = 1
    faults: ClassVar[tuple[int, ...]] = (0, 1, 2, 3, 4, 5, 6)
    speeds: ClassVar[tuple[int, ...]] = (1, 16)

    def suits(self, device: DeviceSpec) -> bool:
        return False

    def space(self, variant: Variant, device: DeviceSpec) -> Space:
        fixed = [Parameter(f"block_{x}", (8,), "for the checks", "nothing") for x in "mnk"]
        return Space(
            self.name,
            [
                Parameter("fault", self.faults, "what goes wrong", "a worker"),
                Parameter("rounds", self.speeds, "how often the work is done", "time"),
                *fixed,
            ],
        )

    def default(self, variant: Variant, device: DeviceSpec) -> Config:
        values = {"fault": 0, "rounds": max(self.speeds), "block_m": 8, "block_n": 8, "block_k": 8}
        return Config(self.name, values)

    def resources(self, config: Config, variant: Variant) -> Resources:
        return Resources(1, 0, 1)

    def geometry(self, config: Config) -> Geometry:
        return Geometry(1, 1, (1, 1), folded=False)

    def source(
        self, config: Config, variant: Variant, dialect: Dialect, mode: Mode = PLAIN
    ) -> Source:
        if config["fault"] == 5:
            eaten = []
            while True:  # until the worker's limit
                eaten.append(np.empty(1 << 28, np.uint8))
        if config["fault"] == 7:
            make = ctypes.CDLL("libstdc++.so.6")._Znwm  # operator new
            make.argtypes, make.restype = [ctypes.c_size_t], ctypes.c_void_p
            while True:  # until it throws what nothing catches, as in a compiler
                ctypes.memset(make(1 << 28), 1, 1)
        return Source(TEXT, {"FAULT": config["fault"], "ROUNDS": config["rounds"]})


register(Faulty())
