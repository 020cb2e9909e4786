"""Tensors of accelerators: what is measured there, without waiting, and how it comes to the host."""
