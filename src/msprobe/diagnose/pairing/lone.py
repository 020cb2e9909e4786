"""Which calls one side alone makes."""

from __future__ import annotations

from msprobe.diagnose.pairing.match import Pairing


def lone_calls(pairing: Pairing) -> list[str]:
    """Calls that one side alone makes, as far as the other would have recorded them."""
    one, other = pairing.candidate.part, pairing.reference.part
    if not (one.ours and other.ours) or one.header.get("level") != other.header.get("level"):
        return []
    return [event.name for event in [*pairing.alone(), *pairing.missing()] if event.direction != "recompute"]
