"""Where two trainings part, and what a dump alone says: first differences, their cause and their effect."""

from __future__ import annotations

from msprobe.diagnose.runs import compare_runs

__all__ = ["compare_runs"]
