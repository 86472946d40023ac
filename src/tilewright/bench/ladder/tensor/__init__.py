"""The ladder of matrix units: five kernels for Hopper's wgmma, one idea each."""
