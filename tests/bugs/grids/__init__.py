"""Grids of small healthy trainings: every block with losses, optimizers and conditions, behind simulated devices.

``python -m tests.bugs.grids.run --count 100`` prints those that are called different. A cell that is has a kind, which
a rule and a small test of its own mend (``tests/unit/diagnose/test_little_left.py``).
"""
