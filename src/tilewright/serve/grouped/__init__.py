"""Products of matrices of different sizes in one call.

::

    serve.py      the public call
    members.py    on CUDA devices: plans of many, looked up by what their arrays look like
    overlaps.py   results that share memory with other arrays
"""
