"""Many products in one call: batches, whose matrices lie equal steps apart, and groups.

::

    arrange.py      arrays of more than two dimensions as matrices and repeats
    one_launch.py   all products of a batch, or of a group, in one launch
    grouped.py      the public call on groups
    members.py      groups on CUDA devices: plans, looked up by what arrays look like
"""
