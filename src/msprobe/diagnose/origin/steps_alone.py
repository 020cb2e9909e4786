"""Steps of an optimizer that one side alone takes."""

from __future__ import annotations

from msprobe.compare.entry_names import plain_path, writes_in_place
from msprobe.diagnose.differences.words import named
from msprobe.diagnose.evidence import Because, Listed, NamedFact
from msprobe.diagnose.origin.ledger import Suspect
from msprobe.diagnose.origin.scene import Scene
from msprobe.diagnose.steps.links import Producers
from msprobe.diagnose.steps.optimizer import parameters_of
from msprobe.diagnose.steps.timeline import Event, Timeline
from msprobe.messages import said


def look_for_lone_steps(scene: Scene) -> None:
    """Suspect parameters that an optimizer of one side alone takes a step with.

    Both sides must have recorded the whole step in the same way. Whether the other side takes its step outside of what
    it recorded shows in the weights of the next one; between two frameworks in how far those moved (blame_movement).
    """
    if scene.comparer.crossing:
        return
    pairing = scene.pairing
    candidate, reference = pairing.candidate, pairing.reference
    if not _recorded_alike(candidate, reference):
        return
    for there, events, makers, side in (
        (reference, pairing.alone(), scene.other_makers, "candidate"),
        (candidate, pairing.missing(), scene.makers, "reference"),
    ):
        steps = [event for event in events if event.parts.kind == "optimizer" and not event.record.get("skipped")]
        theirs = [event for event in there if event.parts.kind == "optimizer"]
        stepped = {plain_path(name) for event in theirs for name in parameters_of(event)}
        names = [name for event in steps for name in parameters_of(event) if plain_path(name) not in stepped]
        if not names or not _trains(there) or _writes_to_weights(there, makers):
            continue
        if side == "reference":
            text = said(
                "optimizer-step-missing",
                _counted(names),
                named(steps),
            )
        else:
            text = said("optimizer-step-extra", named(steps), _counted(names))
        finding = scene.finding(
            steps[0],
            "optimizer",
            text,
            where=steps[0].name,
            facts=(Because("no_step"), NamedFact("only_in", side), Listed("parameters", names)),
        )
        scene.ledger.add(
            Suspect(finding, scene.place_of(steps[0]), clear=True, shows_later=said("steps-of-one-side", side))
        )


def _recorded_alike(timeline: Timeline, other: Timeline) -> bool:
    parts = timeline.part, other.part
    if not all(part.ours and part.complete for part in parts):
        return False
    return all(parts[0].header.get(key) == parts[1].header.get(key) for key in ("level", "task"))


def _trains(timeline: Timeline) -> bool:
    """True if a backward pass was recorded: an evaluation takes no step."""
    return any(event.direction in ("backward", "gradient") for event in timeline)


def _writes_to_weights(timeline: Timeline, makers: Producers) -> bool:
    """True if calls after the backward pass write to parameters: an optimizer written by hand."""
    backward = [event.index for event in timeline if event.direction == "backward"]
    end = backward[-1] if backward else -1
    return any(
        event.index > end and writes_in_place(event.stem) and _takes_weight(event, makers)
        for event in timeline
        if event.parts.kind == "api"
    )


def _takes_weight(event: Event, makers: Producers) -> bool:
    return any(makers.parameter(leaf) is not None for _, leaf in event.inputs())


def _counted(names: list[str]) -> str:
    shown = ", ".join(f'"{name}"' for name in names[:2])
    return shown if len(names) < 3 else said("and-more-parameters", shown, len(names) - 2)
