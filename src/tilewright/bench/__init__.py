"""Sweeps, and the libraries to compare with: one file a peer."""
