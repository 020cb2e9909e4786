"""Checkpoints of any two formats, parameter by parameter; no framework is needed, and nothing in them is executed."""
