"""Records of two runs in different layouts side by side: each tensor whole, and how far the two are apart."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from msprobe.diagnose import noise
from msprobe.diagnose.differences import is_floating
from msprobe.diagnose.layout.annotation import Annotation, Split
from msprobe.diagnose.layout.blocks import Block, Leaf, Rank
from msprobe.diagnose.layout.guess import Fit, Guesses, Held, Sort, Way
from msprobe.diagnose.layout.sides import Place, Side
from msprobe.diagnose.timeline import Event, Slot, is_tensor

#: Units of rounding that a tensor and the same one put together from others may be apart when they are paired.
_PAIRED = 4096.0
_MOST_PAIRED = 0.05
#: Units that copies may be apart: ranks may add in another order, and take other kernels.
COPIES = 256.0
_OF_BATCH = re.compile(r"(\d+) parts along 0\b")
#: Gradients are looked at until so many told whether the ranks' losses are means of their own samples.
_VOTES = 16


@dataclass
class Measured:
    """One tensor of a record: whole on both sides, or ``problem`` says why not."""

    slot: str
    sort: Sort
    name: str
    fit: Fit | None = None
    problem: str = ""

    @property
    def copies(self) -> list[tuple[Rank, Rank, float]]:
        """Ranks of the candidate whose copies differ by more than they may: (rank, rank compared with, distance)."""
        found = self.fit.copies if self.fit is not None else ()
        return [one for one in found if one[2] > COPIES * self.unit]

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
    def unit(self) -> float:
        """The rounding unit of the coarser type."""
        if self.fit is None:
            return 0.0
        return max(noise.eps_of(block.described()) for block in (self.fit.left, self.fit.right))


@dataclass
class Pair:
    """A record of both runs, of one pass of a module or of all of them."""

    place: Place
    number: int
    events: dict[Rank, Event]
    partner: Event
    inputs: list[Measured] = field(default_factory=list)
    parameters: list[Measured] = field(default_factory=list)
    outputs: list[Measured] = field(default_factory=list)

    @property
    def event(self) -> Event:
        """The record of the first rank that has it."""
        return next(iter(self.events.values()))

    @property
    def left(self) -> float:
        """How far the results are apart at most."""
        return max((one.apart for one in self.outputs), default=0.0)

    @property
    def arrived(self) -> float:
        """How far what went in is apart at most."""
        return max((one.apart for one in (*self.inputs, *self.parameters)), default=0.0)

    def forget(self) -> None:
        """Let go of values that were read: a model has more tensors than memory holds."""
        for one in (*self.inputs, *self.parameters, *self.outputs):
            one.forget()

    def own_noise(self) -> tuple[float, float]:
        """What the pass may add itself, and how many times larger what came in may become (see ``noise``)."""
        inputs, outputs = _leaves([*self.inputs, *self.parameters]), _leaves(self.outputs)
        rounding = noise.unit(inputs, outputs)
        factor = noise.amplification(self.partner, inputs, outputs)
        return noise.own_noise(self.partner, inputs, outputs, rounding, min(factor, 64.0)), factor


@dataclass
class Tally:
    """How tensors were compared, and how those that were put together lay on the ranks."""

    methods: Counter[str] = field(default_factory=Counter)
    sources: dict[str, Counter[str]] = field(default_factory=lambda: {"candidate": Counter(), "reference": Counter()})
    ways: dict[str, dict[str, Counter[str]]] = field(
        default_factory=lambda: {
            side: {"activation": Counter(), "parameter": Counter()} for side in ("candidate", "reference")
        }
    )
    problems: Counter[str] = field(default_factory=Counter)
    of_passes: int = 0
    types: Counter[tuple[str, str]] = field(default_factory=Counter)

    def add(self, found: Measured, held: tuple[Held, Held], annotated: tuple[bool, bool]) -> None:
        """Count one tensor."""
        if found.fit is None:
            self.methods["not_comparable"] += 1
            self.problems[found.problem] += 1
            return
        self.of_passes += any(way.over_passes is not None for way in found.fit.ways)
        types = found.fit.left.dtype, found.fit.right.dtype
        if types[0] != types[1]:
            self.types[types] += 1
        together = any(block.way != "one" for block in (found.fit.left, found.fit.right))
        how = found.fit.how
        if not how:
            self.methods["without_numbers"] += 1
        elif together:
            self.methods["reassembled" if how == "values" else "invariants"] += 1
        else:
            self.methods["whole"] += 1
        for side, one, way, told in zip(("candidate", "reference"), held, found.fit.ways, annotated, strict=True):
            first = one.passes[0]
            if len(first) == 1 and len(first[0].ranks) == 1:
                continue
            source = "guess"
            if len(first) == 1 or any(len(block.ranks) > 1 for block in first):
                source = "placements"
            elif told:
                source = "annotation"
            self.sources[side][source] += 1
            if found.sort in ("activation", "parameter"):
                self.ways[side][found.sort][_in_words(way, first)] += 1


class Pairs:
    """Puts the records of two sides beside each other; remembers how tensors lie."""

    def __init__(self, guesses: Guesses, factor: float | None = None) -> None:
        self.guesses = guesses
        self.tally = Tally()
        self.factor = factor or 1.0
        self._learned = factor is not None

    def modules(self, candidate: Side, reference: Side, direction: str) -> Iterator[Pair]:
        """All passes of modules in a direction (``forward``, ``backward``, ``gradient``), in order of execution."""
        order = reference if len(reference.ranks) == 1 or len(candidate.ranks) > 1 else candidate
        for place in _ordered(order, direction):
            mine, theirs = candidate.records.get(place), reference.records.get(place)
            if mine and theirs:
                yield from self._of_place(place, (candidate, mine), (reference, theirs))

    def _of_place(
        self, place: Place, left: tuple[Side, dict[Rank, list[Event]]], right: tuple[Side, dict[Rank, list[Event]]]
    ) -> Iterator[Pair]:
        counts = [{len(events) for events in records.values()} for _, records in (left, right)]
        if any(len(one) > 1 for one in counts):
            self.tally.methods["not_comparable"] += 1
            self.tally.problems["ranks make another number of passes through the module"] += 1
            return
        (mine,), (theirs,) = counts
        together = mine != theirs
        for number in range(1 if together else mine):
            chosen = [
                {rank: events if together else [events[number]] for rank, events in records.items()}
                for _, records in (left, right)
            ]
            yield self._pair(place, number, (left[0], chosen[0]), (right[0], chosen[1]))

    def _pair(
        self,
        place: Place,
        number: int,
        left: tuple[Side, dict[Rank, list[Event]]],
        right: tuple[Side, dict[Rank, list[Event]]],
    ) -> Pair:
        events = {rank: found[0] for rank, found in left[1].items()}
        pair = Pair(place, number, events, next(iter(right[1].values()))[0])
        gradient = place.direction == "backward"
        for group, sort, found in (
            ("inputs", "gradient" if gradient else "activation", pair.inputs),
            ("parameters", "parameter", pair.parameters),
            (
                "outputs",
                {"backward": "gradient", "gradient": "parameter_gradient"}.get(place.direction, "activation"),
                pair.outputs,
            ),
        ):
            for slot, mine, theirs in _together(left[1], right[1], group):
                name = slot.partition(".")[2] if group == "parameters" else slot.partition(".")[0]
                whole = f"{place.path}.{name}".removeprefix(".") if sort.startswith("parameter") else place.path
                measured = self.measure(slot, sort, whole, (left[0], mine), (right[0], theirs))  # type: ignore[arg-type]
                if measured is not None:
                    found.append(measured)
        return pair

    def measure(
        self,
        slot: str,
        sort: Sort,
        name: str,
        left: tuple[Side, list[dict[Rank, Leaf]]],
        right: tuple[Side, list[dict[Rank, Leaf]]],
    ) -> Measured | None:
        """Put one tensor together on both sides. None if it is none on a side."""
        if not all(one and all(one) for one in (left[1], right[1])):
            return None
        if sort == "parameter":
            # The same in all passes; another number of them makes no other tensor.
            left, right = (left[0], left[1][:1]), (right[0], right[1][:1])
        measured = Measured(slot, sort, name)
        splits = [_split(side.annotation, sort, name, slot) for side, _ in (left, right)]
        held = [side.held(leaves, split) for (side, leaves), split in zip((left, right), splits, strict=True)]
        if held[0] is None or held[1] is None:
            measured.problem = "parts of it are on ranks that were not recorded"
            self.tally.methods["not_comparable"] += 1
            self.tally.problems[measured.problem] += 1
            return measured
        both = (held[0], held[1])
        factor = self.factor if sort in ("gradient", "parameter_gradient") else 1.0
        # Weight, gradient and states of a parameter lie alike.
        place = name if sort == "parameter" else f"{name} {slot}"
        measured.fit = self.guesses.fit(place, sort, *both, _accepted(both), factor)
        if measured.fit is None:
            measured.problem = "what the ranks hold makes no tensor of the shape that the other run has"
        self.tally.add(measured, both, (_told(splits[0]), _told(splits[1])))
        return measured

    def learn_factor(self, candidate: Side, reference: Side) -> None:
        """Find out what the candidate's gradients are to be multiplied with before they are compared: with one over the
        number of parts of the batch if each rank takes the mean loss of its own part.
        """
        mine, theirs = (_parts_of_batch(self.tally.ways[side]["activation"]) for side in ("candidate", "reference"))
        if self._learned:
            return
        choices = dict.fromkeys((1.0, theirs / mine, 1.0 / mine, float(theirs)))
        self.factor = 1.0
        if len(choices) == 1:
            return
        agreeing: Counter[float] = Counter()
        tally, self.tally = self.tally, Tally()
        guesses, self.guesses = self.guesses, Guesses()
        for factor in choices:
            self.factor, seen = factor, 0
            for direction in ("gradient", "backward"):
                for pair in self.modules(candidate, reference, direction):
                    for one in (*pair.inputs, *pair.outputs):
                        seen += 1
                        if one.fit is not None and one.fit.how and one.apart <= min(_PAIRED * one.unit, _MOST_PAIRED):
                            agreeing[factor] += 1
                    if seen > _VOTES:
                        break
        self.tally, self.guesses = tally, guesses
        self.factor = max(choices, key=lambda one: agreeing[one])


def _norm(block: Block) -> float | None:
    if block.numbers[3] is not None:
        return block.numbers[3]
    values = block.values()
    if values is not None:
        import numpy as np

        return float(np.linalg.norm(values.ravel()))
    return max((one for part in block.parts if (one := _norm(part)) is not None), default=None)


def _parts_of_batch(ways: Counter[str]) -> int:
    """Over how many parts the batch is divided, as most tensors between modules say."""
    votes: Counter[int] = Counter()
    for words, count in ways.items():
        match = _OF_BATCH.search(words)
        votes[int(match.group(1)) if match else 1] += count
    return votes.most_common(1)[0][0] if votes else 1


def _in_words(way: Way, blocks: Sequence[Block]) -> str:
    """How a tensor lies on the ranks: ``2 parts along 0, each as 2 copies``."""
    words = []
    for placement, size in zip(way.placements, way.sizes, strict=True):
        words.append(_share(placement.way, size, placement.dim))
    inner = blocks[0]
    while inner.parts:
        words.append(_share(inner.way, len(inner.parts), inner.dim))
        inner = inner.parts[0]
    return ", each of them ".join(words) or "one whole"


def _share(way: str, size: int, dim: int) -> str:
    if way in ("shard", "interleave"):
        return f"{size} parts along {dim}" + (" in turns" if way == "interleave" else "")
    return f"{size} copies" if way == "replicate" else f"{size} terms of a {way}"


def _accepted(held: tuple[Held, Held]) -> float:
    leaves = [one.passes[0][0].described() for one in held]
    if not all(map(is_floating, leaves)):
        return 0.0
    return min(_PAIRED * max(map(noise.eps_of, leaves)), _MOST_PAIRED)


def _split(annotation: Annotation | None, sort: Sort, name: str, slot: str) -> Split | None:
    if annotation is None:
        return None
    if sort in ("parameter", "parameter_gradient"):
        split = annotation.of_parameter(name)
        # Each rank of an axis with copies has its own share of the gradient.
        return split if sort == "parameter" else _divided(split)
    if sort == "activation":
        return annotation.of_module(name, slot)
    # The gradient of a result stands where gradients arrive.
    group, _, rest = slot.partition(".")
    return _divided(annotation.of_module(name, ("output." if group == "input" else "input.") + rest))


def _divided(split: Split) -> Split:
    """Of a placement what holds for the gradient, too."""
    return {axis: one for axis, one in split.items() if one.way in ("shard", "interleave")}


def _told(split: Split | None) -> bool:
    return bool(split)


def _together(
    left: dict[Rank, list[Event]], right: dict[Rank, list[Event]], group: str
) -> Iterator[tuple[str, list[dict[Rank, Leaf]], list[dict[Rank, Leaf]]]]:
    """Slot by slot the tensors of both sides: for each pass, by rank."""
    mine, theirs = _by_slot(left, group), _by_slot(right, group)
    for slot, found in mine.items():
        if slot in theirs:
            yield slot, found, theirs[slot]


def _by_slot(records: dict[Rank, list[Event]], group: str) -> dict[str, list[dict[Rank, Leaf]]]:
    found: dict[str, list[dict[Rank, Leaf]]] = {}
    passes = len(next(iter(records.values())))
    for rank, events in records.items():
        for number, event in enumerate(events):
            for slot, leaf in _slots(event, group):
                if is_tensor(leaf):
                    found.setdefault(slot, [{} for _ in range(passes)])[number][rank] = leaf
    return {slot: leaves for slot, leaves in found.items() if all(len(one) == len(leaves[0]) for one in leaves)}


def _slots(event: Event, group: str) -> list[Slot]:
    if group == "inputs":
        return event.inputs()
    return event.parameters() if group == "parameters" else event.outputs()


def _leaves(found: Sequence[Measured]) -> list[Slot]:
    """The tensors of the reference, or those of the candidate where it has only their sum."""
    slots: list[Slot] = []
    for one in found:
        if one.fit is not None:
            block = one.fit.right if one.fit.right.numbers[3] is not None else one.fit.left
            slots.append((one.slot, block.described()))
    return slots


def _ordered(side: Side, direction: str) -> list[Place]:
    """Places in the order of execution; backward goes through later stages first."""
    ranks = side.ranks if direction == "forward" else side.ranks[::-1]
    found: dict[Place, None] = {}
    for rank in ranks:
        for place, records in side.records.items():
            if place.direction == direction and rank in records:
                found.setdefault(place)
    return list(found)
