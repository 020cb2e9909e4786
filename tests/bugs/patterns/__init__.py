"""All patterns, by their id."""

from __future__ import annotations

from bugs.patterns import (
    backward,
    distributed,
    forward,
    further_model,
    further_ranks,
    further_training,
    optimizer,
    threads_images,
    threads_large,
    threads_model,
    threads_precision,
    threads_recurrent,
)
from bugs.planting import Pattern

_MODULES = (
    forward,
    backward,
    optimizer,
    distributed,
    further_model,
    further_training,
    further_ranks,
    threads_model,
    threads_images,
    threads_recurrent,
    threads_precision,
    threads_large,
)
PATTERNS: dict[str, Pattern] = {pattern.id: pattern for module in _MODULES for pattern in module.PATTERNS}
