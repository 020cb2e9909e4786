"""When a call outside of all modules is made."""

from __future__ import annotations

from msprobe.compare.entry_names import writes_in_place
from msprobe.diagnose.steps.timeline import Event, Timeline, is_tensor


def phase_of(event: Event, timeline: Timeline) -> str:
    """The part of the step: forward pass, after the backward pass (on gradients), or after the step of an optimizer."""
    if timeline.backward_of(event) is not None:
        return "forward"
    if any(is_tensor(leaf) and leaf.get("requires_grad") is True for _, leaf in event.outputs()):
        written = writes_in_place(event.stem) and event.parent is None
        return (_later_phase(event, timeline) if written else "") or "forward"
    return _later_phase(event, timeline) or "forward"


def _later_phase(event: Event, timeline: Timeline) -> str:
    if timeline.optimizers and timeline.optimizers[0].index < event.index:
        return "after optimizer"
    return "after backward" if timeline.first_backward < event.index else ""
