"""LU factorisation and solution on a CUDA device, on several streams."""
