"""Parameters that get no gradient although they take part in training."""

from __future__ import annotations

import re
from collections.abc import Hashable, Iterable

from msprobe.compare.entry_names import operation, plain_path
from msprobe.diagnose import operators
from msprobe.diagnose.check.history import without_gradient
from msprobe.diagnose.check.moment import CheckedStep
from msprobe.diagnose.check.values import distinct, floats, in_its_model, measured
from msprobe.diagnose.differences.records import fingerprint
from msprobe.diagnose.differences.words import listed
from msprobe.diagnose.findings import Finding
from msprobe.diagnose.steps.optimizer import parameters_of
from msprobe.diagnose.steps.timeline import Event, Timeline
from msprobe.messages import said


def check(moment: CheckedStep) -> Iterable[Finding]:
    """The place at which the graph is cut, with the parameters before it; or each module alone, if none is seen. Then
    what an optimizer holds and never gets a gradient for.
    """
    yield from _cut_off(moment)
    yield from cleared_before_step(moment)
    yield from never_called(moment)


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


#: How the recorder names what no module of the recorded models has.
_OF_NO_MODULE = re.compile(r"(^|\.)g\d+\.p\d+$")


def cleared_before_step(moment: CheckedStep) -> Iterable[Finding]:
    """Steps of optimizers that find no gradient at all, though the backward pass made some for their parameters."""
    gradients = moment.gradients
    for event in moment.optimizer_steps:
        held = {plain_path(name) for name in parameters_of(event)}
        made = [name for name in held if any(leaf is not None for leaf in gradients.get(name, ()))]
        if event.record.get("skipped") or event.record.get("closure") or not made:
            continue
        if all(isinstance(f, dict) and "grad" in f and f["grad"] is None for f in parameters_of(event).values()):
            yield moment.finding(
                event,
                "missing_gradient",
                said("gradients-cleared-before-step", len(held), event.name, len(made)),
                evidence={"parameters": sorted(made)[:50], "count": len(made)},
            )


def never_called(moment: CheckedStep) -> Iterable[Finding]:
    """Modules that were called in no recorded step, by the parameters that an optimizer holds; at the last step.

    One layer of a stack that is left out in each step matters. Other modules may wait for their turn: experts, heads.
    """
    history = moment.history
    if not moment.last or not moment.weights:
        return
    for event in moment.optimizer_steps:
        names = [
            name
            for name in _in_place(event, without_gradient(event))
            if not {name, name.partition(".")[2]} & (history.reached | history.used)  # of one of several models
            and not _OF_NO_MODULE.search(name)
        ]
        modules: dict[str, list[str]] = {}
        for name in names:
            modules.setdefault(_outermost(name, history.used), []).append(name)
        stacked = {path: names for path, names in modules.items() if _is_left_out(moment, path)}
        others = {path: names for path, names in modules.items() if path not in stacked}
        for group, harmless in ((stacked, False), (others, True)):
            if group:
                yield _never_called_finding(moment, event, group, harmless)


def _never_called_finding(moment: CheckedStep, event: Event, modules: dict[str, list[str]], harmless: bool) -> Finding:
    names = [name for names in modules.values() for name in names]
    steps = len(moment.history.called)
    count = said("parameters", len(names)) if len(names) > 1 else "1 parameter"
    how = "was" if len(modules) == 1 else "were"
    why = "" if harmless else ", while the layers before and after it in the same stack were"
    return moment.finding(
        event,
        "missing_gradient",
        said(
            "modules-never-called",
            listed(list(modules)),
            how,
            "the recorded step" if steps == 1 else said("any-of-steps", steps),
            why,
            count,
            "it" if len(modules) == 1 else "them",
        ),
        where=f"{event.name}: {names[0]}",
        evidence={"modules": list(modules)[:50], "parameters": names[:50], "count": len(names)},
        harmless=harmless,
    )


def _in_place(event: Event, names: set[str]) -> list[str]:
    """Parameters in the order of their optimizer."""
    return [name for name in map(plain_path, parameters_of(event)) if name in names]


def _outermost(name: str, used: set[str]) -> str:
    """The outermost module around a parameter of which nothing was called."""
    parts = name.split(".")
    for depth in range(1, len(parts)):
        head = ".".join(parts[:depth])
        if not any(other.startswith(f"{head}.") for other in used):
            return head
    return name.rpartition(".")[0] or name


def _is_left_out(moment: CheckedStep, path: str) -> bool:
    """True for a layer of a stack that every one of several steps leaves out in the same way: what the layer before it
    makes goes to the layer behind it.
    """
    stack, dot, number = path.rpartition(".")
    calls = moment.history.called
    if not number.isdigit() or len(calls) < 2:
        return False
    # Where layers are left out at random, another one is missing in each step.
    layers = [{_layer(name, stack + dot) for name in called} - {None} for called in calls]
    if any(layer != layers[0] for layer in layers):
        return False
    known = sorted(number for number in layers[0] if number is not None)
    before, behind = [n for n in known if n < int(number)], [n for n in known if n > int(number)]
    if not before or not behind:
        return False
    made = {fingerprint(leaf) for leaf in _of(moment.timeline, f"{stack}{dot}{before[-1]}", results=True)}
    return any(fingerprint(leaf) in made for leaf in _of(moment.timeline, f"{stack}{dot}{behind[0]}", results=False))


def _layer(name: str, head: str) -> int | None:
    """The number of the layer that a module is, or is in. ``head``: what the names of all layers begin with."""
    if not name.startswith(head):
        return None
    number = name.removeprefix(head).partition(".")[0]
    return int(number) if number.isdigit() else None


def _of(timeline: Timeline, path: str, results: bool) -> list[dict[str, object]]:
    """What a module takes, or makes, in its forward passes."""
    return [
        leaf
        for event in timeline
        if event.is_module and event.direction == "forward" and plain_path(event.parts.path) == path
        for leaf in floats(event.outputs() if results else event.inputs())
        if distinct(leaf)
    ]
