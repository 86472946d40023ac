"""Routes: which launches compute a product, laid out for one call.

::

    lay_out.py       which route it is
    rank_k.py        a triangle of the result: products of its blocks
    masked.py            or one launch, of tensor cores
    split/           accuracy="fp32" and schemes: split operands, products of parts
    residues/        accuracy="fp64", double-double: residues of operands, their products
    plain.py         all others, by the precision's own kernels:
    copied_batch.py      batches: operands of all products copied at once, if it is faster
    one_launch.py            one launch for all products, likewise
    realigned.py         operands worth copying: copies, then the kernel for those
    direct.py            the kernel for the operands

A route works on a `GemmCall` as kernels see it, and takes memory from a space by name
(`tilewright.serve.steps`).  It knows those below it alone.
"""
