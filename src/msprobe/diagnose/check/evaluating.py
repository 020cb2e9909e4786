"""Training steps of a model that was left in eval mode: dropouts drop nothing, batch norms keep their averages."""

from __future__ import annotations

from collections.abc import Iterable

from msprobe.compare.entry_names import operation, plain_path
from msprobe.diagnose.check.dropout import activity
from msprobe.diagnose.check.moment import CheckedStep
from msprobe.diagnose.check.values import floats
from msprobe.diagnose.findings import Finding
from msprobe.diagnose.steps.argument_names import argument
from msprobe.diagnose.steps.timeline import Event, Timeline
from msprobe.messages import Wording, joined, said


def check(moment: CheckedStep) -> Iterable[Finding]:
    """The first call of each rank that eval mode changes, if the whole model is in it and an optimizer trains it.

    A batch norm in eval mode inside of a model that trains is meant, as a rule.
    """
    timeline = moment.timeline
    if not timeline.part.ours or not _is_trained(moment):
        return
    events = [event for event in timeline if _evaluates(timeline, event)]
    if events:
        # Who trains in the same step is in eval mode on purpose in between, as to move an input against a model.
        training = _in_training(timeline)
        events = [event for event in events if plain_path(_root(event).parts.path) not in training]
    if not events:
        return
    first = events[0]
    root = _root(first)
    dropouts = sum(operation(event.stem) != "batch_norm" for event in events)
    norms = len(events) - dropouts
    counts = ((dropouts, "dropouts drop nothing"), (norms, "batch norms keep their averages"))
    what = joined(" and ", [Wording("{} {}", count, words) for count, words in counts if count])
    trained = root.parts.path in moment.history.in_training
    yield moment.finding(
        first,
        "argument",
        said(
            "trained-in-eval-mode", _whose(timeline, root), ", and was in training mode before" if trained else "", what
        ),
        evidence={"training": False, "dropouts": dropouts, "batch_norms": norms, "trained_before": trained},
        alternatives=(root.name,),
    )


def _is_trained(moment: CheckedStep) -> bool:
    """True if an optimizer takes a step with gradients of this pass."""
    return any(not event.record.get("skipped") for event in moment.optimizer_steps) and bool(moment.at_optimizer)


def _evaluates(timeline: Timeline, event: Event) -> bool:
    """True for a dropout or a batch norm that gradients go back through, in a model that is in eval mode as a whole."""
    if event.direction != "forward" or event.parts.kind != "api" or timeline.backward_of(event) is None:
        return False
    if event.parent is None or any(module.record.get("training") is not False for module in event.around()):
        return False
    if operation(event.stem) == "batch_norm":
        return argument(event, 5, "training") is False and any(
            leaf.get("requires_grad") for leaf in floats(event.inputs())
        )
    active, rate = activity(event)
    return active is False and rate > 0


def _in_training(timeline: Timeline) -> set[str]:
    """The outermost modules that make a pass in training mode from which gradients come back."""
    return {
        plain_path(event.parts.path)
        for event in timeline
        if event.is_module
        and event.parent is None
        and event.direction == "forward"
        and event.record.get("training") is not False
        and timeline.backward_of(event) is not None
    }


def _whose(timeline: Timeline, root: Event) -> str:
    """The model, or the one of several of which ``root`` is the outermost module that was recorded."""
    outermost = [
        event for event in timeline if event.is_module and event.parent is None and event.direction == "forward"
    ]
    paths = {plain_path(event.parts.path) for event in outermost}
    if len(paths) > 1 and all(event.record.get("training") is False for event in outermost):
        return "the model"  # Itself it was not recorded: it was given to start(), or has no name.
    return said("the-model", plain_path(root.parts.path))


def _root(event: Event) -> Event:
    return list(event.around())[-1]
