"""CUDA: NVRTC compiles, the driver runs; neither is imported before it is needed.

Compiling needs the packages of the ``cuda`` extra but no GPU and no driver.
"""
