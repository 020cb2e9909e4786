"""Lockstep in PyTorch: how its tensors are read, compared and replaced."""
