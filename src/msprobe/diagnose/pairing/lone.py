"""Which calls one side alone makes."""

from __future__ import annotations

from msprobe.diagnose.pairing.match import Pairing


def lone_calls(pairing: Pairing) -> list[str]:
    """Calls that one side alone makes, as far as the other would have recorded them."""
    part, other = pairing.candidate.part, pairing.reference.part
    if not (part.ours and other.ours) or part.header.get("level") != other.header.get("level"):
        return []
    return [event.name for event in [*pairing.alone(), *pairing.missing()] if event.direction != "recompute"]
