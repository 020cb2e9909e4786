"""Optimizers: their steps, and what they were given."""
