"""Weights: one that differs, and a call that takes another one than in the reference."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from msprobe.compare.entry_names import writes_in_place
from msprobe.diagnose.differences.records import Difference, described
from msprobe.diagnose.differences.words import quoted
from msprobe.diagnose.effect.weights import weights_taken
from msprobe.diagnose.evidence import Listed, NamedFact, SeenFact
from msprobe.diagnose.findings import FindingKind
from msprobe.diagnose.origin.scene import Scene
from msprobe.diagnose.steps.parameter_names import plain_name
from msprobe.diagnose.steps.timeline import Event, is_tensor
from msprobe.diagnose.tolerance import tensor
from msprobe.diagnose.tolerance.judge import Judged
from msprobe.messages import said


def parameters_taken(scene: Scene, event: Event, difference: Difference) -> list[str]:
    """Which parameters a call may take, the likeliest first. Several may have the values of one, as when weights are
    tied on one side: then it is that of both sides, or of the module that the call runs in.
    """
    here, there = scene.parameters_in(difference)
    own = f"{event.module}."
    every = list(dict.fromkeys([*here, *there]))
    return sorted(every, key=lambda name: (not (name in here and name in there), not name.startswith(own)))


def is_written_in_step(scene: Scene, judged: Judged, difference: Difference) -> bool:
    """True if a call of this step wrote to what a module keeps, on both sides: a target network, an average of weights,
    a step of another optimizer. How far that is apart is asked of the call.
    """
    maker = scene.candidate.makers.of(difference.left, judged.event)
    other = scene.reference.makers.of(difference.right, judged.partner)
    if maker is None or other is None or scene.pairing.partner.get(maker) is not other:
        return False
    return maker.parts.kind == "optimizer" or writes_in_place(maker.stem)


def look_at_weight(scene: Scene, judged: Judged, difference: Difference, names: Sequence[str]) -> None:
    """A call takes a parameter, and it is not the same: does that parameter differ, or is it another one?"""
    known = scene.equal_weights
    differing = next((name for name in names if known.get(name) is False), None)
    here, there = scene.parameters_in(difference)
    another = all(known.get(name) for name in names)
    if set(here) & set(there):
        # The same parameter, from which a side has moved elements: statistics of it alone do not say their order.
        another &= scene.weights_in_order.issuperset(names)
    if differing is None and another and not scene.comparer.crossing:
        trains = any(is_tensor(leaf) and leaf.get("requires_grad") is True for _, leaf in judged.event.outputs())
        writes = writes_in_place(judged.event.stem)
        if (writes or not trains) and scene.tainted & {"forward", "backward", "gradient"}:
            return  # a gradient or a state that happens to look like a parameter
        if writes:
            blame_weight(scene, judged, difference, names[0])
        else:
            blame_another_weight(scene, judged, difference)
    else:
        blame_weight(scene, judged, difference, differing or names[0])


def blame_weight(scene: Scene, judged: Judged, difference: Difference, name: str) -> None:
    """Say that a parameter differs."""
    if name in scene.before.weights:
        return
    other = _other_name(scene, judged, difference)
    if (
        other is not None
        and name not in scene.parameter_names[1]
        and _shape(difference.left) != _shape(difference.right)
    ):
        scene.say(
            ("a different weight",),
            judged,
            "structure",
            said(
                "parameter-of-other-shape",
                difference.slot,
                judged.event.name,
                name,
                _shape(difference.left),
                other,
                _shape(difference.right),
            ),
            where=f"{judged.event.name}, {difference.slot}",
            facts=(NamedFact("candidate_takes", [name]), NamedFact("reference_takes", [other])),
        )
        return
    kind: FindingKind = "initial_weights" if scene.first_step else "weights"
    when = "before the first step" if scene.first_step else "at the beginning of this step"
    measured = scene.comparer.measured_inputs(judged.partner.name)
    source: tensor.DifferenceSource = "stored" if scene.first_step else "step_before"
    clear = tensor.is_another(difference, source, measured, by_rows=scene.by_rows_apart(difference))
    clear &= name not in scene.before.apart and not _is_averaged_unseen(scene, difference)
    is_unmoved = name in scene.before.unmoved
    scene.say(
        ("weight", name),
        judged,
        kind,
        said("parameter-differs", name, when, scene.how(difference, bound=scene.first_step)),
        where=name,
        # Equal statistics of other values: another order, unless a step before has rounded otherwise.
        clear=clear or is_unmoved or (difference.delta == 0.0 and scene.first_step and not measured),
        facts=(NamedFact("parameter", name), SeenFact(difference, bound=scene.first_step)),
        difference=difference,
        matters=is_unmoved,
    )


def _is_averaged_unseen(scene: Scene, difference: Difference) -> bool:
    """True if what is not trained may be made of weights whose gradients were as far apart, by calls that were not
    recorded: an average of them.
    """
    is_trained = not is_tensor(difference.left) or difference.left.get("requires_grad") is not False
    return not (is_trained or scene.has_calls) and difference.delta <= max(scene.before.apart.values(), default=0.0)


def _other_name(scene: Scene, judged: Judged, difference: Difference) -> str | None:
    """What the reference calls the parameter in a slot, where it says so."""
    if difference.slot.startswith("parameters."):
        return plain_name(judged.partner, difference.slot)
    return next(iter(scene.reference.makers.parameters(difference.right)), None)


def _shape(leaf: Any) -> list[int]:
    return list(leaf.get("shape") or []) if is_tensor(leaf) else []


def blame_another_weight(scene: Scene, judged: Judged, difference: Difference) -> None:
    """Say that a call takes another parameter than in the reference, or another tensor: both have the same parameters,
    so that one side leaves out calls, makes others, or makes them in another order.
    """
    event = judged.event
    here, there = scene.parameters_in(difference)
    if common := [name for name in here if name in there]:
        text = said("parameter-moved", difference.slot, event.name, common[0])
    else:
        text = said(
            "different-parameter-used",
            difference.slot,
            event.name,
            _named(here, difference.left),
            _named(there, difference.right),
        )
    taken, others = (weights_taken(side.timeline, side.makers) for side in scene.sides)
    unused, more = sorted(others - taken), sorted(taken - others)
    if unused:
        text += said("candidate-does-not-use", quoted(unused, 1))
    elif more:
        text += said("reference-does-not-use", quoted(more, 1))
    elif here and there:
        text += ", which both sides use: their calls run in a different order, or one uses the wrong parameter"
    scene.say(
        ("a different weight",),
        judged,
        "structure",
        said("parameters-themselves-agree", text),
        where=f"{event.name}, {difference.slot}",
        facts=(
            NamedFact("candidate_takes", here[:1]),
            NamedFact("reference_takes", there[:1]),
            Listed("missing", unused),
            Listed("extra", more),
        ),
    )


def _named(names: Sequence[str], leaf: object) -> str:
    return f'"{names[0]}"' if names else said("no-parameter", described(leaf))
