"""Parameters that an optimizer holds and that it never gets a gradient for, though no call shows where it is lost."""

from __future__ import annotations

import re
from collections.abc import Iterable

from msprobe.compare.entry_names import plain_path
from msprobe.diagnose.check.history import without_gradient
from msprobe.diagnose.check.moment import CheckedStep
from msprobe.diagnose.check.values import distinct, floats
from msprobe.diagnose.differences.records import fingerprint
from msprobe.diagnose.differences.words import listed
from msprobe.diagnose.findings import Finding
from msprobe.diagnose.steps.optimizer import parameters_of
from msprobe.diagnose.steps.timeline import Event, Timeline
from msprobe.messages import said

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
                yield _finding(moment, event, group, harmless)


def _finding(moment: CheckedStep, event: Event, modules: dict[str, list[str]], harmless: bool) -> Finding:
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
