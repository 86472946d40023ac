"""Strategies side by side on recorded spaces: ours and Kernel Tuner's."""
