"""Functions and primitives of MindSpore: which are recorded as calls, and what takes their place while recording."""
