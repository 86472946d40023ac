"""Single precision from tensor cores: parts, guard, product and fallback in one call.

::

    serve.py      which products, and complex ones as real ones
    chain.py      the launches of one of them
    product.py    who multiplies parts
    decision.py   what the guard decided
    worth.py      whether that is faster
    promise.py    what is promised of errors
"""
