"""Rank-k updates: products of a matrix with its own transpose, half of which is computed.

::

    triangle.py   which part of a result is computed, cut into blocks that are products
    lay_out.py    their launches on a device
    host.py       NumPy's own BLAS in their place
"""
