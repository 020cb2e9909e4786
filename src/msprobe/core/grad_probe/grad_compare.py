"""``GradComparator`` under its old name."""

from __future__ import annotations

from msprobe.grad_probe.comparator import GradComparator

__all__ = ["GradComparator"]
