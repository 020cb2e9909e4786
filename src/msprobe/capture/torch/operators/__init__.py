"""Operators below named calls (level L2), and the kernels of a device."""
