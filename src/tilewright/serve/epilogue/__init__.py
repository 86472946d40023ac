"""What follows a product before it is stored: a bias, scales, an activation.

::

    serve.py    the public `Epilogue`, and gemm() with one
    fused.py    by the tensor-core kernel itself
    arrays.py   elsewhere: passes of the arrays' library over the product
"""
