"""Arrays of other libraries: a module each, by which `gemm` takes and returns them."""
