"""OpenCL through pyopencl, with PoCL as the embedded default device."""
