"""Pairs in which nothing is wrong."""

from __future__ import annotations

from bugs.planting import Pattern

CLEAN: dict[str, Pattern] = {}
