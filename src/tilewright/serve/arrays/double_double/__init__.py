"""Double-double arrays, whose words are somebody's float64 array, as `gemm` takes them.

::

    entry.py      any numbers become words, correctly rounded
    storage.py    how words lie in memory: shapes, parts, places
    pairs.py      their arithmetic, element by element
    scalars.py    alpha and beta of their products
    adapter.py    what `gemm` asks of them

`tilewright.DoubleDouble` is on top of `gemm`, by which it multiplies matrices.
"""
