"""Parameters that get no gradient although they take part in training."""

from __future__ import annotations

from collections.abc import Hashable, Iterable

from msprobe.compare.entry_names import operation, plain_path
from msprobe.diagnose import operators
from msprobe.diagnose.check import idle
from msprobe.diagnose.check.history import without_gradient
from msprobe.diagnose.check.moment import CheckedStep
from msprobe.diagnose.check.values import floats, in_its_model, measured
from msprobe.diagnose.differences.records import fingerprint
from msprobe.diagnose.differences.words import listed
from msprobe.diagnose.findings import Finding
from msprobe.diagnose.steps.timeline import Event, Timeline
from msprobe.messages import said


def check(moment: CheckedStep) -> Iterable[Finding]:
    """The place at which the graph is cut, with the parameters before it; or each module alone, if none is seen. Then
    what an optimizer holds and never gets a gradient for.
    """
    yield from _cut_off(moment)
    yield from idle.cleared_before_step(moment)
    yield from idle.never_called(moment)


def _cut_off(moment: CheckedStep) -> Iterable[Finding]:
    gradients = moment.gradients
    if not any(leaf is not None for passes in gradients.values() for leaf in passes):
        return
    lost = {
        name: weight.event
        for name, weight in moment.weights.items()
        if weight.leaf.get("requires_grad")
        and weight.event.record.get("training") is not False
        and not any(leaf is not None for leaf in gradients.get(name, ()))
    }
    # A schedule may compute gradients of weights later, by calls of its own.
    arrived = moment.at_optimizer
    got = {
        name
        for name in lost
        if any(arrived.get(name_known, {}).get("Norm") for name_known in (name, in_its_model(name)))
    }
    lost = {name: event for name, event in lost.items() if name not in got}
    if lost:
        users = _users(moment.timeline)
        lost = {name: event for name, event in lost.items() if _takes_part(users, event)}
    # A single parameter of a module that is reached is no cut.
    reached = {name.rpartition(".")[0] for name, passes in gradients.items() if any(passes)}
    lost = {name: event for name, event in lost.items() if name.rpartition(".")[0] not in reached}
    if lost:
        holder = _holder(moment, lost)
        yield from _finding(moment, lost, holder, meant=holder is None and not _among(lost, reached))


def _holder(moment: CheckedStep, lost: dict[str, Event]) -> Event | None:
    """The optimizer that takes its step although these parameters of its own have no gradient: it is to train them."""
    for event in moment.optimizer_steps:
        if not event.record.get("skipped") and without_gradient(event) & set(lost):
            return event
    return None


def _among(lost: dict[str, Event], reached: set[str]) -> bool:
    """True if lost and reached modules stand in one module below the root.

    A whole model, or a whole half of one, without gradients is meant, as a rule: a generator while its critic learns,
    features under a probe. Not so if an optimizer takes its step with them.
    """
    heads: set[str] = set()
    for name in lost:
        parts = name.split(".")
        heads.update(".".join(parts[:depth]) for depth in range(1, len(parts) - 1))
    heads = {head for head in heads if not head.isdigit()}
    return any(other == head or other.startswith(f"{head}.") for head in heads for other in reached)


def _users(timeline: Timeline) -> dict[Hashable, list[Event]]:
    """The forward calls that take a tensor."""
    users: dict[Hashable, list[Event]] = {}
    for event in timeline:
        if event.direction == "forward":
            for leaf in floats(event.inputs()):
                users.setdefault(fingerprint(leaf), []).append(event)
    return users


def _takes_part(users: dict[Hashable, list[Event]], module: Event) -> bool:
    """True if a module's result goes on (a branch that nobody uses gets no gradient, rightly)."""
    if any("error" in event.record for event in (module, *module.around())):
        return False
    marks = {fingerprint(leaf) for leaf in floats(module.outputs())} - {None}
    return any(
        event.index > module.index and event not in module.around() for mark in marks for event in users.get(mark, ())
    )


def _finding(moment: CheckedStep, lost: dict[str, Event], holder: Event | None, meant: bool) -> Iterable[Finding]:
    names = list(lost)
    held = said("though-optimizer-holds-them", holder.name) if holder is not None else ""
    cut = _cut(moment.timeline, lost)
    if cut is not None:
        how = "is detached" if operation(cut.stem) == "detach" else "loses its gradient"
        what = floats(cut.inputs())[0]
        yield moment.finding(
            cut,
            "missing_gradient",
            said("graph-cut", len(names), listed(names), how, cut.name, held),
            evidence={"parameters": names[:50], "count": len(names), "input": measured(what)},
            alternatives=(lost[names[-1]].name,),
            harmless=meant,
        )
        return
    first = min(lost.values(), key=lambda event: event.index)
    without = [leaf for leaf in floats(first.outputs()) if not leaf.get("requires_grad")]
    why = "; the result of the first of them has requires_grad=False, it ran without autograd" if without else ""
    yield moment.finding(
        first,
        "missing_gradient",
        said("no-gradient", len(names), listed(names), why, held),
        where=f"{plain_path(first.parts.path)}",
        evidence={"parameters": names[:50], "count": len(names)},
        harmless=meant,
    )


def _cut(timeline: Timeline, lost: dict[str, Event]) -> Event | None:
    """The call that ends the graph after the last of the modules: takes what has a gradient, gives what has none."""
    first = min(event.index for event in lost.values())
    results_of = _results(lost)
    for event in timeline:
        if event.index <= first or event.direction != "forward" or event.parts.kind != "api":
            continue
        given, results = floats(event.inputs()), floats(event.outputs())
        if (
            given
            and results
            and operation(event.stem) in operators.LOOKS_AT
            and given[0].get("requires_grad")
            and not any(leaf.get("requires_grad") for leaf in results)
            and fingerprint(given[0]) in results_of
        ):
            return event
    return None


def _results(lost: dict[str, Event]) -> set[Hashable]:
    """What distinguishes the results of these modules, and of the modules around them, from other tensors."""
    modules = {module for event in lost.values() for module in (event, *event.around())}
    return {fingerprint(leaf) for module in modules for leaf in floats(module.outputs())} - {None}
