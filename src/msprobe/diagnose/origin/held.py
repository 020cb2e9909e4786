"""Tensors that a module holds itself: buffers, and tables that were made with it."""

from __future__ import annotations

from typing import Any

from msprobe.compare.entry_names import plain_path
from msprobe.diagnose.differences.records import Difference, fingerprint, statistics
from msprobe.diagnose.effect.states import ModuleState
from msprobe.diagnose.origin.scene import Scene
from msprobe.diagnose.steps.timeline import Event, is_tensor
from msprobe.diagnose.tolerance.judge import Judged
from msprobe.messages import Wording, said


def held_tensor(scene: Scene, judged: Judged, difference: Difference) -> ModuleState | None:
    """The state that a call takes, if it runs in a module, and on both sides no call made the tensor and no module
    around the call was given it: then the module has it from itself. None if it may come from elsewhere.
    """
    event = judged.event
    if not event.is_call or event.direction not in ("forward", "recompute") or scene.comparer.crossing:
        return None
    makers = scene.candidate.makers, scene.reference.makers
    if makers[0].of(difference.left, event) or makers[1].of(difference.right, judged.partner):
        return None
    sides = ((event, difference.left), (judged.partner, difference.right))
    if not all(is_tensor(leaf) and leaf.get("requires_grad") is not True for _, leaf in sides):
        return None
    if not all(_is_held(call, leaf) for call, leaf in sides):
        return None
    module, place = plain_path(event.module or ""), said("of-call", difference.slot, event.name)
    words = said("a-buffer-of-module", module, place)
    return ModuleState(difference.slot, Wording("{}, {}", module, place), sized=False, words=words)


def _is_held(call: Event, leaf: dict[str, Any]) -> bool:
    """True if no module around a call was given a tensor, as far as it is known what they were given."""
    given = (value for outer in call.around() for _, value in outer.inputs())
    in_module = call.parent is not None and call.parent.is_module
    return in_module and not any(_is_opaque(value) or _look(value) == _look(leaf) for value in given)


def _look(leaf: Any) -> Any:
    """What identifies a tensor, also one that has the same number everywhere; None for what is no tensor."""
    if not is_tensor(leaf):
        return None
    mark = fingerprint(leaf)
    return (leaf["dtype"], str(leaf.get("shape")), *map(str, statistics(leaf))) if mark is None else mark


def _is_opaque(leaf: Any) -> bool:
    """True for an object that may hold tensors which were not recorded."""
    return isinstance(leaf, dict) and not is_tensor(leaf) and "value" not in leaf
