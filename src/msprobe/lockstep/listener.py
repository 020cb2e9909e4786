"""What stands between the candidate's training and the reference: each value is replaced by the recorded one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from msprobe.capture.events import Call, Collective, Gradient, OptimizerStep, Step
from msprobe.capture.listeners import Arguments, Cadence, Changer, Changes, NewGradient, Result, Values, Wants
from msprobe.compare.entry_names import of_every_number, writes_in_place
from msprobe.lockstep import pairing
from msprobe.lockstep.pairing import Pairs
from msprobe.lockstep.reference import RecordedCall, RecordedStep, Slot, Slots, find_slots

_MOST_NAMED = 200


class Account:
    """What happened in the steps of one rank, for the verdict's summary and notes."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        #: Names of calls, with their steps, of which something could not be done.
        self.named: dict[str, list[str]] = {}

    def note(self, what: str, step: int, name: str) -> None:
        """Count a call by what became of it, and keep its name."""
        self.counts[what] += 1
        names = self.named.setdefault(what, [])
        if len(names) < _MOST_NAMED:
            names.append(f"{name} in step {step}")

    def to_json(self) -> dict[str, Any]:
        """As it is written for whoever judges."""
        return {"counts": dict(self.counts), "named": self.named}


class Steps(Protocol):
    """Where the recorded steps come from."""

    def step(self, step: int, rank: int | None) -> RecordedStep | None:
        """A step of a rank; None if it was not recorded."""


class Lockstep(Changer):
    """Replaces what calls return, the gradients on their way back, and what optimizers and collectives leave, by what
    the reference has; each where it differs at all. What the program came to by itself is in the dump, behind which
    this comes.

    ``only``: the record of the one call, collective or optimizer step that is put right, with its gradients if it is
    one of the forward pass; with ``*`` in place of its number, of each call of that API. This comes before the dump
    then, which has what follows. Empty: all are.
    """

    wants = Wants(kinds=("call", "collective", "optimizer"))
    changes = Changes(names=("*",), arguments=True, results=True, gradients=True, values=True)

    def __init__(
        self, steps: Steps, cadence: Cadence, values: pairing.Values, account: Account, only: str = ""
    ) -> None:
        self.cadence = cadence
        self.account = account
        self._steps = steps
        self._values = values
        self._only = only
        self.behind_dump = not only
        self._pairs: Pairs | None = None
        self._recorded: RecordedStep | None = None
        # Calls under way, and what they are paired with.
        self._open: dict[str, RecordedCall] = {}
        self._gradients: dict[str, tuple[Slots, Slots]] = {}
        # Gradients that came already: a graph that is walked twice brings others the second time.
        self._came: set[tuple[str, str, str]] = set()

    # ---------------------------------------------------------------- steps

    def step_begin(self, event: Step) -> None:
        """Open the recorded step."""
        self._recorded = self._steps.step(event.step, event.rank)
        self._pairs = None if self._recorded is None else Pairs(self._recorded, self._values)
        self._forget()
        if self._recorded is None:
            self.account.note("step_not_in_reference", event.step, "all calls")

    def step_end(self, event: Step) -> None:
        """Close it."""
        if self._recorded is not None:
            self.account.counts["steps"] += 1
            self._recorded.part.close()
        self._recorded = self._pairs = None
        self._forget()

    def _forget(self) -> None:
        self._open.clear()
        self._gradients.clear()
        self._came.clear()

    # ---------------------------------------------------------------- calls

    def before(self, event: Any) -> Arguments | Values | None:
        """Find what answers to it, and give it the recorded inputs."""
        if isinstance(event, OptimizerStep):
            return self._put_step(event, "input_kwargs")
        if self._pairs is None or not isinstance(event, (Call, Collective)):
            return None
        tensors = self._values.arguments(event.args, event.kwargs)
        found = self._pairs.find(
            event.key, event.number, event.parent, tensors, lambda: event.stack, event.is_recompute
        )
        if found is None:
            self.account.note("without_partner", event.step, event.name)
            return None
        self.account.counts["paired"] += 1
        self._open[event.name] = found
        if isinstance(event, Collective) or self._only:
            return None
        return self._arguments(event, found, tensors)

    def _arguments(self, event: Call, found: RecordedCall, tensors: Sequence[tuple[str, Any]]) -> Arguments | None:
        if writes_in_place(event.key) or event.kwargs.get("out") is not None or _is_in_place(event):
            # The tensor that is written to must be the program's own.
            return None
        given: dict[str, Any] = {}
        for path, tensor in tensors:
            other = self._other(tensor, found.inputs.get(path))
            if other is not None:
                given[path] = other
        if not given:
            return None
        self.account.note("inputs_replaced", event.step, event.name)
        values = self._values
        args = [values.linked(one, f"input.{n}", given) for n, one in enumerate(event.args)]
        kwargs = {word: values.linked(one, f"kwargs.{word}", given) for word, one in event.kwargs.items()}
        return Arguments(args, kwargs)

    def after(self, event: Any, result: Any) -> Result | Values | None:
        """Put the recorded result in the place of its own."""
        if isinstance(event, OptimizerStep):
            return self._put_step(event, "output")
        found = self._open.pop(event.name, None)
        if found is None or not self._is_chosen(event.name):
            return None
        given: dict[str, Any] = {}
        pairs: list[tuple[Any, Any]] = []
        for path, tensor in self._values.results(result):
            slot = found.outputs.get(path)
            if slot is not None and slot.shape != self._values.shape(tensor):
                self.account.note("other_shape", event.step, event.name)
                continue
            other = self._other(tensor, slot)
            if other is not None:
                given[path] = other
                pairs.append((tensor, other))
        if not given:
            return None
        self.account.counts["results_replaced"] += 1
        if isinstance(event, Collective):
            return Values(pairs)
        start = "output" if isinstance(result, tuple) else "output.0"
        return Result(self._values.replaced(result, start, given), written=True)

    def failed(self, event: Any) -> None:
        """It has raised."""
        self._open.pop(event.name, None)

    # ---------------------------------------------------------------- gradients

    def gradient(self, event: Any) -> NewGradient | None:  # type: ignore[override]
        """Put the recorded gradient in the place of its own."""
        if not isinstance(event, Gradient) or self._pairs is None or self._recorded is None:
            return None
        found = self._pairs.partner.get((event.key, event.number))
        mark = event.name, event.side, event.place
        if found is None or mark in self._came or not self._is_chosen(event.name):
            return None
        self._came.add(mark)
        if not event.can_be_replaced:
            return None
        slots = self._gradients.get(event.name)
        if slots is None:
            slots = self._gradients[event.name] = self._recorded.gradients_of(found)
        slot = slots[0 if event.side == "result" else 1].get(event.place)
        if slot is None or slot.shape != self._values.shape(event.gradient):
            return None
        other = self._other(event.gradient, slot)
        if other is None:
            return None
        self.account.counts["gradients_replaced"] += 1
        return NewGradient(other)

    # ---------------------------------------------------------------- optimizers

    def _put_step(self, event: OptimizerStep, part: str) -> Values | None:
        """The recorded gradients before a step, weights and moments before and after it, as far as they were recorded
        whole.
        """
        recorded = self._recorded
        if recorded is None or (self._only and (not self._is_chosen(event.name) or part == "input_kwargs")):
            return None
        record = recorded.optimizers.get(event.name)
        content = record.get(part) if record is not None else None
        if part == "output" and isinstance(content, list):
            content = content[0] if content else None
        if not isinstance(content, Mapping):
            return None
        pairs: list[tuple[Any, Any]] = []
        for name, parameter in event.parameters.items():
            slots: Slots = {}
            find_slots("", content.get(name), slots)
            live = {".weight": parameter.weight, ".grad": parameter.gradient}
            live |= {f".{word}": value for word, value in parameter.moments.items()}
            for path, tensor in live.items():
                slot = slots.get(path)
                if slot is None or not hasattr(tensor, "shape") or slot.shape != self._values.shape(tensor):
                    continue
                other = self._other(tensor, slot)
                if other is not None:
                    pairs.append((tensor, other))
        self.account.counts["optimizer_tensors_replaced"] += len(pairs)
        return Values(pairs) if pairs else None

    # ---------------------------------------------------------------- what is recorded

    def _other(self, tensor: Any, slot: Slot | None) -> Any:
        """The recorded values, if there are any, and the tensor has others."""
        if slot is None or self._recorded is None or slot.shape != self._values.shape(tensor):
            return None
        array = self._recorded.array(slot)
        if array is None or self._values.equals(tensor, array):
            return None
        other = self._values.like(tensor, array)
        return other if self._values.fits(tensor, other) else None

    def _is_chosen(self, name: str) -> bool:
        only = self._only
        if not only:
            return True
        names = (only, only.replace(".forward", ".backward"))
        return name in names or of_every_number(name) in names


def _is_in_place(event: Call) -> bool:
    return event.kwargs.get("inplace") is True
