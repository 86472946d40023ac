"""The kernel ladder: one optimisation a rung, from the naive kernel to the vendor's library."""
