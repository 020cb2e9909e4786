"""Where the difference of one step of one rank begins.

All pairs are gone through in the candidate's order of execution. A pair whose inputs differ is led back to the
call that made them: if that call differs itself, the pair is explained. What is left are origins: inputs that come from
outside, calls that one side alone makes, other arguments, and results that their inputs do not explain.
"""

from __future__ import annotations

from collections.abc import Callable

from msprobe.diagnose.origin.argument import blame_argument, is_informative, look_at_silent_arguments
from msprobe.diagnose.origin.around_step import look_for_writes_around_step
from msprobe.diagnose.origin.beginning import settle_beginnings, silent_cause
from msprobe.diagnose.origin.broadcast import look_at_broadcast
from msprobe.diagnose.origin.choices import look_for_tokens
from msprobe.diagnose.origin.detached import look_for_detached
from msprobe.diagnose.origin.ends_alone import look_for_lone_ends
from msprobe.diagnose.origin.gradients import look_for_missing_gradients
from msprobe.diagnose.origin.gradients_taken import look_for_leftovers
from msprobe.diagnose.origin.inputs import look_at_dtype, look_at_input
from msprobe.diagnose.origin.ledger import Suspect
from msprobe.diagnose.origin.movements import look_at_movements
from msprobe.diagnose.origin.optimizer_step import look_at_optimizer, look_at_settings_of
from msprobe.diagnose.origin.recomputed import look_for_changed_recomputation
from msprobe.diagnose.origin.results import (
    behind_equal_statistics,
    blame_layout,
    blame_result,
    blame_type,
    look_behind_statistics,
)
from msprobe.diagnose.origin.returned import blame_return
from msprobe.diagnose.origin.scaled_clipping import look_for_scaled_clipping
from msprobe.diagnose.origin.scene import Scene
from msprobe.diagnose.origin.steps_alone import look_for_lone_steps
from msprobe.diagnose.origin.structure import look_for_lone_calls, look_for_lone_gradients
from msprobe.diagnose.origin.whole_numbers import look_for_rounded_numbers
from msprobe.diagnose.origin.writes import look_for_lone_writes
from msprobe.diagnose.steps.randomness import is_random
from msprobe.diagnose.tolerance.elements import mark_corrupted
from msprobe.diagnose.tolerance.judge import Judged
from msprobe.diagnose.verdict.recordings import look_for_errors

#: A look at a whole step, before or after its pairs are gone through in order.
Pass = Callable[[Scene], None]

BEFORE: tuple[Pass, ...] = (
    # Gradients that one side clips before it unscales them.
    look_for_scaled_clipping,
    # Weights that the step before moved otherwise, between two frameworks.
    look_at_movements,
)
#: The order counts: each may look at what those before it have said.
AFTER: tuple[Pass, ...] = (
    # Gradients of the step before that nothing cleared.
    look_for_leftovers,
    # A call that raised an error on one side.
    look_for_errors,
    # What a recomputation begins with, written to.
    look_for_changed_recomputation,
    # Branches that one side cuts off from the backward pass.
    look_for_detached,
    # Gradients that arrive on one side only.
    look_for_missing_gradients,
    # Writes of both sides, of which one makes them too late.
    look_for_writes_around_step,
    # Writes of one side to what outlives the step.
    look_for_lone_writes,
    # A loss that both sides compute by other calls, between two frameworks.
    look_for_lone_ends,
    # Optimizers that step on one side only.
    look_for_lone_steps,
    # Calls of one side, where values were not recorded.
    look_for_lone_calls,
    # Calls of one side that give nothing else, and have a gradient.
    look_for_lone_gradients,
    # Whole numbers in a type that cannot hold them, on one side.
    look_for_rounded_numbers,
    # A token that rounding chose otherwise.
    look_for_tokens,
    # Other arguments that the results do not show.
    look_at_silent_arguments,
)

#: Beyond this, relative, no rounding explains what a call gives of equal tensors that are stored otherwise.
_MORE_THAN_ROUNDING = 1e-3


def search(scene: Scene) -> list[Suspect]:
    """All suspects, in the order in which things happened."""
    for look in BEFORE:
        look(scene)
    for event in scene.pairing.candidate:
        scene.seen.add(event.direction)
        judged = scene.judged.get(event)
        if judged is not None:
            if event.parts.kind == "optimizer":
                look_at_optimizer(scene, judged)
            else:
                if event.direction == "optimizer":
                    look_at_settings_of(scene, event)
                look_at(scene, judged)
            scene.pass_by(judged)
    touched = not scene.untouched
    scene.untouched = False
    if touched or scene.isolated:
        settle_beginnings(scene)
    for look in AFTER:
        look(scene)
    scene.untouched = not touched
    return scene.ledger.in_order()


def look_at(scene: Scene, judged: Judged) -> None:
    """Find out whose fault it is that a pair differs, if that is not known yet."""
    event = judged.event
    for difference in [*judged.inputs, *judged.parameters]:
        if difference.what in ("value", "not_finite"):
            look_at_input(scene, judged, difference)
        elif difference.what == "dtype" and not scene.is_policy(difference):
            look_at_dtype(scene, judged, difference)
    look_at_broadcast(scene, judged)
    changed = judged.changed_outputs
    types = [
        output
        for output in judged.outputs
        if output.what == "dtype" and not scene.is_policy(output) and not scene.is_type_of_its_tensor(judged, output)
    ]
    # Where each call gets what the reference's has, another shape begins here.
    shapes = scene.isolated and any(output.what == "shape" for output in judged.outputs)
    if judged.arguments and (changed or types or shapes or not scene.has_values):
        inside = event.is_module and not event.layer and scene.has_calls
        if not inside:
            blame_argument(scene, judged)
        return
    if judged.arguments:
        scene.silent.append(judged)
    if (
        types
        and not any(input_difference.what == "dtype" for input_difference in judged.inputs)
        and not event.is_module
    ):
        blame_type(scene, judged, types[0])
        return
    if event.is_module and scene.children_differ(event):
        return
    layouts = [input_difference for input_difference in judged.inputs if input_difference.what == "layout"]
    if not changed:
        return
    moved = next((difference for difference in judged.inputs if difference.what == "shape"), None)
    if moved is not None and not judged.changed_inputs and all(difference.delta == 0.0 for difference in changed):
        # The same elements, which one side alone has moved: the result has them in another order.
        look_at_input(scene, judged, moved)
        return
    silent = silent_cause(scene, judged)
    if silent is not None and is_informative(silent):
        blame_argument(scene, silent)
        return
    if not scene.comparer.crossing:
        mark_corrupted(judged, scene.comparer)
    if judged.status == "unexplained":
        ordered = behind_equal_statistics(scene, judged) if judged.changed_inputs else None
        moved_otherwise = not judged.changed_inputs and judged.output_difference > _MORE_THAN_ROUNDING
        if layouts and (is_random(event) or moved_otherwise):
            blame_layout(scene, judged, layouts[0])
        elif ordered is not None:
            scene.ledger.take_back(("result", ordered.event))
            blame_result(scene, ordered)
        elif not blame_return(scene, judged) and not look_behind_statistics(scene, judged):
            blame_result(scene, judged)
    elif judged.status == "rounding" and not scene.comparer.crossing:
        blame_result(scene, judged, clear=scene.reproduces(judged), matters=True)
