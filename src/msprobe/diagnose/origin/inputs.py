"""What went into a call differs: is that explained by an earlier pair, and if not, whose fault is it?"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from msprobe.compare.entry_names import operation, plain_path, writes_in_place
from msprobe.diagnose import operators
from msprobe.diagnose.differences.records import Difference, fingerprint, is_floating, is_integer, numel, statistics
from msprobe.diagnose.differences.words import dtype_word, named
from msprobe.diagnose.effect import states
from msprobe.diagnose.effect.movement import place_of_weight
from msprobe.diagnose.effect.reach import pair_of
from msprobe.diagnose.evidence import Because, NamedFact, SeenFact, Setting
from msprobe.diagnose.findings import FindingKind
from msprobe.diagnose.origin.argument import blame_argument
from msprobe.diagnose.origin.around_step import look_at_order_around_step
from msprobe.diagnose.origin.calls_alone import blame_calls
from msprobe.diagnose.origin.gradients import look_at_arriving_gradient
from msprobe.diagnose.origin.gradients_taken import blame_gradient_on_its_way
from msprobe.diagnose.origin.held import held_tensor
from msprobe.diagnose.origin.returned import is_returned_otherwise
from msprobe.diagnose.origin.scene import Scene
from msprobe.diagnose.origin.sides import StepSide
from msprobe.diagnose.origin.weight import blame_weight, is_written_in_step, look_at_weight, parameters_taken
from msprobe.diagnose.steps.parameter_names import parameter_name
from msprobe.diagnose.steps.timeline import Event, is_tensor
from msprobe.diagnose.tolerance import frameworks, tensor
from msprobe.diagnose.tolerance.effect import unit_of
from msprobe.diagnose.tolerance.judge import Judged
from msprobe.diagnose.tolerance.units import is_coarse
from msprobe.messages import said


def look_at_input(scene: Scene, judged: Judged, difference: Difference) -> None:
    """True if a difference that arrived is explained by an earlier pair, or is blamed on something now."""
    event = judged.event
    if scene.is_rounding(difference):
        return
    if event.direction == "backward":
        look_at_arriving_gradient(scene, judged, difference)
        return
    if scene.comparer.crossing and _is_approximated(scene, judged, difference):
        return
    composed = event.is_module and not event.layer
    if composed and scene.has_calls and not difference.slot.startswith(("parameters", "buffers")):
        return  # the calls inside say more
    if look_at_order_around_step(scene, judged, difference):
        return
    if event.is_module and difference.slot.startswith(("parameters", "buffers")):
        # What looks like it is made of it: a view.
        if not is_written_in_step(scene, judged, difference):
            from_outside(scene, judged, difference)
        return
    maker = scene.candidate.makers.of(difference.left, event)
    other = scene.reference.makers.of(difference.right, judged.partner)
    is_view = _is_view_of_weight(scene.candidate, maker, difference.left)
    if difference.delta > 0.0 and (is_view or _is_view_of_weight(scene.reference, other, difference.right)):
        from_outside(scene, judged, difference)
        return
    lone = scene.reference.chain(other)
    twin = scene.pairing.back.get(other) if other is not None else None
    if maker is None and pair_of(difference) in scene.before.written:
        return  # a state that the step before wrote, though it has the shape of a gradient
    if maker is None and other is None and _is_filled_by_one_side(scene, judged, difference):
        return
    if maker is None and scene.after_backward(event, difference) and scene.silent_argument(event) is None:
        if lone:
            blame_calls(scene, judged, difference, [], lone)
        else:
            blame_gradient_on_its_way(scene, judged, difference)
    elif maker is not None and (alone := scene.candidate.chain(maker)):
        explained = scene.fed_by_difference(alone, difference)
        _blame_or_doubt(scene, judged, difference, alone, lone, explained)
    elif lone:
        if maker is None or not scene.differs(maker, difference):
            blame_calls(scene, judged, difference, [], lone)
        else:
            _blame_or_doubt(scene, judged, difference, [], lone, doubted=True)
    elif maker is not None and scene.differs(maker, difference):
        return
    elif maker is None and twin is not None:
        if scene.differs(twin, difference):
            return
        if scene.used_elsewhere(twin, event):
            from_outside(scene, judged, difference)
        else:
            blame_mutation(scene, judged, difference, twin)
    elif maker is not None and other is not None and twin is not maker:
        assert twin is not None
        if scene.differs(twin, difference):
            return
        if writes_in_place(maker.stem) and _wrote_to(maker, twin):
            blame_write(scene, judged, difference, maker, other)
        elif not is_returned_otherwise(scene, maker, other):
            blame_wiring(scene, judged, difference, maker, other)
    elif maker is not None and other is not None:
        blame_wiring(scene, judged, difference, maker, other, kind="argument")
    else:
        from_outside(scene, judged, difference)


def _blame_or_doubt(
    scene: Scene,
    judged: Judged,
    difference: Difference,
    alone: Sequence[Event],
    missing: Sequence[Event],
    doubted: bool,
) -> None:
    """Blame calls of one side; if what they take explains the difference, only if nothing else is to blame."""
    begun = len(scene.ledger)
    blame_calls(scene, judged, difference, alone, missing)
    if doubted:
        scene.ledger.doubt(begun)


def _is_view_of_weight(side: StepSide, maker: Event | None, leaf: Any) -> bool:
    """True if one side alone has a view of a parameter."""
    is_lone_view = maker is not None and side.is_alone(maker) and operation(maker.stem) in operators.MAY_VIEW
    return is_lone_view and bool(side.makers.parameters(leaf))


def from_outside(scene: Scene, judged: Judged, difference: Difference) -> None:
    """A tensor whose maker was not recorded."""
    event = judged.event
    if pair_of(difference) in scene.before.written:
        return  # a call of the step before wrote to it
    state = next((state for state in states.states_of(event) if state.slot == difference.slot), None)
    if state is not None:
        blame_state(scene, judged, difference, state)
        return
    if look_at_held_by_model(scene, judged, difference):
        return
    if place_of_weight(event, difference.slot) in scene.before.weights:
        return  # known by how far the step before moved it
    kept = difference.slot.startswith(("parameters", "buffers"))
    name = parameter_name(event, difference.slot) if kept else None
    names = [name] if name is not None else parameters_taken(scene, event, difference)
    if not names and not scene.has_calls and event.direction in scene.tainted:
        return  # calculated between two modules, from something that differs
    buffer = next((buffer for buffer in [name, *names] if buffer in scene.buffer_names), None)
    if buffer is not None:
        blame_state(scene, judged, difference, states.ModuleState(difference.slot, plain_path(buffer), sized=False))
        return
    if not names and _is_of_gradients(scene, event, difference):
        return
    if name is not None:
        blame_weight(scene, judged, difference, name)
        return
    if names:
        look_at_weight(scene, judged, difference, names)
        return
    silent = scene.silent_argument(event)
    if silent is not None:
        blame_argument(scene, silent)
        return
    held = held_tensor(scene, judged, difference)
    if held is not None:
        blame_state(scene, judged, difference, held)
        return
    if _is_filled_by_one_side(scene, judged, difference):
        return
    if not scene.has_calls and look_between_modules(scene, judged, difference):
        return
    taker, slot = _given_to_root(scene, event, difference) or (event.name, difference.slot)
    measured = scene.comparer.measured_inputs(judged.partner.name)
    clear = tensor.is_another(difference, "outside", measured, by_rows=scene.by_rows_apart(difference))
    clear |= is_integer(difference.left)
    # The same statistics of other values: another order of them, which no rounding makes.
    clear |= difference.delta == 0.0 and scene.first_step and not measured
    scene.say(
        ("outside", fingerprint(difference.left)),
        judged,
        "data",
        said("data-differs", slot, taker, scene.how(difference))
        + ("" if scene.has_calls or not event.index or taker != event.name else said("or-between-modules")),
        where=f"{taker}, {slot}",
        clear=clear,
        # Another batch: ranks that add up their gradients hide whose it was. With another number of passes, it may be
        # the same batch in other pieces.
        matters=is_integer(difference.left) and scene.same_passes and scene.loss_difference > 0.0,
        difference=difference,
    )


def _given_to_root(scene: Scene, event: Event, difference: Difference) -> tuple[str, str] | None:
    """The whole model's pass, and the argument by which the tensor came in, where that was recorded (record_root)."""
    digest = fingerprint(difference.left)
    roots = (root for root in scene.passes_of_root if root.index >= event.index)
    root = next((root for root in roots if root.direction == event.direction), None)
    if digest is None or root is None:
        return None
    slots = [slot for slot, leaf in root.inputs() if is_tensor(leaf) and fingerprint(leaf) == digest]
    return (root.name, slots[0]) if slots else None


def _is_of_gradients(scene: Scene, event: Event, difference: Difference) -> bool:
    """True for what a call outside of all modules takes after a backward pass that differs: gradients, which were put
    together in a way that was not recorded.
    """
    after = bool(scene.tainted & {"backward", "gradient"})
    return after and event.direction == "forward" and event.module is None and is_floating(difference.left)


def _is_filled_by_one_side(scene: Scene, judged: Judged, difference: Difference) -> bool:
    """True if calls that one side alone makes gave a tensor one number everywhere; then these are named."""
    alone = _makers_of_constant(scene.candidate.alone, judged.event, difference.left)
    missing = _makers_of_constant(scene.reference.alone, judged.partner, difference.right)
    if alone or missing:
        blame_calls(scene, judged, difference, alone, missing)
    return bool(alone or missing)


def _makers_of_constant(events: Sequence[Event], user: Event, leaf: Any) -> list[Event]:
    """The last call of one side alone that made a tensor of one number only, of which many others look like it."""
    if not is_tensor(leaf) or fingerprint(leaf) is not None or statistics(leaf)[0] is None:
        return []
    makers = [
        event
        for event in events
        if event.index < user.index
        and event.direction == user.direction
        and event.is_call
        and any(
            is_tensor(made)
            and made.get("shape") == leaf.get("shape")
            and made["dtype"] == leaf["dtype"]
            and statistics(made) == statistics(leaf)
            for _, made in event.outputs()
        )
    ]
    return makers[-1:]


def _is_approximated(scene: Scene, judged: Judged, difference: Difference) -> bool:
    """True if a call that kernels approximate made the tensor, on a side that recorded it, and that explains it."""
    makers = (
        scene.candidate.makers.of(difference.left, judged.event),
        scene.reference.makers.of(difference.right, judged.partner),
    )
    return any(maker is not None and frameworks.is_approximated(maker, difference) for maker in makers)


def look_at_held_by_model(scene: Scene, judged: Judged, difference: Difference) -> bool:
    """True if the model itself holds the tensor, as the recorder noted; then that is named."""
    if scene.comparer.crossing:
        return False
    noted = judged.event.held(difference.slot) or judged.partner.held(difference.slot)
    word, _, name = (noted or "").partition(".")
    if word == "buffers":
        blame_state(scene, judged, difference, states.ModuleState(difference.slot, plain_path(name), sized=False))
    elif word == "parameters":
        blame_weight(scene, judged, difference, name)
    return word in ("buffers", "parameters")


def blame_state(scene: Scene, judged: Judged, difference: Difference, state: states.ModuleState) -> None:
    """A running average, or another buffer that a module keeps: neither data nor a parameter."""
    mark = ("weight", state.name)
    if scene.ledger.knows(mark):
        return
    taken = state.slot.startswith("input")
    silent = scene.silent_argument(judged.event)
    if silent is not None:
        # The call (or an earlier pass of it) gave the same result, and this is what it did otherwise.
        blame_argument(scene, silent, shows_later=taken)
        return
    again = taken and states.is_changed_before(judged.event, scene.first_changes)
    if again:
        when = "where it is used again in this step"
    elif not taken:
        when = "after its pass in this step"
    else:
        when = "before the first step" if scene.first_step else "at the beginning of this step"
    if taken and not again and scene.first_step:
        # A checkpoint holds the same bits for both.
        by_rows = scene.by_rows_apart(difference)
        clear = tensor.is_another(difference, "stored", by_rows=by_rows) or difference.delta == 0.0
    else:
        unit = unit_of(scene.judged.values())
        now = judged.allowed if again else states.explained_by(judged, scene.candidate.makers)
        clear = not states.is_explained(judged, state, difference, scene.before.states, unit, now)
    measured = scene.comparer.measured_inputs(judged.partner.name)
    scene.say(
        mark,
        judged,
        "initial_weights" if taken and not again and scene.first_step else "weights",
        (state.words or said("buffer", state.name)) + said("buffer-differs", when, scene.how(difference)),
        where=state.name,
        clear=clear and (difference.delta > measured or not measured),
        facts=(NamedFact("buffer", state.name),),
        difference=difference,
    )


def look_between_modules(scene: Scene, judged: Judged, difference: Difference) -> bool:
    """Where modules alone were recorded: True if a tensor is calculated between the modules inside another one, or
    between those of the model itself.
    """
    event = judged.event
    mark = fingerprint(difference.left)
    # What a module only hands on to the first one inside it is calculated outside of both.
    while (
        event.parent is not None
        and mark is not None
        and mark in [fingerprint(given) for _, given in event.parent.inputs()]
    ):
        event = event.parent
    if event.parent is None:
        before = any(
            root.index < event.index and root.direction == event.direction and root is not event
            for root in scene.pairing.candidate.roots
        )
        if not (before and any(leaf.get("requires_grad") is True for leaf in (difference.left, difference.right))):
            return False
        place, entry = said("between-modules-of-model"), judged.event
        where = said("in-model-before", judged.event.name)
    elif event.index and scene.anything_before(event):
        place, entry = said("between-modules-of", event.parent.name), event.parent
        where = said("in-module-before", event.parent.name, event.name)
    else:
        return False
    scene.say(
        ("between", event.parent),
        judged,
        "computation",
        said("computed-between-modules", difference.slot, judged.event.name, scene.how(difference), place),
        where=where,
        clear=tensor.is_another(difference, "unseen"),
        facts=(Because("between"),),
        entry=entry,
        difference=difference,
    )
    return True


def blame_mutation(scene: Scene, judged: Judged, difference: Difference, twin: Event) -> None:
    event = judged.event
    scene.say(
        ("mutation", twin),
        judged,
        "mutation",
        said("overwritten-by-unrecorded", difference.slot, event.name, twin.name, scene.how(difference)),
        facts=(NamedFact("made_by", twin.name),),
        difference=difference,
    )


def _wrote_to(event: Event, maker: Event) -> bool:
    """True if a call writes to a result of ``maker``."""
    marks = {fingerprint(leaf) for _, leaf in maker.outputs()} - {None}
    return any(fingerprint(leaf) in marks for _, leaf in event.inputs()[:1])


def blame_write(scene: Scene, judged: Judged, difference: Difference, write: Event, other: Event) -> None:
    """A call that both sides make writes to what a later call takes; in the reference it writes to something else."""
    event = judged.event
    scene.say(
        ("wiring", event, difference.slot),
        judged,
        "mutation",
        said("overwritten-by-call", write.name, event.name, difference.slot, other.name),
        facts=(
            NamedFact("seen_in", event.name),
            NamedFact("reference_takes", other.name),
        ),
        entry=write,
        difference=difference,
        alternatives=(event.name,),
    )


def blame_wiring(
    scene: Scene, judged: Judged, difference: Difference, maker: Event, other: Event, kind: FindingKind = "structure"
) -> None:
    """A call takes the result of another call than in the reference, or another result of the same one."""
    event = judged.event
    leaf = difference.left
    if is_floating(leaf) and numel(leaf) == 1 and (kind == "argument" or is_coarse(leaf)):
        return  # of many single numbers two may be the same by chance, in half types above all
    there, twin = scene.result_of(other, difference.right), scene.pairing.back.get(other)
    if maker.name == other.name and twin is not None and twin is not maker:
        there = said("counterpart-of", there, twin.name)
    scene.say(
        ("wiring", event, difference.slot),
        judged,
        kind,
        said("input-comes-from-elsewhere", difference.slot, event.name, scene.result_of(maker, difference.left), there),
        facts=(
            NamedFact("candidate_takes", maker.name),
            NamedFact("reference_takes", other.name),
        ),
        difference=difference,
    )


def look_at_dtype(scene: Scene, judged: Judged, difference: Difference) -> None:
    event = judged.event
    maker = scene.candidate.makers.of(difference.left, event)
    if maker is None and scene.reference.makers.of(difference.right, judged.partner) is None:
        scene.say(
            ("outside", fingerprint(difference.left)),
            judged,
            "dtype",
            said(
                "outside-dtype-differs",
                difference.slot,
                event.name,
                dtype_word(difference.left),
                dtype_word(difference.right),
            ),
            where=f"{event.name}, {difference.slot}",
            facts=(SeenFact(difference),),
        )
    _blame_lone_cast(scene, judged, difference)


def _blame_lone_cast(scene: Scene, judged: Judged, difference: Difference) -> None:
    """A call computes in another type because one side alone casts what it takes."""
    for leaf, user, side in (
        (difference.left, judged.event, scene.candidate),
        (difference.right, judged.partner, scene.reference),
    ):
        maker = side.makers.of(leaf, user)
        if maker is None or not side.is_alone(maker) or operation(maker.stem) not in operators.CASTS:
            continue
        chain = side.chain(maker)
        # Autocast casts what some calls take: then the results of both sides have one type.
        cast_inside = _is_under_autocast(scene) and _result_types(judged.event) == _result_types(judged.partner) != []
        verb, preposition = ("takes", "") if cast_inside else ("computes in", "in ")
        scene.say(
            ("calls", chain[0]),
            judged,
            "dtype",
            said(
                "dtype-differs-by-extra-call",
                judged.event.name,
                verb,
                dtype_word(difference.left),
                preposition,
                dtype_word(difference.right),
                side.name,
                named(chain),
            ),
            facts=(Setting(difference.left["dtype"], difference.right["dtype"]),),
            entry=maker,
            place=scene.place_of(maker) - 0.5,
        )
        return


def _is_under_autocast(scene: Scene) -> bool:
    parts = scene.pairing.candidate.part, scene.pairing.reference.part
    settings = [part.ours.get("precision") for part in parts]
    return all(
        isinstance(setting, dict) and any(name.startswith("autocast") for name in setting) for setting in settings
    )


def _result_types(event: Event) -> list[str]:
    return [dtype_word(leaf) for _, leaf in event.outputs() if is_floating(leaf)]
