"""A stencil whose `schedule` stands for what rescheduling can do, on any device.

The real parameter changes machine code, which OpenCL hides.  Here the text does what the
scheduler might: 1 half of the work, same bits; 2 sums in another order: other bits on random
data, the same on integers; 3 twice the work, same bits; 4 is refused by the compiler; 5 leaves
one element of an odd number of rows unwritten.
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from tilewright.hardware import DeviceSpec
from tilewright.space import Config, Constraint, Parameter, Space
from tilewright.stencil import (
    Dialect,
    Geometry,
    Resources,
    Source,
    Stencil,
    Variant,
    register,
)
from tilewright.stencil.geometry import PLAIN, Mode

TEXT = """
#if LEVEL == 4
#error refused
#endif
kernel void gemm(long m, long n, long k, float alpha, float unused, global const float *A,
                 long oa, long lda, global const float *B, long ob, long ldb, float beta,
                 float unused2, global float *C, long oc, long ldc)
{
    const long i = get_global_id(0), j = get_global_id(1);
    if (i >= m || j >= n) return;
    float sum = 0;
    for (int round = 0; round < ROUNDS; ++round) {
        sum = 0;
        for (long l = 0; l < k; ++l) {
            const long at = LEVEL == 2 ? k - 1 - l : l;
            sum += A[oa + i + at * lda] * B[ob + at + j * ldb];
        }
    }
    if (LEVEL == 5 && m % 2 == 1 && i == m - 1 && j == n - 1) return;
    C[oc + i + j * ldc] = alpha * sum + (beta == 0 ? 0 : beta * C[oc + i + j * ldc]);
}
"""

WORK = {0: 64, 1: 16, 2: 8, 3: 256, 4: 4, 5: 8}


class Scheduled(Stencil):
    """A naive kernel; `slow` makes every one of its baselines ten times slower."""

    name: ClassVar[str] = "scheduled"
    version: ClassVar[int] = 1
    proved: ClassVar[tuple[int, ...]] = (0,)

    def suits(self, device: DeviceSpec) -> bool:
        return False

    def space(self, variant: Variant, device: DeviceSpec) -> Space:
        sizes = [Parameter(f"block_{x}", (8,), "for the checks", "nothing") for x in "mnk"]
        schedule = Parameter("schedule", tuple(WORK), "a stand-in", "nothing", unnamed=0)
        slow = Parameter("slow", (0, 1), "ten times the work", "time")
        return Space(
            self.name,
            [slow, *sizes, schedule],
            [Constraint("proved", lambda schedule: np.isin(schedule, self.proved), "why", "proof")],
        )

    def default(self, variant: Variant, device: DeviceSpec) -> Config:
        return Config(self.name, {"slow": 0, "block_m": 8, "block_n": 8, "block_k": 8})

    def resources(self, config: Config, variant: Variant) -> Resources:
        return Resources(1, 0, 1)

    def geometry(self, config: Config) -> Geometry:
        return Geometry(1, 1, (1, 1), folded=False)

    def source(
        self, config: Config, variant: Variant, dialect: Dialect, mode: Mode = PLAIN
    ) -> Source:
        level = config.get("schedule", 0)
        work = WORK[int(level)] * (10 if config["slow"] else 1)
        return Source(TEXT, {"LEVEL": level, "ROUNDS": work})


register(Scheduled())
