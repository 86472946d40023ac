"""`tilewright.matmul` beside PyTorch's: what is multiplied, and what is told of it."""

from __future__ import annotations

import pytest

from tilewright.bench.benchmarks import matmul

ROW = {
    "precision": "bf16", "kind": "scores", "shape": [2, 3, 77, 64], "us": 20.0, "torch_us": 50.0,
    "difference": 1.23e-3,
}  # fmt: skip


def test_a_product_has_a_line_with_all_precisions():
    other = ROW | {"precision": "s", "us": 100.0}
    alone = ROW | {"kind": "batch", "shape": [5, 7, 9, 11]}
    names, lines = matmul.by_product([ROW, other, alone])
    assert names == ["bf16", "s"]
    assert lines == [
        ["scores 2 x 3 x 77 x 64", "20", "2.50", "100", "0.50"],
        ["batch 5 x 7 x 9 x 11", "20", "2.50", "-", "-"],
    ]
    _, [first, *_] = matmul.BENCHMARK.table([ROW])
    assert first == ["bf16", "scores 2 x 3 x 77 x 64", "20", "2.50", "1e-03"]
    assert matmul.BENCHMARK.line(ROW) == "bf16, scores 2 x 3 x 77 x 64: 20 us, 2.50 of PyTorch"


def test_heads_lie_beside_each_other():
    torch = pytest.importorskip("torch")
    for about, x, y in matmul._products(torch, "meta", torch.float32):
        if about["kind"] == "batch":
            assert x.is_contiguous()
            continue
        sequences, heads, tokens, d = about["shape"]
        values = y if about["kind"] == "context" else y.mT
        assert values.shape == (sequences, heads, tokens, d)
        assert values.stride() == (tokens * heads * d, d, heads * d, 1)
        assert (x @ y).shape[:3] == (sequences, heads, tokens)
