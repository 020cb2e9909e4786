"""The step of the optimizer: settings, members, states, result."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from msprobe.diagnose.differences.words import quoted, settings_in_words
from msprobe.diagnose.effect.in_parts import are_in_parts
from msprobe.diagnose.effect.weights import are_arranged_otherwise
from msprobe.diagnose.evidence import Because, Cause, Listed, NamedFact, SeenFact, Setting, because
from msprobe.diagnose.origin.calls_alone import blame_calls
from msprobe.diagnose.origin.gradients_taken import say_not_cleared
from msprobe.diagnose.origin.scaled_clipping import names_the_scale
from msprobe.diagnose.origin.scene import Scene
from msprobe.diagnose.origin.weight import blame_weight
from msprobe.diagnose.steps import optimizer
from msprobe.diagnose.steps.parameter_names import parameter_name
from msprobe.diagnose.steps.timeline import Event, is_tensor
from msprobe.diagnose.tolerance import frameworks, tensor
from msprobe.diagnose.tolerance.judge import Judged
from msprobe.diagnose.tolerance.units import is_coarse
from msprobe.messages import Wording, joined, said


def look_at_settings_of(scene: Scene, event: Event) -> None:
    """The settings of the optimizer that a call belongs to, before the call is blamed."""
    whole = scene.pairing.candidate.optimizer_after(event)
    if whole is not None and whole in scene.judged and not scene.ledger.knows(("settings", whole)):
        scene.ledger.close(("settings", whole))
        first = event.index
        while first and scene.pairing.candidate.events[first - 1].direction == "optimizer":
            first -= 1
        compare_settings(scene, scene.judged[whole], first - 0.75)


def compare_settings(scene: Scene, judged: Judged, place: float) -> None:
    event, partner = judged.event, judged.partner
    ours, other = optimizer.parameters_of(event), optimizer.parameters_of(partner)
    if event.parts.owner != partner.parts.owner:
        scene.say(
            ("class", event),
            judged,
            "optimizer",
            said("optimizer-class-differs", event.parts.owner, partner.parts.owner),
            facts=(Because("class"), Setting(event.record.get("class"), partner.record.get("class"))),
            place=place,
            matters=not _steps_alike(scene, judged),
        )
    in_parts = are_in_parts(scene.pairing, ours, other)
    for key, changes in optimizer.changed_settings(event, partner, scene.comparer.crossing, in_parts).items():
        name, left, right = changes[0]
        shown = settings_in_words(left, right)
        everyone = "all parameters" if len(changes) >= len(ours) else quoted([item[0] for item in changes])
        scene.say(
            ("setting", event, key),
            judged,
            "optimizer",
            said("optimizer-setting-differs", event.name, key, shown[0], shown[1], everyone)
            + (said("ratio", _ratio(left, right)) if _ratio(left, right) else ""),
            where=said("field-of-parameter", event.name, key, name),
            facts=(Setting(left, right, key), Listed("parameters", [item[0] for item in changes])),
            place=place,
            matters=True,
        )
    _compare_members(scene, judged, ours, other, place)
    compare_states(scene, judged, ours, other, place)


def _compare_members(scene: Scene, judged: Judged, ours: dict[str, Any], other: dict[str, Any], place: float) -> None:
    """The parameters that one side's optimizer alone has."""
    event = judged.event
    gone, more = [name for name in other if name not in ours], [name for name in ours if name not in other]
    if not (gone or more):
        return
    if are_arranged_otherwise(scene.pairing, ours, other):
        text = said("models-have-other-parameters", event.name, quoted(more), quoted(gone))
    else:
        lacks = said("optimizer-lacks-parameters", quoted(gone), _is(gone), _they(gone)) if gone else ""
        has = said("optimizer-has-extra-parameters", quoted(more), _is(more)) if more else ""
        text = Wording("{}: ", event.name) + joined("; ", [sentence for sentence in (lacks, has) if sentence])
    in_parts = are_in_parts(scene.pairing, ours, other)
    if in_parts:
        # All ranks together say whether it is so.
        scene.say(
            ("gradients in parts", event),
            judged,
            "gradient",
            said("gradients-in-parts-differ", event.name),
            where=(more or gone)[0],
            facts=(Because("in_parts"), Listed("missing", gone), Listed("extra", more)),
            place=place,
            matters=True,
            waits=True,
        )
    scene.say(
        ("members", event),
        judged,
        "optimizer",
        text,
        where=(gone or more)[0],
        facts=(Because("members"), Listed("missing", gone), Listed("extra", more)),
        place=place,
        # The weights that modules have in the next step are what both make of them.
        shows_later=said("parameters-in-parts") if in_parts else "",
    )


def compare_states(scene: Scene, judged: Judged, ours: dict[str, Any], other: dict[str, Any], place: float) -> None:
    """What the optimizer works on, where nothing before explains it."""
    event = judged.event
    known = {
        parameter_name(call.event, difference.slot)
        for call in scene.judged.values()
        if call.event.direction == "gradient"
        for difference in call.changed_outputs
    }
    delivered = {
        parameter_name(call.event, slot)
        for call in scene.judged.values()
        if call.event.direction == "gradient"
        for slot, _ in call.event.outputs()
    }
    changed = scene.tainted & {"backward", "forward", "gradient"}
    crossing = scene.comparer.crossing
    if not crossing:
        compare_fields(scene, judged, ours, other, place, "before the step")
    for name, field, difference in optimizer.differences(scene.comparer, ours, other):
        if difference.what not in ("value", "not_finite", "missing"):
            continue
        if crossing and field != "grad":
            continue  # the states of two frameworks are others, and no weight is the same: blame_movement
        if field == "grad" and name in scene.delivered and difference.what == "value":
            continue
        if crossing and (
            frameworks.is_rounding_of_gradient(difference, scene.comparer.weights_apart)
            or frameworks.cancels(difference, scene.largest_gradient)
        ):
            continue
        if field == "grad" and (scene.towers(difference) or (not changed and name not in known)):
            left = difference.left
            alone = scene.candidate.lone_makers(left, event)
            missing = scene.reference.lone_makers(difference.right, judged.partner)
            if alone or missing:
                blame_calls(scene, judged, difference, alone, missing)
                continue
            if difference.what != "missing" and say_not_cleared(scene, judged, difference, name, place):
                continue
            cause: Cause | None = "on_its_way"
            clear = True
            if difference.what == "missing":
                text = (
                    said("gradient-missing-at-optimizer", name)
                    if left is None
                    else said("gradient-extra-at-optimizer", name)
                )
            elif scale := names_the_scale(judged, scene.arrival.factor):
                side = "candidate" if (scene.arrival.factor or 0.0) < 1 else "reference"
                text = said("gradients-clipped-with-loss-scale", scene.how(difference))
                text += said("clipped-before-unscaling", scale, side)
                cause = "scaled_clipping"
            elif scene.seen.isdisjoint(("backward", "gradient")) or (delivered and name not in delivered):
                text = said("gradient-of-unrecorded-backward", name, scene.how(difference))
                cause, clear = None, tensor.is_another(difference, "unseen", unit=scene.comparer.unit_of_run)
            else:
                text = said("gradient-at-optimizer-differs", name, scene.how(difference))
                if isinstance(scene.pairing.candidate.rank, int):
                    # What other ranks gave may be apart by rounding, where nothing of this one is.
                    clear = tensor.is_another(difference, "unseen", unit=scene.comparer.unit_of_run)
            scene.say(
                ("optimizer gradient",), judged, "gradient", text, where=name, clear=clear,
                facts=(NamedFact("parameter", name), *because(cause), SeenFact(difference)), place=place,
            )  # fmt: skip
        elif field == "weight" and difference.what != "missing" and not scene.tainted:
            blame_weight(scene, judged, difference, name)
        elif field not in ("grad", "weight") and not scene.tainted:
            # Where the gradients of the step before are apart by rounding, what it keeps of them is.
            clear = scene.before.untouched or tensor.is_another(difference, "step_before")
            scene.say(
                ("state", field), judged, "optimizer",
                said("optimizer-state-differs", event.name, field, name, scene.how(difference)),
                where=said("field-of-parameter", event.name, field, name), clear=clear,
                facts=(NamedFact("parameter", name), Because("state"), NamedFact("field", field), SeenFact(difference)),
                place=place,
            )  # fmt: skip


def compare_fields(
    scene: Scene, judged: Judged, ours: dict[str, Any], other: dict[str, Any], place: float, when: str
) -> None:
    """States that only one side has: an optimizer that begins anew, a parameter that it leaves out."""
    event = judged.event
    for side, here, there in (("candidate", ours, other), ("reference", other, ours)):
        names_of_field: dict[str, list[str]] = {}
        for name, fields in here.items():
            for field in fields:
                if name in there and field not in there[name] and field not in ("weight", "grad"):
                    names_of_field.setdefault(field, []).append(name)
        for field, names in names_of_field.items():
            scene.say(
                ("field", when, names[0]),
                judged,
                "optimizer",
                said("optimizer-state-on-one-side", event.name, field, quoted(names), when, side),
                where=said("field-of-parameter", event.name, field, names[0]),
                facts=(
                    Because("state"),
                    NamedFact("field", field),
                    NamedFact("only_in", side),
                    Listed("parameters", names),
                ),
                place=place,
                matters=event.parts.owner == judged.partner.parts.owner or not _steps_alike(scene, judged),
            )


def _steps_alike(scene: Scene, judged: Judged) -> bool:
    """True if two optimizers make the same weights of the same gradients, so that it does not matter which is which: a
    fused one for one of torch. False where a weight has few digits, which do not show what a small factor does.
    """
    results = optimizer.results_of(judged.event), optimizer.results_of(judged.partner)
    weights = [fields.get("weight") for side in results for fields in side.values()]
    if scene.comparer.crossing or not weights or any(not is_tensor(leaf) or is_coarse(leaf) for leaf in weights):
        return False
    stepped_otherwise = {
        name
        for name, field, difference in optimizer.differences(scene.comparer, *results)
        if field == "weight" and difference.what == "value" and tensor.is_stepped_otherwise(difference)
    }
    ours, other = optimizer.parameters_of(judged.event), optimizer.parameters_of(judged.partner)
    apart = {name for name, field, _ in optimizer.differences(scene.comparer, ours, other) if field == "grad"}
    # Of a gradient that is nothing but rounding an optimizer may make anything; of most it makes what they say.
    return stepped_otherwise <= apart and 2 * len(stepped_otherwise) <= len(results[0])


def look_at_optimizer(scene: Scene, judged: Judged) -> None:
    """Compare settings, states and results of an optimizer step."""
    event = judged.event
    if not scene.ledger.knows(("settings", event)):
        scene.ledger.close(("settings", event))
        compare_settings(scene, judged, event.index - 0.5)
    if scene.tainted or any(suspect.finding.kind == "optimizer" for suspect in scene.ledger.suspects):
        return
    if scene.comparer.crossing:
        return
    ours, other = optimizer.parameters_of(event), optimizer.parameters_of(judged.partner)
    before = {
        (n, f)
        for n, f, d in optimizer.differences(scene.comparer, ours, other)
        if d.what in ("value", "not_finite") and not (f == "grad" and n in scene.delivered)
    }
    if before:
        return
    results = optimizer.results_of(event), optimizer.results_of(judged.partner)
    compare_fields(scene, judged, *results, event.index, "after the step")
    for name, field, difference in optimizer.differences(scene.comparer, *results):
        if difference.what in ("value", "not_finite"):
            clear = tensor.is_another(difference, "unseen")
            scene.say(
                ("step", event), judged, "optimizer",
                said("update-differs", event.name, field, name, scene.how(difference)),
                where=said("field-of-parameter", event.name, field, name), clear=clear,
                facts=(NamedFact("parameter", name), NamedFact("field", field), SeenFact(difference)),
            )  # fmt: skip


def _is(names: Sequence[str]) -> str:
    return "is" if len(names) == 1 else "are"


def _they(names: Sequence[str]) -> str:
    return "it is" if len(names) == 1 else "they are"


def _ratio(left: Any, right: Any) -> str:
    if isinstance(left, (int, float)) and isinstance(right, (int, float)) and right and not isinstance(left, bool):
        return f"{left / right:.6g}"
    return ""
