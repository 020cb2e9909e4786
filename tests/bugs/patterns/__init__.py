"""All patterns, by their id."""

from __future__ import annotations

from bugs.patterns import backward, distributed, forward, further, further_ranks, optimizer
from bugs.planting import Pattern

_MODULES = (forward, backward, optimizer, distributed, further, further_ranks)
PATTERNS: dict[str, Pattern] = {pattern.id: pattern for module in _MODULES for pattern in module.PATTERNS}
