"""Training steps of PyTorch's networks in float32, with PyTorch's products and with ours.

A step is forward, loss, backward and AdamW, all of it by the host's clock; some steps of either
kind in turns, TF32 off.  Loss curves begin with equal weights and numbers: float64's by PyTorch,
float32's by PyTorch, and by `tilewright.torch.matmul` with ``accuracy="fp32"``.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

from tilewright.bench.benchmarks.contractions import in_turns
from tilewright.bench.peers import UnavailableError
from tilewright.bench.registry import Asked, Benchmark, Cell, Row

__all__ = ["BENCHMARK"]

# Steps in a turn.
_STEPS = 3

_RATE = 1e-4


class Training(Benchmark):
    measures = "training steps in float32, and loss curves"
    against = "PyTorch with TF32 off"
    takes = "a minute on an H100"
    # Steps of a loss curve.
    options = {"seed": "0", "count": "30"}  # noqa: RUF012
    needs = "cuda"

    def rows(self, asked: Asked) -> Iterator[Row]:
        try:
            import torch

            from tilewright.torch import matmul
        except ImportError:
            raise UnavailableError("PyTorch is not here; pip install torch") from None
        torch.backends.cuda.matmul.allow_tf32 = False
        kinds = {"torch": contextlib.nullcontext, "ours": matmul}
        where = torch.device("cuda", getattr(asked.live, "ordinal"))  # noqa: B009  # CUDA's
        for name, (build, shape) in _NETWORKS.items():
            torch.manual_seed(asked.seed)
            with where:
                net, x = build(torch), torch.randn(shape)
            begin = {key: value.cpu() for key, value in net.state_dict().items()}
            row: dict[str, Any] = {"network": name, "input": [*shape], "torch": torch.__version__}
            row["parameters"] = sum(one.numel() for one in net.parameters())
            row |= in_turns(torch, partial(_steps, _step(torch, net, x)), _STEPS, kinds)[0]
            curves = {**kinds, "float64": contextlib.nullcontext}
            for kind, context in curves.items():
                dtype = torch.float64 if kind == "float64" else torch.float32
                net.to(dtype).load_state_dict(begin)
                step = _step(torch, net, x.to(dtype))
                with context():
                    row[f"{kind}_losses"] = [float(step()) for _ in range(asked.count)]
            yield row

    def line(self, row: Row) -> str:
        ours, theirs = (distance(row, kind) for kind in ("ours", "torch"))
        return (
            f"{row['network']}: {row['ours_ms']:.1f} ms, PyTorch {row['torch_ms']:.1f};"
            f" losses {ours:.1e} from float64's, PyTorch's {theirs:.1e}"
        )

    def table(self, rows: Sequence[Row]) -> tuple[Sequence[str], list[list[Cell]]]:
        return HEADS, [[*line] for line in lines(rows)]


HEADS = (
    "network", "parameters, M", "step, ms", "PyTorch's, ms", "ratio",
    "losses, from float64's", "PyTorch's, from float64's",
)  # fmt: skip


def lines(rows: Sequence[Row]) -> list[list[str]]:
    """Return a line for each network."""
    return [
        [
            row["network"], f"{row['parameters'] / 1e6:.0f}", f"{row['ours_ms']:.1f}",
            f"{row['torch_ms']:.1f}", f"{row['torch_ms'] / row['ours_ms']:.2f}",
            f"{distance(row, 'ours'):.1e}", f"{distance(row, 'torch'):.1e}",
        ] for row in rows
    ]  # fmt: skip


def distance(row: Row, kind: str) -> float:
    """Return the largest relative distance of a loss from float64's."""
    pairs = zip(row[f"{kind}_losses"], row["float64_losses"], strict=True)
    return max((abs(x - y) / abs(y) for x, y in pairs), default=0.0)


def _step(torch: Any, net: Any, x: Any) -> Callable[[], Any]:
    """Return a training step, which returns the loss."""
    optimizer = torch.optim.AdamW(net.parameters(), lr=_RATE, fused=True)
    target = x.roll(1, -1)

    def step() -> Any:
        optimizer.zero_grad(set_to_none=True)
        loss = torch.nn.functional.mse_loss(net(x), target)
        loss.backward()
        optimizer.step()
        return loss.detach()

    return step


def _steps(step: Callable[[], Any]) -> None:
    for _ in range(_STEPS):
        step()


# -- networks --------------------------------------------------------------------------------------


def _perceptron(torch: Any) -> Any:
    nn = torch.nn
    layers = [nn.Linear(8192, 8192) for _ in range(4)]
    return nn.Sequential(
        *(part for layer in layers[:-1] for part in (layer, nn.GELU())), layers[-1]
    )


def _block(torch: Any) -> Any:
    nn, width, heads = torch.nn, 2048, 16

    class Attention(nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.inner, self.outer = nn.Linear(width, 3 * width), nn.Linear(width, width)

        def forward(self, x: Any) -> Any:
            parts = self.inner(x).unflatten(-1, (3, heads, -1)).movedim(-3, 0).transpose(-3, -2)
            made = nn.functional.scaled_dot_product_attention(*parts, is_causal=True)
            return self.outer(made.transpose(-3, -2).flatten(-2))

    class Block(nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.attend = nn.Sequential(nn.LayerNorm(width), Attention())
            wide = nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width)
            self.widen = nn.Sequential(nn.LayerNorm(width), *wide)

        def forward(self, x: Any) -> Any:
            x = x + self.attend(x)
            return x + self.widen(x)

    return Block()


_NETWORKS: dict[str, tuple[Callable[[Any], Any], tuple[int, ...]]] = {
    "transformer block, width 2048, 8 x 1024 tokens": (_block, (8, 1024, 2048)),
    "4 layers of 8192, batch 4096": (_perceptron, (4096, 8192)),
}

BENCHMARK = Training()
