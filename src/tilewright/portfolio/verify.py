"""Every instance of a portfolio on the device: the whole numerics contract, bit by bit."""

from __future__ import annotations

import time
from collections.abc import Callable, Container, Iterator
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any

import numpy as np

from tilewright.backend.base import BackendError, DeviceLostError
from tilewright.backend.cuda.device import CUDADevice
from tilewright.portfolio.kernel import Code, PortfolioKernel
from tilewright.portfolio.portfolio import Portfolio, PortfolioError
from tilewright.portfolio.verify_triangle import check_triangle
from tilewright.space import Config
from tilewright.stencil import Stencil, Variant, stencil
from tilewright.stencil.call import GemmCall
from tilewright.stencil.geometry import Launch, Mode
from tilewright.stencil.table import Part
from tilewright.tuning.verify import Bench, Check, WrongResultError, certify

__all__ = ["Batched", "Grouped", "Verified", "check_batches", "check_groups", "verify"]

# Of a batch, where blocks stay: so few that each computes tiles of several products.
_BLOCKS = 2


@dataclass
class Verified:
    """What a run verified.

    Parameters
    ----------
    right : dict
        By digest of machine code: on which device, and when.
    wrong : dict
        By digest: what is wrong with it.
    left : int
        Instances that there was no time for.
    """

    right: dict[str, str] = field(default_factory=dict)
    wrong: dict[str, str] = field(default_factory=dict)
    left: int = 0


def verify(
    live: CUDADevice,
    portfolio: Portfolio,
    seconds: float,
    share: tuple[int, int] = (0, 1),
    passed: Container[str] = (),
    observer: Callable[[int, int], None] = lambda done, of: None,
) -> Verified:
    """Check the machine code of a portfolio's kernels.

    Each instance is loaded as `gemm` loads it and must pass `tilewright.tuning.verify.certify`
    at the sizes of its own mode and at all others: any instance is right for any problem.

    Parameters
    ----------
    live : CUDADevice
        Of the portfolio's architecture.
    portfolio : Portfolio
        With machine code.
    seconds : float
        After which no further instance begins.
    share : tuple of int
        Which part of the instances, and of how many: several processes share a device.
    passed : container of str
        Digests that passed before and are left out.
    observer : callable
        Called with the number of instances that passed or failed, and how many there are.

    Raises
    ------
    DeviceLostError
        If a kernel leaves the device unusable for this process; its name is in the message.
    """
    found = Verified()
    until = time.monotonic() + seconds
    first, of = share
    every = [one for one in _instances(portfolio) if one[2].digest not in passed]
    instances = every[first::of]
    for done, (kernel, mode, code) in enumerate(instances):
        if time.monotonic() >= until:
            found.left = len(instances) - done
            break
        why = _wrong(live, portfolio, kernel, mode, code)
        if why:
            found.wrong[code.digest] = f"{kernel.name}, {mode}: {why}"
        else:
            today = datetime.now(UTC).date().isoformat()
            found.right[code.digest] = f"{live.spec.name}, driver {live.driver}, {today}"
        observer(done + 1, len(instances))
    return found


def _instances(portfolio: Portfolio) -> Iterator[tuple[PortfolioKernel, Mode, Code]]:
    """Yield each machine code once, those of one compressed file together."""
    every = {
        digest: (kernel, mode, portfolio.codes[digest])
        for kernel in portfolio.kernels
        for modes in kernel.forms
        for mode, digest in modes.items()
    }
    yield from sorted(every.values(), key=lambda one: (one[2].block, one[2].at))


class _Routed:
    """A stencil whose kernels run where a number in device memory is 0, and that number."""

    def __init__(self, family: Stencil, decision: Any) -> None:
        self._family, self._decision = family, decision

    def __getattr__(self, name: str) -> Any:
        return getattr(self._family, name)

    def arguments(self, config: Config, variant: Variant, call: GemmCall) -> tuple[Any, ...]:
        """Return the kernel's arguments, the number's address last."""
        return (*self._family.arguments(config, variant, call), self._decision)


class _Parted:
    """A stencil whose kernels compute a result part by part, as one launch.

    Parameters
    ----------
    family : Stencil
        The stencil.
    config, variant
        Of the kernel.
    """

    def __init__(self, family: Stencil, config: Config, variant: Variant) -> None:
        self._family = family
        size = variant.precision.element_bytes
        self.unit = -(-family.operand_alignment(config) // size)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._family, name)


class Batched(_Parted):
    """A stencil whose kernels compute a result as a batch: by thirds of its columns or its rows.

    Of a result that has no thirds, or none that begin as the stencil wants, a batch of one.
    """

    def _one_of(self, m: int, n: int) -> tuple[int, int]:
        """Return the sizes of one product of a batch that makes an m x n result."""
        if n % (3 * self.unit) == 0:
            return m, n // 3
        return (m // 3, n) if m % (3 * self.unit) == 0 else (m, n)

    def launch(self, config: Config, m: int, n: int, k: int = 0) -> Launch:
        """Return the launch that covers an m x n result."""
        one_m, one_n = self._one_of(m, n)
        return self._family.geometry(config).batched(one_m, one_n, max(m // one_m, n // one_n))

    def arguments(self, config: Config, variant: Variant, call: GemmCall) -> tuple[Any, ...]:
        """Return the kernel's arguments, from a matrix to the next last."""
        m, n = self._one_of(call.m, call.n)
        step_a = step_b = step_c = 0
        if m < call.m:
            step_a, step_c = m * (call.a.ld if variant.trans_a.transposed else 1), m
        elif n < call.n:
            step_b, step_c = n * (1 if variant.trans_b.transposed else call.b.ld), n * call.c.ld
        one, batch = replace(call, m=m, n=n), max(call.m // m, call.n // n)
        steps = step_a, step_b, step_c
        found: tuple[Any, ...] = self._family.batched_arguments(config, variant, one, batch, steps)
        return found


class Grouped(_Parted):
    """A stencil whose kernels compute a result as a group: four problems or fewer.

    Those of the first rows read parts of operands, the others operands of their own.
    """

    def _pieces(self, m: int, n: int) -> list[tuple[int, int, int, int]]:
        """Return first row, first column, rows and columns of each problem."""
        high, wide = (2 * side // 3 // self.unit * self.unit for side in (m, n))
        return [
            (i, j, rows, columns)
            for i, rows in ((0, high), (high, m - high))
            for j, columns in ((0, wide), (wide, n - wide))
            if rows and columns
        ]

    def launch(self, config: Config, m: int, n: int, k: int = 0) -> Launch:
        """Return the launch that covers an m x n result."""
        sizes = [(rows, columns) for _, _, rows, columns in self._pieces(m, n)]
        return self._family.geometry(config).grouped(sizes)

    def arguments(self, config: Config, variant: Variant, call: GemmCall) -> tuple[Any, ...]:
        """Return the kernel's arguments, the table last."""
        parts = []
        for i, j, rows, columns in self._pieces(call.m, call.n):
            c = replace(call.c, offset=call.c.offset + i + j * call.c.ld)
            if i == 0:
                parts.append(Part(call, rows, columns, c, i, j))
                continue
            down = i * (call.a.ld if variant.trans_a.transposed else 1)
            right = j * (1 if variant.trans_b.transposed else call.b.ld)
            a = replace(call.a, offset=call.a.offset + down)
            b = replace(call.b, offset=call.b.offset + right)
            own = replace(call, m=rows, n=columns, a=a, b=b, c=c)
            parts.append(Part(own, rows, columns, c))
        return self._family.grouped_arguments(config, variant, parts)


def check_batches(bench: Bench) -> None:
    """Check batches along either side, of inner and edge blocks; the stencil is `Batched`."""
    rng, family = np.random.default_rng(3), bench.stencil
    assert isinstance(family, Batched)

    def thirds(least: int) -> int:
        return -(-least // family.unit) * family.unit * 3

    high, wide = (bench.config.integer(f"block_{side}") for side in "mn")
    whole = wide + 1 + ((wide + 1) % 3 == 0)  # has no thirds
    k = 2 * bench.config.integer("block_k") + 5
    for m, n in (
        (high + 7, thirds(wide + 3)), (thirds(high + 2), whole), (thirds(5), 7),
        (high, thirds(wide)),
    ):  # fmt: skip
        bench.exact(Check(m, n, k, alpha=-3, beta=2, padding=3, offset=5), rng)
        bench.exact(Check(m, n, k, nan_in_c=True), rng)


def check_groups(bench: Bench) -> None:
    """Check problems that are smaller than a tile, of operands that are not; it is `Grouped`."""
    rng, family = np.random.default_rng(3), bench.stencil
    assert isinstance(family, Grouped)
    m, n = (bench.config.integer(f"block_{side}") + family.unit for side in "mn")
    k = 2 * bench.config.integer("block_k") + 5
    bench.exact(Check(m, n, k, alpha=-3, beta=2, padding=3, offset=5), rng)


def _wrong(
    live: CUDADevice, portfolio: Portfolio, kernel: PortfolioKernel, mode: Mode, code: Code
) -> str:
    """Return what is wrong with an instance; nothing if it passes."""
    family: Any = stencil(kernel.config.stencil)
    decision = None
    try:
        if code.digest in kernel.routed.values():
            decision = live.upload(np.zeros(1, np.int32))
            family = _Routed(family, decision)
        grouped = code.digest in kernel.grouped.values()
        if grouped:
            config = family.grouped_config(kernel.config, kernel.variant)
            kernel = replace(kernel, config=config)
            family = Grouped(family, config, kernel.variant)
        batched = code.digest in kernel.batched.values()
        if batched:
            family = Batched(family, kernel.config, kernel.variant)
        loaded = live.load(code, portfolio.machine_code(code.digest))
        if code.digest in kernel.triangle.values():
            check_triangle(Bench(live, loaded, family, kernel.config, kernel.variant))
            check_triangle(Bench(live, loaded, family, kernel.config, kernel.variant, _BLOCKS))
            return ""
        certify(live, loaded, family, kernel.config, kernel.variant)
        if grouped:
            check_groups(Bench(live, loaded, family, kernel.config, kernel.variant))
        if batched:
            check_batches(Bench(live, loaded, family, kernel.config, kernel.variant, _BLOCKS))
    except DeviceLostError as error:
        raise DeviceLostError(f"{kernel.name}, {mode}: {error}") from None
    except (WrongResultError, BackendError, PortfolioError) as error:
        return str(error)
    finally:
        if decision is not None:
            live.free(decision)
    return ""
