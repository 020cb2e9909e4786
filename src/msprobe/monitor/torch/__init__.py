"""The monitor of PyTorch trainings."""
