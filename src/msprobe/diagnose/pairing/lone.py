"""Which calls one side alone makes."""

from __future__ import annotations

from collections.abc import Iterable

from msprobe.diagnose.pairing.match import Pairing
from msprobe.diagnose.steps.timeline import Event


def lone_calls(pairing: Pairing) -> list[str]:
    """Calls that one side alone makes, as far as the other would have recorded them."""
    one, other = pairing.candidate.part, pairing.reference.part
    if not (one.ours and other.ours) or one.header.get("level") != other.header.get("level"):
        return []
    alone, missing = pairing.alone(), pairing.missing()
    # After an interruption the other side goes on by itself.
    if not one.complete:
        last = _last(pairing.back)
        missing = [event for event in missing if event.index < last]
    if not other.complete:
        last = _last(pairing.partner)
        alone = [event for event in alone if event.index < last]
    return [event.name for event in [*alone, *missing] if event.direction != "recompute"]


def _last(paired: Iterable[Event]) -> int:
    # Records of gradients are begun early and stand at the end.
    return max((event.index for event in paired if event.direction != "gradient"), default=-1)
