"""Tilewright bounds, generates, tunes, explains and serves GEMM kernels."""
