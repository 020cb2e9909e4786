"""Steps of an optimizer that one side alone takes."""

from __future__ import annotations

from msprobe.compare.entry_names import plain_path, writes_in_place
from msprobe.diagnose.differences.words import named
from msprobe.diagnose.evidence import Because, Listed, NamedFact
from msprobe.diagnose.origin.scene import Scene
from msprobe.diagnose.origin.sides import StepSide
from msprobe.diagnose.steps.optimizer import parameters_of
from msprobe.diagnose.steps.timeline import Timeline
from msprobe.messages import said


def look_for_lone_steps(scene: Scene) -> None:
    """Suspect parameters that an optimizer of one side alone takes a step with.

    Both sides must have recorded the whole step in the same way. Whether the other side takes its step outside of what
    it recorded shows in the weights of the next one; between two frameworks in how far those moved (blame_movement).
    """
    if scene.comparer.crossing:
        return
    if not _recorded_alike(scene.candidate.timeline, scene.reference.timeline):
        return
    for side, there in (scene.sides, scene.sides[::-1]):
        steps = [event for event in side.alone if event.parts.kind == "optimizer" and not event.record.get("skipped")]
        stepped = {plain_path(name) for event in there.timeline.optimizers for name in parameters_of(event)}
        names = [name for event in steps for name in parameters_of(event) if plain_path(name) not in stepped]
        if not names or not _trains(there.timeline) or _writes_to_weights(there):
            continue
        if side is scene.reference:
            text = said("optimizer-step-missing", _counted(names), named(steps))
        else:
            text = said("optimizer-step-extra", named(steps), _counted(names))
        facts = (Because("no_step"), NamedFact("only_in", side.name), Listed("parameters", names))
        later = said("steps-of-one-side", side.name)
        scene.add(steps[0], "optimizer", text, facts=facts, shows_later=later)


def _recorded_alike(timeline: Timeline, other: Timeline) -> bool:
    parts = timeline.part, other.part
    if not all(part.ours and part.complete for part in parts):
        return False
    return all(parts[0].header.get(key) == parts[1].header.get(key) for key in ("level", "task"))


def _trains(timeline: Timeline) -> bool:
    """True if a backward pass was recorded: an evaluation takes no step."""
    return any(event.direction in ("backward", "gradient") for event in timeline)


def _writes_to_weights(side: StepSide) -> bool:
    """True if calls after the backward pass write to parameters: an optimizer written by hand."""
    end = max((event.index for event in side.timeline if event.direction == "backward"), default=-1)
    return any(
        event.index > end
        and event.parts.kind == "api"
        and writes_in_place(event.stem)
        and any(side.makers.parameters(leaf) for _, leaf in event.inputs())
        for event in side.timeline
    )


def _counted(names: list[str]) -> str:
    shown = ", ".join(f'"{name}"' for name in names[:2])
    return shown if len(names) < 3 else said("and-more-parameters", shown, len(names) - 2)
