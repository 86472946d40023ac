"""Arrays of 8- and 16-bit numbers: on tensor cores as they are, elsewhere in single precision.

::

    serve.py      gemm() on them: checked, and by which way
    types.py      their types, and those of results
    arrays.py     what a product needs of each library's arrays
    calls.py      calls that tensor cores serve, by where the arrays are
    products.py   their launches: copies of operands, and a tensor-core kernel
    fused.py      those of a kernel that applies an epilogue
"""
