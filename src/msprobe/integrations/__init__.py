"""Callbacks that record with the trainers of other packages: ``huggingface`` and ``lightning``.

Nothing is imported here: each module needs the package that it is for.
"""
