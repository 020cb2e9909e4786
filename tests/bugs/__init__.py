"""Planted numerics bugs: pairs of recorded trainings that differ by what is planted, and what a right "
"answer names."""

from __future__ import annotations
