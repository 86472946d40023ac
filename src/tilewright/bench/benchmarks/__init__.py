"""Benchmarks of the registry: one file each, with its ``BENCHMARK``."""
