"""What follows a product before it is stored: a bias, scales, an activation.

::

    serve.py    the public `Epilogue`, and gemm() with one
    arrays.py   where no tensor-core kernel applies it: passes of the arrays' library
"""
