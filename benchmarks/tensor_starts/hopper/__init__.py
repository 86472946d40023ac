"""A search beside cuBLAS on one GPU: candidates, compilers, checks, times and races.

cases        what is asked of a precision: transposes, sizes, multiples of cuBLAS's speed
candidates   points of the stencils' spaces, a module for each precision
pool         compilers in processes of their own
log          rows of JSON, appended at once
bench        one device: check, time, race
search       the order in which all that is done until the time is up
watching     the process that outlives a kernel that hangs, and the table
"""
