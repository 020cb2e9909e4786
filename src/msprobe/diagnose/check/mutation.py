"""A tensor that the backward pass needs is written to behind autograd's back (through ``.data``).

Recorded calls do not say which tensors share memory. But a write in place to something that has the values of a
result that autograd keeps, while no call copied that result, can only have gone to the result itself. Autograd raises
an error for writes that it sees, so only targets without ``requires_grad`` count.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable

from msprobe.compare.entry_names import operation, writes_in_place
from msprobe.diagnose import operators
from msprobe.diagnose.check.moment import CheckedStep
from msprobe.diagnose.check.values import distinct, measured
from msprobe.diagnose.differences.records import fingerprint
from msprobe.diagnose.findings import Finding
from msprobe.diagnose.steps.timeline import Event, Timeline, is_tensor
from msprobe.messages import said


def check(moment: CheckedStep) -> Iterable[Finding]:
    """Each write in place to what a later backward call needs."""
    timeline = moment.timeline
    writes = [event for event in timeline if _hidden_write(event)]
    if not timeline.part.ours or not writes:
        return
    touched = _touched(timeline)
    for event in writes:
        needed = _needed(timeline, event, touched)
        if needed is None:
            continue
        forward, later = needed
        target, after = dict(event.inputs())["input.0"], dict(event.outputs()).get("output.0")
        yield moment.finding(
            event,
            "mutation",
            said("write-unseen-by-autograd", event.name, later.name, forward.name),
            evidence={
                "used_by": forward.name,
                "needed_by": later.name,
                "before": measured(target),
                "after": measured(after),
            },
            alternatives=(forward.name,),
        )


def _hidden_write(event: Event) -> bool:
    """True for a write in place that autograd does not see, to a tensor that can be recognised."""
    if event.direction not in ("forward", "recompute") or event.parts.kind != "api" or event.is_collective:
        return False
    if not writes_in_place(event.stem):
        return False
    target, after = dict(event.inputs()).get("input.0"), dict(event.outputs()).get("output.0")
    return (
        isinstance(target, dict)
        and distinct(target)
        and target.get("requires_grad") is False
        and is_tensor(after)
        and fingerprint(target) != fingerprint(after)
    )


def _touched(timeline: Timeline) -> dict[Hashable, list[tuple[Event, str, bool]]]:
    """Which calls take or make a tensor: the call, ``input`` or ``output``, and whether autograd follows it there."""
    touched: dict[Hashable, list[tuple[Event, str, bool]]] = {}
    for event in timeline:
        if event.direction not in ("forward", "recompute") or event.parts.kind != "api":
            continue
        for side, slots in (("input", event.inputs()), ("output", event.outputs())):
            for _, leaf in slots:
                if distinct(leaf):
                    mark = fingerprint(leaf)
                    touched.setdefault(mark, []).append((event, side, bool(leaf.get("requires_grad"))))
    return touched


def _needed(
    timeline: Timeline, write: Event, touched: dict[Hashable, list[tuple[Event, str, bool]]]
) -> tuple[Event, Event] | None:
    """The call that used the tensor before, and the backward call after that needs it as it was."""
    target = dict(write.inputs())["input.0"]
    before = [use for use in touched.get(fingerprint(target), ()) if use[0].index < write.index]
    for event, side, _ in reversed(before):
        if side == "output":
            if operation(event.stem) in operators.NEW_TENSORS:
                return None
            break
    for event, side, followed in before:
        needs = operators.NEEDS_RESULT if side == "output" else operators.NEEDS_INPUTS
        later = timeline.backward_of(event)
        if followed and operation(event.stem) in needs and later is not None and later.index > write.index:
            return event, later
    return None
