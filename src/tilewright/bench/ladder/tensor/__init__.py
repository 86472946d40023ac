"""The ladder of tensor cores: five kernels for Hopper's wgmma, one idea each."""
