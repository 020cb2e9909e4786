"""Both sides make the same call with another argument."""

from __future__ import annotations

import math

from msprobe.compare.entry_names import operation
from msprobe.diagnose import operators
from msprobe.diagnose.differences.records import fingerprint, numel
from msprobe.diagnose.effect.arrival import common_factor
from msprobe.diagnose.effect.results import scalar_of
from msprobe.diagnose.effect.states import changes_state
from msprobe.diagnose.evidence import OtherArguments, ResultFact
from msprobe.diagnose.findings import FindingKind
from msprobe.diagnose.origin.scene import Scene
from msprobe.diagnose.steps.argument_names import argument_name, argument_word
from msprobe.diagnose.steps.timeline import is_tensor
from msprobe.diagnose.tolerance.judge import Judged
from msprobe.messages import joined, said

#: Calls whose other arguments say how something is stored, not what is computed.
_QUIET = operators.MOVES - operators.MOVES_WITH_SETTINGS | operators.CASTS | operators.IDLE


def blame_argument(scene: Scene, judged: Judged, clear: bool = True, shows_later: bool = False) -> None:
    """Say which arguments differ. ``clear``: the result differs by it; ``shows_later``: what it changes is a state,
    which is recorded in the next step.
    """
    event = judged.event
    parts = [
        said("argument-is", argument_name(event, argument.slot), *argument.in_words) for argument in judged.arguments
    ]
    kind: FindingKind = "argument"
    if len(parts) == 1:
        text = said("argument-differs", event.name, *parts[0].values)
    else:
        text = said("arguments-differ", event.name, joined("; ", parts))
    if event in scene.pairing.loose and event.stem != judged.partner.stem:
        # Not the same call: the pair was only for what both compute.
        kind = "structure"
        text = said("replaced-call-with-other-arguments", event.name, judged.partner.name, joined("; ", parts))
    if shows_later:
        text += ": its result is the same, and the running averages that it keeps for evaluation are not"
    scene.say(
        ("argument", event),
        judged,
        kind,
        text,
        where=f"{event.name}, {argument_name(event, judged.arguments[0].slot)}",
        clear=clear,
        matters=matters(scene, judged),
        facts=(
            OtherArguments(
                tuple(judged.arguments), tuple(argument_word(event, argument.slot) for argument in judged.arguments)
            ),
            ResultFact(judged.output_difference, math.inf if _is_open(scene, judged) else judged.allowed),
        ),
        shows_later=said("arguments-in-module", event.stem, event.module) if shows_later else "",
    )


def _is_open(scene: Scene, judged: Judged) -> bool:
    """True if how far the result is apart says nothing: given tensors of another shape, anything may come out of it,
    and a factor of the loss is taken from the gradients before anything uses these.
    """
    if judged.takes_another_shape:
        return True
    is_factor = scalar_of(judged.event) is not None and common_factor(judged.changed_outputs) is not None
    return is_factor and scene.arrival.clean


def matters(scene: Scene, judged: Judged) -> bool:
    """True if the result counts though its effect is not seen: clipping and the optimizer may hide what is done to
    gradients, or show it later.
    """
    if judged.output_difference <= judged.allowed:
        return False
    if scene.is_blind:
        return True
    return in_update(scene, judged) and not (
        scene.arrival.undo(judged.output_difference) or is_swallowed(scene, judged)
    )


def in_update(scene: Scene, judged: Judged) -> bool:
    """True for a call after a backward pass whose results take part in no other: it works on gradients or weights."""
    event = judged.event
    if "backward" not in scene.seen or event.direction not in ("forward", "optimizer") or event.module is not None:
        return False  # in a module it belongs to the next micro-batch
    return not any(is_tensor(leaf) and leaf.get("requires_grad") is True for _, leaf in event.outputs())


def is_swallowed(scene: Scene, judged: Judged) -> bool:
    """True if a number that differs goes nowhere: what takes it gives the same result, and no tensor of more elements
    differs by it. So it is with the coefficient of a clipping that neither side's gradients reach.
    """
    todo, seen = [judged], {judged.event}
    while todo:
        for difference in todo.pop().changed_outputs:
            mark = fingerprint(difference.left)
            if mark is None or not is_tensor(difference.left) or numel(difference.left) > 1:
                return False
            for user in scene.candidate.consumers.get(mark, ()):
                judged_user = scene.judged.get(user)
                if judged_user is None:
                    return False
                if user not in seen:
                    seen.add(user)
                    todo.append(judged_user)
    return len(seen) > 1


def is_informative(judged: Judged) -> bool:
    """True if other arguments are worth reporting although the result is the same: not those of shapes and copies."""
    event = judged.event
    if event.parts.kind != "api" or operation(event.stem) in _QUIET:
        return False
    return any(not is_tensor(argument.left) and not is_tensor(argument.right) for argument in judged.arguments)


#: So many other arguments are reported that the results do not show.
_MOST_SILENT = 10


def look_at_silent_arguments(scene: Scene) -> None:
    """Report calls with another argument that gave the same result."""
    for judged in scene.silent[:_MOST_SILENT]:
        if is_informative(judged):
            blame_argument(scene, judged, clear=False, shows_later=changes_state(judged.event))
