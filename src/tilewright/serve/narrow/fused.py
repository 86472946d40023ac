"""Products of 8- and 16-bit numbers on tensor cores that apply an epilogue to their sums."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tilewright.dataclass import dataclass
from tilewright.precision import Precision, precision
from tilewright.problem import Trans
from tilewright.serve.kernels import kernel_of
from tilewright.serve.laid_out import VECTORS
from tilewright.serve.narrow.products import Matrix, Product, Stored, copied_operand
from tilewright.serve.tensor_cores import config_for, source_of, wgmma
from tilewright.stencil.wgmma import Arithmetic, Following, Parts, TensorCall, TensorVariant
from tilewright.stencil.wgmma.call import ALIGNMENT

if TYPE_CHECKING:
    from tilewright.backend import LiveDevice
    from tilewright.serve.steps import MemorySpace, Step

__all__ = ["Then", "fused_steps"]


@dataclass(frozen=True)
class Then:
    """An epilogue as a plan is kept by, in the caller's orientation.

    Parameters
    ----------
    scale_a, scale_b, bias : bool
        Which vectors there are.
    bias_of_rows : bool
        Whether the bias has a number for each row, not column.
    bias_is_output : bool
        Whether the bias has the result's type; else it is float32.
    activation : str or None
        As `Epilogue` has it.
    """

    scale_a: bool
    scale_b: bool
    bias: bool
    bias_of_rows: bool
    bias_is_output: bool
    activation: str | None

    def along(self, *, row_major: bool) -> Following:
        """Return it along the kernel's m and n, at made-up addresses."""
        wanted = self.scale_a, self.scale_b, self.bias
        of_a, of_b, bias = (at if is_there else None for at, is_there in zip(VECTORS, wanted))  # noqa: B905
        rows, columns = (bias, None) if self.bias_of_rows else (None, bias)
        if row_major:  # the kernel's m runs along the caller's columns
            of_a, of_b, rows, columns = of_b, of_a, columns, rows
        return Following(of_a, of_b, rows, columns, self.bias_is_output, self.activation)


def fused_steps(live: LiveDevice, product: Product, space: MemorySpace) -> list[Step]:
    """Return the launches of a product with an epilogue: copies of operands, then one kernel.

    Raises
    ------
    BackendError
        If there is neither machine code nor a compiler.
    """
    made: list[Step] = []
    of = product.precision
    a, b = (
        _aligned(matrix, of) or copied_operand(live, matrix, of, f"aligned {name}", space, made)
        for name, matrix in (("a", product.a), ("b", product.b))
    )
    arithmetic = Arithmetic(of.dtype_name, of.result_name, epilogue=True)  # type: ignore[arg-type]
    trans = Trans.T if a.k_fast else Trans.N, Trans.N if b.k_fast else Trans.T
    variant = TensorVariant(precision("s"), *trans, arithmetic=arithmetic)
    m, n, k, family = product.a.side, product.b.side, product.a.k, wgmma()
    config = config_for(variant, live.spec, m, n, k)
    call = TensorCall(
        m, n, k, product.alpha, Parts(a.memory, 0, a.ld), Parts(b.memory, 0, b.ld), product.beta,
        product.c, then=product.then,
    )  # fmt: skip
    launch, arguments = family.launch(config, m, n, k), family.arguments(config, variant, call)
    return [*made, (kernel_of(live, source_of(config, variant)), launch, arguments)]


def _aligned(matrix: Matrix, of: Precision) -> Stored | None:
    """Return an operand as the copy engine takes it; None if it does not."""
    size = of.element_bytes
    found = matrix.stored(size)
    if found is None or (of.reads_along_k and not found.k_fast):
        return None
    return found if found.memory % ALIGNMENT == found.ld * size % ALIGNMENT == 0 else None
