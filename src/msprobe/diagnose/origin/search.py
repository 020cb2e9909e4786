"""Where the difference of one step of one rank begins.

All pairs are gone through in the candidate's order of execution. A pair whose inputs differ is led back to the
call that made them: if that call differs itself, the pair is a victim. What is left are origins: inputs that come from
outside, calls that one side alone makes, other arguments, and results that their inputs do not explain.
"""

from __future__ import annotations

from msprobe.diagnose.effect.states import changes_state
from msprobe.diagnose.origin.argument import blame_argument, tells_something
from msprobe.diagnose.origin.beginning import settle_beginnings, silent_cause
from msprobe.diagnose.origin.gradients import look_for_missing_gradients
from msprobe.diagnose.origin.inputs import look_at_dtype, look_at_input
from msprobe.diagnose.origin.leftovers import look_for_leftovers
from msprobe.diagnose.origin.movements import look_at_movements
from msprobe.diagnose.origin.optimizer_step import look_at_optimizer, look_at_settings_of
from msprobe.diagnose.origin.results import (
    behind_equal_statistics,
    blame_layout,
    blame_result,
    blame_type,
    look_behind_statistics,
)
from msprobe.diagnose.origin.scene import Scene, Suspect
from msprobe.diagnose.origin.steps_alone import look_for_lone_steps
from msprobe.diagnose.origin.structure import look_for_lone_calls
from msprobe.diagnose.origin.writes import look_for_lone_writes
from msprobe.diagnose.tolerance.judge import Judged, is_random
from msprobe.diagnose.verdict.recordings import look_for_errors


def search(scene: Scene) -> list[Suspect]:
    """All suspects, in the order in which things happened."""
    look_at_movements(scene)
    for event in scene.pairing.candidate:
        judged = scene.judged.get(event)
        scene.seen.add(event.direction)
        if judged is None:
            continue
        if event.parts.kind == "optimizer":
            look_at_optimizer(scene, judged)
        elif event.direction == "optimizer":
            look_at_settings_of(scene, event)
            look_at(scene, judged)
        else:
            look_at(scene, judged)
        if scene.taints(judged):
            scene.tainted.add(event.direction)
        scene.touch(judged)
        scene.most_apart = max(scene.most_apart, judged.arrived, judged.left)
    touched = not scene.untouched
    scene.untouched = False
    if touched:
        settle_beginnings(scene)
    look_for_leftovers(scene)
    look_for_errors(scene)
    look_for_missing_gradients(scene)
    look_for_lone_writes(scene)
    look_for_lone_steps(scene)
    look_for_lone_calls(scene)
    for judged in scene.silent[:10]:
        if tells_something(judged):
            blame_argument(scene, judged, clear=False, shows_later=changes_state(judged.event))
    scene.untouched = not touched
    scene.suspects.sort(key=lambda suspect: suspect.place)
    return scene.suspects


def look_at(scene: Scene, judged: Judged) -> None:
    """Find out whose fault it is that a pair differs, if that is not known yet."""
    event = judged.event
    for difference in [*judged.inputs, *judged.parameters]:
        if difference.what in ("value", "not_finite"):
            look_at_input(scene, judged, difference)
        elif difference.what == "dtype" and not scene.is_policy(difference):
            look_at_dtype(scene, judged, difference)
    changed = judged.changed_outputs
    types = [one for one in judged.outputs if one.what == "dtype" and not scene.is_policy(one)]
    if judged.arguments and (changed or types or not scene.has_values):
        if not (event.is_module and not event.layer and scene.has_calls):
            blame_argument(scene, judged)
        return
    if judged.arguments:
        scene.silent.append(judged)
    if types and not any(one.what == "dtype" for one in judged.inputs) and not event.is_module:
        blame_type(scene, judged, types[0])
        return
    if event.is_module and scene.children_differ(event):
        return
    layouts = [one for one in judged.inputs if one.what == "layout"]
    if not changed:
        return
    silent = silent_cause(scene, judged)
    if silent is not None and tells_something(silent):
        blame_argument(scene, silent)
        return
    if judged.status == "guilty":
        ordered = behind_equal_statistics(scene, judged) if judged.changed_inputs else None
        if layouts and not judged.changed_inputs and (is_random(event) or judged.left > 1e-3):
            blame_layout(scene, judged, layouts[0])
        elif ordered is not None:
            scene.take_back(("result", ordered.event))
            blame_result(scene, ordered)
        elif not look_behind_statistics(scene, judged):
            blame_result(scene, judged)
    elif judged.status == "rounding" and not scene.comparer.crossing:
        blame_result(scene, judged, clear=scene.reproduces(judged), matters=True)
