"""Steps of an optimizer that one side alone takes."""

from __future__ import annotations

from collections import Counter

from msprobe.compare.entry_names import plain_path, writes_in_place
from msprobe.diagnose.differences.words import named
from msprobe.diagnose.evidence import Because, Cause, Listed, NamedFact
from msprobe.diagnose.origin.scene import Scene
from msprobe.diagnose.origin.sides import StepSide
from msprobe.diagnose.steps.optimizer import parameters_of
from msprobe.diagnose.steps.timeline import Event, Timeline, is_tensor
from msprobe.messages import said


def look_for_lone_steps(scene: Scene) -> None:
    """Suspect parameters that optimizers of one side take a step with, and those of the other do not, or less often.

    Both sides must have recorded the whole step in the same way. Whether the other side takes its step outside of what
    it recorded shows in the weights of the next one; between two frameworks in how far those moved (blame_movement).
    """
    if scene.comparer.crossing:
        return
    if not _recorded_alike(scene.candidate.timeline, scene.reference.timeline):
        return
    for side, there in (scene.sides, scene.sides[::-1]):
        steps = [event for event in side.alone if event.parts.kind == "optimizer" and not event.record.get("skipped")]
        mine, others = _steps_by_name(side.timeline), _steps_by_name(there.timeline)
        names = [
            name for event in steps for name in _updated(event) if mine[plain_path(name)] > others[plain_path(name)]
        ]
        if not names or not _trains(there.timeline) or _writes_to_weights(there):
            continue
        # One side updates these once more, whatever the other calls them.
        again = all(others[plain_path(name)] or mine[plain_path(name)] > 1 for name in names)
        if again:
            text = said("optimizer-step-again", named(steps), side.name, _counted(names))
        elif side is scene.reference:
            text = said("optimizer-step-missing", _counted(names), named(steps))
        else:
            text = said("optimizer-step-extra", named(steps), _counted(names))
        cause: Cause = "step_again" if again else "no_step"
        facts = (Because(cause), NamedFact("only_in", side.name), Listed("parameters", list(dict.fromkeys(names))))
        later = said("steps-of-one-side", side.name)
        scene.add(steps[0], "optimizer", text, facts=facts, matters=again, shows_later="" if again else later)


def _updated(event: Event) -> list[str]:
    """The parameters that a step of an optimizer updates: those that have a gradient, where gradients were recorded."""
    parameters = parameters_of(event)
    updated = [name for name, fields in parameters.items() if is_tensor(fields.get("grad"))]
    return updated or list(parameters)


def _steps_by_name(timeline: Timeline) -> Counter[str]:
    """How many steps update each parameter, by its plain name."""
    steps = (event for event in timeline.optimizers if not event.record.get("skipped"))
    return Counter(plain_path(name) for event in steps for name in _updated(event))


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
