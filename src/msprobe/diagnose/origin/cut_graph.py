"""What cuts the graph of the backward pass: a call whose result requires no gradient, or frozen parameters."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from msprobe.diagnose.differences.records import fingerprint, is_floating
from msprobe.diagnose.evidence import Because, because
from msprobe.diagnose.origin.scene import Scene
from msprobe.diagnose.steps.parameter_names import parameter_name
from msprobe.diagnose.steps.timeline import Event, Slot, is_tensor
from msprobe.messages import said

#: The most calls that are looked at on the way to what cuts.
_MOST_CALLS = 100


@dataclass(frozen=True)
class GraphCut:
    """``call``: takes what requires a gradient and gives what requires none; None if nothing that it is made from
    requires one: then ``frozen`` names the parameters that require one on the other side alone, where they are known.
    """

    call: Event | None
    frozen: tuple[str, ...] = ()


def find_cut(scene: Scene, event: Event) -> GraphCut | None:
    """What keeps gradients of the candidate from ``event``, a call of its forward pass that the reference has gradients
    for; None if no result at or behind it lacks them, or the reference alone makes what has them.
    """
    behind = _first_without(scene, event)
    return _led_back(scene, behind) if behind is not None else None


def frozen_parameters(scene: Scene, here: bool = True) -> list[str]:
    """The parameters that require no gradient on one side alone, as modules say. ``here``: it is the candidate."""
    names = {
        parameter_name(judged.event, parameter.slot): None
        for judged in scene.judged.values()
        for parameter in judged.parameters
        if parameter.what == "requires_grad" and parameter.left.get("requires_grad") is not here
    }
    return list(names)


def first_use(scene: Scene, parameters: Sequence[str]) -> int:
    """The place of the first pass of a module that has one of these parameters."""
    names = set(parameters)
    return min(
        call.event.index
        for call in scene.judged.values()
        for slot, _ in call.event.parameters()
        if parameter_name(call.event, slot) in names
    )


def frozen_in_words(scene: Scene, parameters: Sequence[str], here: bool = True) -> tuple[str, tuple[Because, ...]]:
    """That all these parameters require no gradient on one side alone; in words, and the cause."""
    if not parameters or not set(frozen_parameters(scene, here)).issuperset(parameters):
        return "", ()
    sides = ("candidate", "reference") if here else ("reference", "candidate")
    them = "it" if len(parameters) == 1 else "them"
    return said("requires-grad-differs", them, sides[0], sides[1]), because("frozen")


def _first_without(scene: Scene, event: Event) -> Event | None:
    """The first call, at or after ``event``, after which the candidate's values no longer require grad."""
    todo: list[Event] = [event]
    seen: set[Event] = set()
    while todo:
        at = todo.pop(0)
        if at in seen or len(seen) > _MOST_CALLS:
            break
        seen.add(at)
        for slot, leaf in at.outputs():
            if not is_floating(leaf):
                continue
            if leaf.get("requires_grad") is False:
                partner = scene.pairing.partner.get(at)
                if partner is None or _requires(slot, partner.outputs()):
                    return at
            mark = fingerprint(leaf)
            todo += (
                [user for user in scene.candidate.consumers.get(mark, []) if user.index > at.index][:20]
                if mark is not None
                else []
            )
    return None


def _led_back(scene: Scene, event: Event) -> GraphCut | None:
    """Where the gradient is lost that a result lacks: at ``event``, if it takes anything that requires one, else at a
    call before it; None where a call that the reference alone makes gives what requires one.
    """
    seen: set[Event] = set()
    at = event
    while at not in seen and len(seen) < _MOST_CALLS:
        seen.add(at)
        taken = [*at.inputs(), *at.parameters()]
        if any(is_floating(leaf) and leaf.get("requires_grad") is True for _, leaf in taken):
            return GraphCut(at)
        partner = scene.pairing.partner.get(at)
        if partner is None:
            return GraphCut(at)
        theirs = [*partner.inputs(), *partner.parameters()]
        lost = [leaf for slot, leaf in taken if is_floating(leaf) and _requires(slot, theirs)]
        if not lost:
            return GraphCut(at)
        if any(_is_made_alone(scene, partner, leaf) for slot, leaf in theirs if _lacks(slot, taken)):
            return None
        made_by = (scene.candidate.makers.of(leaf, at) for leaf in lost)
        makers = [maker for maker in made_by if maker is not None and maker not in seen]
        if not makers:
            known = frozen_parameters(scene)
            mine = {name for leaf in lost for name in scene.candidate.makers.parameters(leaf)}
            return GraphCut(None, tuple(known if mine & set(known) or not mine else sorted(mine)))
        at = makers[0]
    return GraphCut(event)


def _is_made_alone(scene: Scene, partner: Event, leaf: Any) -> bool:
    """True if what a call of the reference takes requires a gradient, and comes from a call that the reference alone
    makes.
    """
    if not (is_floating(leaf) and leaf.get("requires_grad") is True):
        return False
    return scene.reference.is_alone(scene.reference.makers.of(leaf, partner))


def _lacks(slot: str, slots: Sequence[Slot]) -> bool:
    """True if what stands in this slot requires no gradient."""
    return any(is_floating(leaf) and leaf.get("requires_grad") is False for name, leaf in slots if name == slot)


def _requires(slot: str, slots: Sequence[Slot]) -> bool:
    """True if what stands in this slot requires a gradient."""
    return any(is_tensor(leaf) and leaf.get("requires_grad") is True for name, leaf in slots if name == slot)
