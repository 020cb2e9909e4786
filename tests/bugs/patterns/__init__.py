"""All patterns, by their id."""

from __future__ import annotations

from bugs.patterns import forward
from bugs.planting import Pattern

PATTERNS: dict[str, Pattern] = {pattern.id: pattern for module in (forward,) for pattern in module.PATTERNS}
