"""A naive CUDA kernel of the common argument list, with a fault to choose, and its stencil.

`fault` chooses: 0 none, 1 an illegal address, 2 a wrong element, 3 does not compile,
4 more shared memory than there is.  Workers import this module and find the stencil.
"""

from __future__ import annotations

from typing import ClassVar

from tilewright.hardware import DeviceSpec
from tilewright.space import Config, Parameter, Space
from tilewright.stencil import Dialect, Geometry, Resources, Source, Stencil, Variant, register
from tilewright.stencil.geometry import PLAIN, Mode

TEXT = """
#if REAL_BYTES == 8
typedef double real;
#else
typedef float real;
#endif
typedef long long isize;

struct value { real re, im; };

__device__ value get(const real *x, isize at, bool conjugated)
{
#if WORDS == 2
    return {x[2 * at], conjugated ? -x[2 * at + 1] : x[2 * at + 1]};
#else
    return {x[at], 0};
#endif
}

extern "C" __global__ void gemm(
    isize m, isize n, isize k, real alpha_re, real alpha_im,
    const real *A, isize offset_a, isize lda, const real *B, isize offset_b, isize ldb,
    real beta_re, real beta_im, real *C, isize offset_c, isize ldc)
{
#if FAULT == 3
    this does not compile;
#endif
#if FAULT == 4
    __shared__ volatile real many[65536 / sizeof(real)];
    many[threadIdx.x] = 0;
#endif
    const isize i = blockIdx.x * (isize)blockDim.x + threadIdx.x;
    const isize j = blockIdx.y * (isize)blockDim.y + threadIdx.y;
#if FAULT == 1
    if (i == 0 && j == 0)
        *(volatile real *)0x10 = 1;
#endif
    if (i >= m || j >= n)
        return;
    value sum = {0, 0};
    for (isize l = 0; l < k; ++l) {
        const value a = get(A, offset_a + (TRANS_A ? l + i * lda : i + l * lda), CONJ_A);
        const value b = get(B, offset_b + (TRANS_B ? j + l * ldb : l + j * ldb), CONJ_B);
#if WORDS == 2
        sum.re += a.re * b.re - a.im * b.im;
        sum.im += a.re * b.im + a.im * b.re;
#else
        sum.re += a.re * b.re;
#endif
    }
#if FAULT == 2
    if (i == m - 1)
        sum.re += 1;
#endif
    const isize at = offset_c + i + j * ldc;
#if WORDS == 2
    value result = {0, 0};
    if (k > 0)
        result = {alpha_re * sum.re - alpha_im * sum.im, alpha_re * sum.im + alpha_im * sum.re};
    if (beta_re != 0 || beta_im != 0) {
        const value c = get(C, at, false);
        result.re += beta_re * c.re - beta_im * c.im;
        result.im += beta_re * c.im + beta_im * c.re;
    }
    C[2 * at] = result.re;
    C[2 * at + 1] = result.im;
#else
    real result = k > 0 ? alpha_re * sum.re : 0;
    if (beta_re != 0)
        result += beta_re * C[at];
    C[at] = result;
#endif
}
"""

BLOCK = 16


class NaiveCUDA(Stencil):
    """One thread an element of C."""

    name: ClassVar[str] = "naive_cuda"
    version: ClassVar[int] = 1

    def suits(self, device: DeviceSpec) -> bool:
        return False

    def space(self, variant: Variant, device: DeviceSpec) -> Space:
        blocks = [Parameter(f"block_{x}", (BLOCK,), "for the checks", "nothing") for x in "mnk"]
        fault = Parameter("fault", (1, 0, 2, 3, 4), "what goes wrong", "a worker")
        return Space(self.name, [fault, *blocks])

    def config(self, fault: int) -> Config:
        blocks = {f"block_{x}": BLOCK for x in "mnk"}
        return Config(self.name, {"fault": fault, **blocks})

    def default(self, variant: Variant, device: DeviceSpec) -> Config:
        return self.config(0)

    def resources(self, config: Config, variant: Variant) -> Resources:
        return Resources(BLOCK * BLOCK, 0, 32)

    def geometry(self, config: Config) -> Geometry:
        return Geometry(BLOCK, BLOCK, (BLOCK, BLOCK), folded=False)

    def source(
        self, config: Config, variant: Variant, dialect: Dialect, mode: Mode = PLAIN
    ) -> Source:
        return Source(
            TEXT,
            {
                "REAL_BYTES": variant.precision.real_bytes,
                "WORDS": variant.precision.words,
                **variant.macros,
                "FAULT": config["fault"],
            },
        )


NAIVE = NaiveCUDA()
register(NAIVE)
