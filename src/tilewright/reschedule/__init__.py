"""The machine-code scheduler: a compiled main loop in another order, proved to compute the same.

::

    levels                     `schedule` as a parameter of what is tuned, and where it may run
    cubin, search              from a cubin to a rescheduled one: cached, searched in a process
    schedule                   the changes and their order
      serpentine, tile, webs, allocation  multiply-adds there and back over the register tile
      order, fetch                        exchanges near conflicts of operand fetch; reuse flags
      control_fields                      what a new order waits for
    equivalence                the prover: values, in_flight, hazards, by access and latency
    proofs, version            what was shown right on a device, of which version of all this
    compare                    two versions of a kernel side by side

It needs no GPU, and refuses what it cannot prove (docs/scheduling.md).
"""
