"""Products of matrices in the host's memory, tile by tile through a device's memory."""
