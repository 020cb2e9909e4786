"""What stands between the candidate's training and the reference: each value is replaced by the recorded one."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any

from msprobe import log
from msprobe.capture.events import Call, Collective, Failure, Gradient, ModulePass, OptimizerStep, Step
from msprobe.capture.listeners import Arguments, Cadence, Changer, Changes, NewGradient, Result, Values, Wants
from msprobe.compare.entry_names import operation
from msprobe.diagnose.operators import FILLS, MAY_VIEW, MOVES, RECURRENT
from msprobe.errors import MsprobeError
from msprobe.lockstep import optimizer_steps, pairing, pass_results
from msprobe.lockstep.account import Account
from msprobe.lockstep.beside import Beside
from msprobe.lockstep.call_kinds import NUMBERS, gives_back, is_broadcast, is_kept, writes_to_arguments
from msprobe.lockstep.carried import Carried
from msprobe.lockstep.chosen import Chosen
from msprobe.lockstep.gradients import Gradients
from msprobe.lockstep.optimizer_steps import Part
from msprobe.lockstep.pairing import Pairs
from msprobe.lockstep.reference import (
    OPTIMIZER,
    RecordedCall,
    RecordedStep,
    Slot,
    Steps,
    has_other_arguments,
)
from msprobe.lockstep.regions import Mark, Own, Region, Regions


class Lockstep(Changer):
    """Replaces what calls return, the gradients on their way back, and what optimizers and collectives leave, by what
    the reference has; each where it differs at all. What the program came to by itself is in the dump, behind which
    this comes.

    ``only``: the record of the one call, collective or optimizer step that is put right, with its gradients if it is
    one of the forward pass; with ``*`` in place of its number, of each call of that API. This comes before the dump
    then, which has what follows. Empty: all are. ``is_updating``: whether the step of an optimizer is past its closure.
    """

    wants = Wants(kinds=("call", "pass", "collective", "optimizer"))
    changes = Changes(names=("*",), arguments=True, results=True, gradients=True, values=True)

    def __init__(
        self,
        steps: Steps,
        cadence: Cadence,
        values: pairing.Values,
        account: Account,
        only: Collection[str] = (),
        is_updating: Callable[[], bool] = lambda: False,
    ) -> None:
        self.cadence = cadence
        self.account = account
        self._steps = steps
        self._values = values
        self._only = Chosen(only)
        self.behind_dump = not only
        self._pairs: Pairs | None = None
        self._recorded: RecordedStep | None = None
        self._beside = Beside(values)
        # Calls under way: what they are paired with, and the regions that they are in.
        self._open: dict[str, tuple[RecordedCall | None, Region | None]] = {}
        self._regions = Regions()
        # What calls that were made a second time have returned, by path.
        self._again_made: dict[str, dict[str, Any]] = {}
        # Asked in the step of an optimizer that has a closure.
        self._is_updating = is_updating
        self._step: OptimizerStep | None = None
        self._gradients: Gradients | None = None
        # Calls outside of all modules since a gradient came back.
        self._since_backward: list[str] = []
        # What calls under way are given in the place of their arguments, and of those that stand for own values, which.
        self._given: dict[str, list[tuple[Any, Own | None]]] = {}
        self._carried = Carried()

    # ---------------------------------------------------------------- steps

    def step_begin(self, event: Step) -> None:
        """Open the recorded step."""
        try:
            self._recorded = self._steps.step(event.step, event.rank)
        except MsprobeError as problem:
            # What cannot be read is not run against; whoever judges says so.
            self._recorded = None
            log.warning(problem.message)
        self._beside = Beside(self._values, self._recorded)
        self._pairs = None if self._recorded is None else Pairs(self._recorded, self._values)
        self._forget()
        self._carried.begin(self._recorded)
        if self._recorded is not None and self._pairs is not None:
            self._regions = Regions(self._recorded.unit)
            self._gradients = Gradients(self._pairs, self._regions, self._beside, bool(self._only))
        else:
            self.account.note("step_not_in_reference", event.step, f"rank {event.rank or 0}")

    def step_end(self, event: Step) -> None:
        """Close it."""
        if self._recorded is not None and self._pairs is not None and self._gradients is not None:
            self._gradients.look_for_missed()
            self._regions.close(self._pairs.is_balanced)
            self.account.counts["steps"] += 1
            self.account.carry_factors(self._gradients.end_factors(), not self._gradients.is_factor_taken)
            self.account.end_step(event.step, self._regions)
            self._recorded.close()
        self._recorded = self._pairs = None
        self._beside = Beside(self._values)
        self._forget()

    def _forget(self) -> None:
        self._open.clear()
        self._given.clear()
        self._since_backward.clear()
        self._gradients = None
        self._regions = Regions()

    # ---------------------------------------------------------------- calls

    def before(self, event: Any) -> Arguments | Values | None:
        """Find what answers to it, and give it the recorded inputs."""
        if isinstance(event, OptimizerStep):
            self._step = event
            return self._put_step(event, "input_kwargs")
        if self._pairs is None:
            return None
        if isinstance(event, ModulePass):
            if self._pairs.step.has_passes:
                self._since_backward.clear()
                self._regions.enter(event.name)
                self._pairs.begin(event.name, event.is_recompute)
            return None
        if not isinstance(event, (Call, Collective)):
            return None
        tensors = self._values.arguments(event.args, event.kwargs)
        recorded = None
        parent = event.parent if self._pairs.step.has_passes else None
        if parent is None and self._in_optimizer and OPTIMIZER in self._pairs.step.parents:
            parent = OPTIMIZER
        if parent is None and not self._in_optimizer:
            self._since_backward.append(event.name)
        is_rewritten = self._in_optimizer and optimizer_steps.is_rewritten(self._step, self._recorded)
        if is_rewritten or self._is_reshaped(event, tensors):
            self._pairs.count(event.key, parent)
        else:
            recorded = self._pairs.find(
                event.key,
                event.number,
                parent,
                tensors,
                lambda: event.stack,
                event.is_recompute,
                lambda call: not has_other_arguments(call.record, event.args, event.kwargs),
            )
        if recorded is None:
            self.account.leave_alone(event.step, event.name)
            if self._gradients is not None:
                self._gradients.note_lone_parameters((event.key, event.number), tensors)
            # What repeats a call for its backward pass, where the reference does not, is shown by the gradients.
            region = None if event.is_recompute else self._begun(event, tensors)
            where = self._pairs.pass_of(parent)
            for _, tensor in tensors if region is not None else ():
                left = self._carried.take(tensor, where, event.step, self._beside)
                if left is not None:
                    self.account.carry(left)
            if region is not None and self._pairs.is_waiting(event.key, parent):
                region.is_of_other_shapes = True
            self._open[event.name] = None, region
            return None
        self.account.pair(event.name, recorded.name)
        self._pairs.pair_passes(self._regions.passes, recorded)
        if self._gradients is not None:
            self._gradients.note_parameters((event.key, event.number), tensors)
        if isinstance(event, Collective) or self._only:
            self._open[event.name] = recorded, None
            return self._averages(event, recorded, tensors) if self._only.has(event.name) else None
        return self._arguments(event, recorded, tensors)

    def _is_reshaped(self, event: Call | Collective, tensors: Sequence[tuple[str, Any]]) -> bool:
        """True if something of another shape than the reference's goes in, or what became of it: of another number of
        rows, nothing is the same, and no number that the program takes from it.
        """
        owned = [own.region.root for _, tensor in tensors if (own := self._regions.own(tensor)) is not None]
        takes_number = event.key.rpartition(".")[2] in NUMBERS
        if self._recorded is None or not self._recorded.has_passes:
            return False
        return any(
            not owner.passes and (owner.is_reshaped or (takes_number and owner.is_of_other_shapes)) for owner in owned
        )

    def _begun(self, event: Call | Collective, tensors: Sequence[tuple[str, Any]]) -> Region | None:
        """The region that a call without a partner is in."""
        if self._in_optimizer or self._only:
            return None
        owned = {path: own for path, tensor in tensors if (own := self._regions.own(tensor)) is not None}
        region = self._joined(event, list(owned.values()), tensors, begins=True)
        # The tensors themselves go in: what comes out is its own.
        if any(own.value is not None for own in owned.values()):
            self._again(event, region, {path: own.value for path, own in owned.items() if own.value is not None})
        return region

    def _joined(
        self, event: Call | Collective, owned: Sequence[Own], tensors: Sequence[tuple[str, Any]], begins: bool
    ) -> Region:
        region = self._regions.join(event.name, owned, [tensor for _, tensor in tensors], begins)
        region.taken = max([region.taken, *(self._values.unit(tensor) for _, tensor in tensors)])
        return region

    def _again(self, event: Call | Collective, region: Region, given: Mapping[str, Any]) -> None:
        """Make a call a second time, on own values, and keep what comes out."""
        made_again: dict[str, Any] | None = None
        if isinstance(event, Call) and event.function is not None and event.kwargs.get("out") is None:
            written = writes_to_arguments(event)
            made_again = self._values.made_again(event.function, event.args, event.kwargs, given, written)
        if made_again is None:
            region.end(event.name, False)
        else:
            region.followed.setdefault(event.name)
        self._again_made[event.name] = made_again or {}

    def _arguments(self, event: Call, call: RecordedCall, tensors: Sequence[tuple[str, Any]]) -> Arguments | None:
        """The recorded arguments in the place of those that differ, and own values that agree with them."""
        given: dict[str, Any] = {}
        owned: dict[str, Own] = {}
        own_values: dict[str, Any] = {}
        written: dict[str, tuple[Any, Any]] = {}
        passed: list[Mark | None] = []
        # What makes a new tensor takes no more than a type and a shape.
        follows = not self._in_optimizer and operation(event.key) not in FILLS
        begins = follows and has_other_arguments(call.record, event.args, event.kwargs)
        writes = writes_to_arguments(event)
        for path, tensor in tensors:
            slot = call.inputs.get(path)
            other, own = self._beside.other(tensor, slot), self._regions.own(tensor) if follows else None
            if other is not None and own is None and is_kept(event, path, tensor):
                written[path] = tensor, other
                continue
            if own is not None:
                value = tensor if own.value is None else own.value
                recorded = other if own.value is None else self._beside.other(value, slot)
                agrees = recorded is None or self._beside.agrees(value, recorded, slot, own.region.root)
                if agrees and own.value is not None and other is not None:
                    root = own.region.root
                    root.compensates |= not self._beside.agrees(tensor, other, slot, root)
                if agrees and (own.value is None or not writes):
                    self._regions.take(tensor)
                    own.region.root.arrive(event.name, path, own.call)
                    if recorded is not None or own.value is not None:
                        given[path] = value if recorded is None else self._values.linked(value, recorded)
                    continue
                if agrees or not self._regions.is_too_far(own):
                    owned[path], own_values[path] = own, value
                    if operation(event.key) != "detach":
                        self._regions.take(tensor)  # its place is taken by what is put right
                else:
                    own.region.root.end(event.name, False)
            elif other is not None and follows and (maker := self._regions.maker(tensor)) is not None:
                begins, own_values[path] = True, tensor
                passed.append(self._taken_by_reference(call, slot, maker))
            if other is not None:
                given[path] = self._values.linked(tensor, other)
                if self._since_backward and self._gradients is not None and not tensor.requires_grad:
                    self._gradients.is_factor_taken |= not self._beside.agrees(tensor, other, slot, Region(()))
        region = None
        if owned or begins:
            region = self._joined(event, list(owned.values()), tensors, begins)
            put = {path: other for path, (_, other) in written.items()}
            self._again(event, region, {**given, **put, **own_values})
            for mark in filter(None, passed):
                self._regions.pass_back(mark, region)
        self._open[event.name] = call, region
        self._given[event.name] = [
            (value, replace(owned[path], value=own_values[path]) if path in owned else None)
            for path, value in given.items()
        ]
        if writes:
            given = {}  # the tensor that is written to must be the program's own
        if not given and not written:
            return None
        self.account.note("inputs_replaced", event.step, event.name)
        values = self._values
        args = [values.put(argument, f"input.{n}", given) for n, argument in enumerate(event.args)]
        kwargs = {word: values.put(argument, f"kwargs.{word}", given) for word, argument in event.kwargs.items()}
        return Arguments(args, kwargs, list(written.values()))

    def _averages(
        self, event: Call | Collective, recorded: RecordedCall, tensors: Sequence[tuple[str, Any]]
    ) -> Arguments | None:
        """Running averages that the one call takes, put right before it; it writes to them itself."""
        if not isinstance(event, Call):
            return None
        written: list[tuple[Any, Any]] = []
        for path, tensor in tensors:
            if is_kept(event, path, tensor):
                other = self._beside.other(tensor, recorded.inputs.get(path))
                written += [] if other is None else [(tensor, other)]
        if not written:
            return None
        self.account.note("inputs_replaced", event.step, event.name)
        return Arguments(event.args, event.kwargs, written)

    def _taken_by_reference(self, call: RecordedCall, slot: Slot | None, maker: Mark) -> Mark | None:
        """The paired call whose result the reference takes where the candidate takes that of ``maker``."""
        recorded = self._recorded.maker(slot, call) if self._recorded is not None and slot is not None else None
        if recorded is None or recorded.partner is None or maker == (recorded.key, recorded.partner):
            return None
        return recorded.key, recorded.partner

    def after(self, event: Any, result: Any) -> Result | Values | None:
        """Put the recorded result in the place of its own."""
        if isinstance(event, OptimizerStep):
            self._step = None
            return self._put_step(event, "output")
        if isinstance(event, ModulePass):
            return self._after_pass(event, result)
        recorded, region = self._open.pop(event.name, (None, None))
        again = self._again_made.pop(event.name, None)
        replaced = self._given.pop(event.name, ())
        if isinstance(event, Call) and gives_back(event, result, replaced, self._values):
            self.account.do_nothing(event.name)
            own = next((own for replaced_result, own in replaced if replaced_result is result), None)
            if own is not None:
                self._regions.keep(result, own.region, own.depth, own.value, call=own.call)
            if self._gradients is not None:
                self._gradients.leave_out((event.key, event.number))
            return None
        if not self._only.has(event.name) or (recorded is None and region is None):
            return None
        given: dict[str, Any] = {}
        pairs: list[tuple[Any, Any]] = []
        mark = event.key, event.number
        results = self._values.results(result)
        for path, tensor in results:
            slot = recorded.outputs.get(path) if recorded is not None else None
            if slot is not None and slot.shape != self._values.shape(tensor):
                # A piece of a row is no row, though it may have the length 1.
                is_piece = operation(event.key) in MAY_VIEW
                is_reshaped = is_piece or not is_broadcast(self._values.shape(tensor), slot.shape)
                self.account.note("other_shape", event.step, event.name)
                slot = None
                if region is None and not self._in_optimizer and not self._only:
                    region = self._joined(event, (), (), begins=True)
                if region is not None:
                    region.root.is_reshaped |= is_reshaped
            other = self._beside.other(tensor, slot)
            if region is not None:
                # What a call without a partner returns is its own, unless it was made on what was put right.
                value = tensor if again is None else again.get(path)
                if value is not None and value.requires_grad and not tensor.requires_grad:
                    value = value.detach()
                if operation(event.key) not in MOVES:
                    inside = operation(event.key) in RECURRENT
                    region.root.note_unit(math.inf if inside else self._values.unit(tensor))
                region.root.is_coarser |= self._values.unit(tensor) > region.root.taken
                if tensor.requires_grad:
                    region.root.note_gradient(None if recorded is None else mark, slot is None or value is tensor)
                if recorded is None and value is tensor:
                    self._carried.leave(tensor, event.name, event.step, region)
                joined = self._followed(event, region, tensor, value, slot, len(results) == 1)
                if joined is not None:
                    self.account.counts["results_replaced"] += 1
                    return Result(self._values.put(result, _start(result), {path: joined}))
            elif slot is not None:
                self._regions.note_made(tensor, mark)
                taken = self._values.arguments(event.args, event.kwargs)
                self._regions.note_call(mark, event.parent, (taken_tensor for _, taken_tensor in taken))
                if tensor.requires_grad and self._gradients is not None:
                    self._gradients.note_taken(taken)
            if other is not None:
                given[path] = other
                pairs.append((tensor, other))
        if not given:
            return None
        self.account.counts["results_replaced"] += 1
        if isinstance(event, Collective):
            return Values(pairs)
        return Result(self._values.replaced(result, _start(result), given), written=True)

    def _followed(
        self, event: Call | Collective, region: Region, tensor: Any, value: Any, slot: Slot | None, alone: bool
    ) -> Any:
        """Go on with the own value of a result. The tensor to take its place if it is what the reference has."""
        mark = event.key, event.number
        if value is None:
            # It could not be made again.
            if slot is not None:
                self._regions.note_made(tensor, mark)
            return None
        inputs = self._values.arguments(event.args, event.kwargs)
        if operation(event.key) != "detach":
            for _, input_tensor in inputs:
                self._regions.take(input_tensor)
        owned = [own for _, input_tensor in inputs if (own := self._regions.own(input_tensor)) is not None]
        recorded = self._beside.other(value, slot)
        agrees = slot is not None and (recorded is None or self._beside.agrees(value, recorded, slot, region.root))
        if agrees:
            primary = None if value is tensor else self._beside.other(tensor, slot)
            if primary is not None and not self._beside.agrees(tensor, primary, slot, region.root):
                region.root.compensates = True
                region.root.made_up.setdefault(event.name)
            region.root.end(event.name, True)
            region.root.judged.add(event.name)
            if value is tensor or (recorded is None and not owned and self._beside.other(tensor, slot) is None):
                self._regions.note_made(tensor, mark)
                return None
            if alone and isinstance(event, Call) and not any(input_tensor is tensor for _, input_tensor in inputs):
                joined = value if recorded is None else self._values.linked(value, recorded)
                if value.requires_grad:
                    self._regions.note_made(joined, mark)
                    return joined
        depth = max((own.depth for own in owned), default=0) + (slot is not None)
        differs = None if slot is None or agrees else event
        self._regions.keep(tensor, region, depth, value, differs, None if slot is None else mark, event.name)
        return None

    def _after_pass(self, event: ModulePass, result: Any) -> Result | None:
        """A module returns: an own value that began inside of it is judged. The one that is put right alone gets the
        recorded results.
        """
        self._regions.leave(event.name)
        results = self._values.results(result)
        if not self._only:
            slots = self._pairs.pass_outputs(event.name) if self._pairs is not None else {}
            given = pass_results.judged(event.name, results, slots, self._regions, self._beside, self._values)
        elif self._only.has(event.name) and self._recorded is not None:
            slots = self._recorded.pass_outputs(event.name)
            given = pass_results.recorded(results, slots, self._beside, self._values)
        else:
            return None
        if not given:
            return None
        self.account.counts["results_replaced"] += 1
        return Result(self._values.put(result, _start(result), given))

    def failed(self, event: Any) -> None:
        """It has raised."""
        own = event.event if isinstance(event, Failure) else event
        self._open.pop(event.name, None)
        self._given.pop(event.name, None)
        if isinstance(own, OptimizerStep):
            self._step = None
        elif isinstance(own, ModulePass):
            self._regions.leave(own.name)

    # ---------------------------------------------------------------- gradients

    def gradient(self, event: Any) -> NewGradient | None:  # type: ignore[override]
        """Put the recorded gradient in the place of its own."""
        self._since_backward.clear()
        if self._gradients is None or not isinstance(event, Gradient) or not self._only.has(event.name):
            return None
        other = self._gradients.other(event)
        if other is None or not event.can_be_replaced:
            return None
        self.account.counts["gradients_replaced"] += 1
        return NewGradient(other)

    # ---------------------------------------------------------------- optimizers

    def _put_step(self, event: OptimizerStep, part: Part) -> Values | None:
        recorded = self._recorded
        if recorded is None or (self._only and (not self._only.has(event.name) or part == "input_kwargs")):
            return None
        name = recorded.optimizer_like(event.name)
        record = recorded.optimizers.get(name)
        if part == "output" and optimizer_steps.is_rewritten(event, recorded):
            agrees = optimizer_steps.comes_to_the_same(event, record, self._beside)
            self.account.rewrite(event.name, agrees)
        pairs = optimizer_steps.differing(event, record, part, self._beside)
        if part == ("output" if event.has_closure else "input_kwargs"):
            agreeing = optimizer_steps.judge_gradients(event, record, self._beside, self._regions, self._values)
            self.account.take_gradients(event.name, agreeing, self._since_backward, recorded.before_step.get(name, ()))
        self.account.counts["optimizer_tensors_replaced"] += len(pairs)
        return Values(pairs) if pairs else None

    @property
    def _in_optimizer(self) -> bool:
        """True while an optimizer updates weights; what its closure calls are passes of the model."""
        step = self._step
        return step is not None and (not step.has_closure or self._is_updating())


def _start(result: Any) -> str:
    return "output" if isinstance(result, tuple) else "output.0"
