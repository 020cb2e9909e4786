"""Tensors as a record describes them: statistics, digests, files of values, and what is remembered of each."""
