"""One tensor, and one record, of two runs in different layouts: how far apart they are."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

from msprobe.diagnose.layout.blocks import Rank, TensorBlock
from msprobe.diagnose.layout.guess import Fit, Sort
from msprobe.diagnose.layout.rounded import unit_inside
from msprobe.diagnose.layout.sides import ModulePlace
from msprobe.diagnose.steps.tensor_info import tensors_of
from msprobe.diagnose.steps.timeline import Event, Slot
from msprobe.diagnose.tolerance import layouts, noise, units


@dataclass
class MeasuredTensor:
    """One tensor of a record: whole on both sides, or ``problem`` says why not."""

    slot: str
    sort: Sort
    name: str
    fit: Fit | None = None
    problem: str = ""

    @property
    def copies(self) -> list[tuple[Rank, Rank, float]]:
        """Ranks of the candidate whose copies differ by more than they may: (rank, rank compared with, distance)."""
        copies = self.fit.copies if self.fit is not None else ()
        return [copy for copy in copies if not layouts.are_copies(copy[2], self.unit)]

    @property
    def torn(self) -> float:
        """How far copies on ranks of the candidate are apart at most, however little that is."""
        return max((apart for _, _, apart in self.fit.copies), default=0.0) if self.fit is not None else 0.0

    @property
    def is_sum(self) -> bool:
        """True if ranks of the candidate hold terms of a sum."""
        return self.fit is not None and self.fit.spreads[0].is_sum

    @property
    def apart(self) -> float:
        """The relative distance, of the copy that is furthest off; 0 where nothing is known."""
        return max([self.fit.apart, *(apart for _, _, apart in self.copies)]) if self.fit is not None else 0.0

    def forget(self) -> None:
        """Let go of values that were read."""
        if self.fit is not None:
            self.fit.left.forget()
            self.fit.right.forget()

    @property
    def rms(self) -> float:
        """The size of its elements; of a sum of which no values are known that of its terms."""
        if self.fit is None:
            return 0.0
        sizes = (_norm(block) for block in (self.fit.right, self.fit.left))
        norm = next((size for size in sizes if size is not None), 0.0)
        return norm / math.sqrt(max(self.fit.right.size, 1)) if math.isfinite(norm) else 0.0

    @property
    def ratio(self) -> float | None:
        """How many times larger it is on the candidate's side; None where only one side says its size."""
        sizes = (self.fit.left.numbers[3], self.fit.right.numbers[3]) if self.fit is not None else (None, None)
        return sizes[0] / sizes[1] if sizes[0] and sizes[1] and math.isfinite(sizes[0] / sizes[1]) else None

    @property
    def unit(self) -> float:
        """The rounding unit of the coarser type."""
        if self.fit is None:
            return 0.0
        return max(units.eps_of(block.described()) for block in (self.fit.left, self.fit.right))


@dataclass
class RecordPair:
    """A record of both runs, of one pass of a module or of all of them."""

    place: ModulePlace
    number: int
    events: dict[Rank, Event]
    partner: Event
    inputs: list[MeasuredTensor] = field(default_factory=list)
    parameters: list[MeasuredTensor] = field(default_factory=list)
    outputs: list[MeasuredTensor] = field(default_factory=list)

    @property
    def event(self) -> Event:
        """The record of the first rank that has it."""
        return next(iter(self.events.values()))

    @property
    def left(self) -> float:
        """How far the results are apart at most."""
        return max((output.apart for output in self.outputs), default=0.0)

    @property
    def arrived(self) -> float:
        """How far what went in is apart at most."""
        return max((tensor.apart for tensor in (*self.inputs, *self.parameters)), default=0.0)

    def forget(self) -> None:
        """Let go of values that were read: a model has more tensors than memory holds."""
        for tensor in (*self.inputs, *self.parameters, *self.outputs):
            tensor.forget()

    @property
    def unit(self) -> float:
        """The rounding unit of the coarsest type that the pass takes, gives, or computes in."""
        events = (*self.events.values(), self.partner)
        own = units.unit(_leaves([*self.inputs, *self.parameters]), _leaves(self.outputs))
        return max(own, unit_inside(*events))

    def own_noise(self, rounding: float) -> tuple[float, float]:
        """What the pass may add itself, and how many times larger the inputs may become (see ``noise``)."""
        inputs, outputs = tensors_of(_leaves([*self.inputs, *self.parameters])), tensors_of(_leaves(self.outputs))
        factor = noise.amplification(self.partner, inputs, outputs)
        return noise.own_noise(self.partner, inputs, outputs, rounding, factor), factor


def _norm(block: TensorBlock) -> float | None:
    if block.numbers[3] is not None:
        return block.numbers[3]
    values = block.values()
    if values is not None:
        import numpy as np

        return float(np.linalg.norm(values.ravel()))
    return max((norm for part in block.parts if (norm := _norm(part)) is not None), default=None)


def _leaves(tensors: Sequence[MeasuredTensor]) -> list[Slot]:
    """The tensors of the reference, or those of the candidate where it has only their sum."""
    slots: list[Slot] = []
    for tensor in tensors:
        if tensor.fit is not None:
            block = tensor.fit.right if tensor.fit.right.numbers[3] is not None else tensor.fit.left
            slots.append((tensor.slot, block.described()))
    return slots
