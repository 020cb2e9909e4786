"""Dropout that is active where the module evaluates, or inactive where it trains.

A call knows by its argument whether it drops; its module knows by its mode whether it should. A module that is in
eval mode by itself among siblings that train is another way to the same fault.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from msprobe.compare.entry_names import operation, plain_path
from msprobe.diagnose import operators
from msprobe.diagnose.check.moment import CheckedStep
from msprobe.diagnose.check.values import floats
from msprobe.diagnose.findings import Finding
from msprobe.diagnose.steps.argument_names import argument
from msprobe.diagnose.steps.timeline import Event, Timeline
from msprobe.messages import said

_ATTENTION = "scaled_dot_product_attention"


def check(moment: CheckedStep) -> Iterable[Finding]:
    """Each dropout whose argument and whose module's mode do not go together."""
    if not moment.timeline.part.ours:
        return  # Other recorders do not write the mode of a module.
    for event, active, rate in _dropouts(moment.timeline):
        module = event.parent
        if module is None or not module.is_module:
            continue
        trains = module.record.get("training") is not False
        if trains == active or (trains and not _learns(event)):
            continue
        message = "dropout-called-without-training" if trains else "dropout-active-in-eval"
        text = said(message, event.stem.rpartition(".")[2], rate, module.parts.path)
        evidence = {"training": active, "module_training": trains, "rate": rate}
        yield moment.finding(event, "argument", text, evidence=evidence)
    yield from _left_in_eval(moment)


def _dropouts(timeline: Timeline) -> Iterator[tuple[Event, bool, float]]:
    """The calls that drop at a rate where they are active, and whether they are."""
    for event in timeline:
        if event.direction in ("forward", "recompute") and event.parts.kind == "api":
            active, rate = activity(event)
            if active is not None and rate:
                yield event, active, rate


def activity(event: Event) -> tuple[bool | None, float]:
    """Whether a call drops, and at which rate; None if it is no dropout."""
    word = operation(event.stem)
    if word in operators.DROPOUTS:
        rate, training = argument(event, 1, "p"), argument(event, 2, "training")
        if training is None:
            training = argument(event, 2, "train")
        rate = 0.5 if rate is None else rate
        active = event.parts.owner in ("Functional", "VF", "Torch") if training is None else bool(training)
        return active, float(rate) if isinstance(rate, (int, float)) else 0.0
    if word == _ATTENTION:
        rate = argument(event, 4, "dropout_p")
        return (True, float(rate)) if isinstance(rate, (int, float)) and rate else (None, 0.0)
    return None, 0.0


def _learns(event: Event) -> bool:
    return any(leaf.get("requires_grad") for leaf in floats(event.inputs()))


def _left_in_eval(moment: CheckedStep) -> Iterable[Finding]:
    """Modules in eval mode that hold inactive dropouts, in a parent that trains and has siblings that train."""
    known: set[str] = set()
    training = {
        event.parts.owner
        for event in moment.timeline
        if event.is_module and event.direction == "forward" and event.record.get("training") is not False
    }
    for event, active, rate in _dropouts(moment.timeline):
        if active or not _learns(event):
            continue
        module = _outermost_in_eval(event)
        if module is None or module.parts.path in known or module.parts.owner not in training:
            continue
        known.add(module.parts.path)
        yield moment.finding(
            event,
            "argument",
            said("dropout-left-in-eval", plain_path(module.parts.path), rate),
            evidence={"training": False, "module_training": False, "left_in_eval": module.parts.path, "rate": rate},
            alternatives=(module.name,),
        )


def _outermost_in_eval(event: Event) -> Event | None:
    """The outermost module in eval mode around a call, if one around that trains; None if all of them evaluate."""
    outermost: Event | None = None
    for module in event.around():
        if module.is_module and module.record.get("training") is not False:
            return outermost
        outermost = module if module.is_module else outermost
    return None
