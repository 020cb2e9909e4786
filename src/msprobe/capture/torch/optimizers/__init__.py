"""Optimizers: their steps, which parameters they update, and when a training step is over."""
