"""Records of two runs in different layouts side by side: each tensor whole, how far the two are apart, and by what
that was compared.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from msprobe.diagnose.differences.records import is_floating
from msprobe.diagnose.layout.annotation import Annotation, Split
from msprobe.diagnose.layout.blocks import Leaf, Rank, TensorBlock
from msprobe.diagnose.layout.guess import Guesses, Held, Sort, TensorSpread
from msprobe.diagnose.layout.measured import MeasuredTensor, RecordPair
from msprobe.diagnose.layout.sides import LayoutSide, ModulePlace
from msprobe.diagnose.steps import parameter_names
from msprobe.diagnose.steps.timeline import Event, Slot, is_tensor
from msprobe.diagnose.tolerance import layouts, units
from msprobe.messages import joined, said

#: Gradients are looked at until so many have shown whether the ranks' losses are means of their own samples.
_VOTES = 16


_Records = tuple[LayoutSide, dict[Rank, list[Event]]]


class Pairs:
    """Puts the records of two sides beside each other; remembers how tensors lie."""

    def __init__(self, guesses: Guesses, factor: float | None = None) -> None:
        self.guesses = guesses
        self.tally = Tally()
        #: The unit of rounding that the forward pass ran in: gradients are apart by that, whatever type they have.
        self.unit = 0.0
        self.factor = factor or 1.0
        self._learned = factor is not None

    def modules(self, candidate: LayoutSide, reference: LayoutSide, direction: str) -> Iterator[RecordPair]:
        """All passes of modules in a direction (``forward``, ``backward``, ``gradient``), in order of execution."""
        order = reference if len(reference.ranks) == 1 or len(candidate.ranks) > 1 else candidate
        for place in _ordered(order, direction):
            mine, theirs = candidate.records.get(place), reference.records.get(place)
            if mine and theirs:
                yield from self._pairs_of_place(place, (candidate, mine), (reference, theirs))

    def _pairs_of_place(self, place: ModulePlace, left: _Records, right: _Records) -> Iterator[RecordPair]:
        counts = [{len(events) for events in records.values()} for _, records in (left, right)]
        if any(len(count) > 1 for count in counts):
            self.tally.methods["not_comparable"] += 1
            self.tally.problems["ranks make a different number of passes through the module"] += 1
            return
        (mine,), (theirs,) = counts
        together = mine != theirs or (mine > 1 and self._in_other_pieces(place, left, right))
        for number in range(1 if together else mine):
            yield self._pair(place, number, *(_passes(side, number, together) for side in (left, right)))

    def _in_other_pieces(self, place: ModulePlace, left: _Records, right: _Records) -> bool:
        """True if both sides take the batch in as many pieces, and in other ones; the first module that has several
        passes says it for all.
        """
        if self.guesses.in_pieces is None and place.direction == "forward":
            for together in (False, True):
                trial = Pairs(Guesses())
                pair = trial._pair(place, 0, *(_passes(side, 0, together) for side in (left, right)))
                fits = [tensor.fit for tensor in (*pair.inputs, *pair.outputs) if tensor.fit is not None]
                if fits and all(fit.misfit <= _accepted((fit.left, fit.right)) for fit in fits):
                    self.guesses.in_pieces = together
                    break
        return bool(self.guesses.in_pieces)

    def _pair(self, place: ModulePlace, number: int, left: _Records, right: _Records) -> RecordPair:
        events = {rank: events_of_rank[0] for rank, events_of_rank in left[1].items()}
        pair = RecordPair(place, number, events, next(iter(right[1].values()))[0])
        gradient = place.direction == "backward"
        for group, sort, tensors in (
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
                whole = parameter_names.joined(place.path, name) if sort.startswith("parameter") else place.path
                measured = self.measure(slot, sort, whole, (left[0], mine), (right[0], theirs))  # type: ignore[arg-type]
                if measured is not None:
                    tensors.append(measured)
        return pair

    def measure(
        self,
        slot: str,
        sort: Sort,
        name: str,
        left: tuple[LayoutSide, list[dict[Rank, Leaf]]],
        right: tuple[LayoutSide, list[dict[Rank, Leaf]]],
    ) -> MeasuredTensor | None:
        """Put one tensor together on both sides. None if it is none on a side."""
        if not all(sides_leaves and all(sides_leaves) for sides_leaves in (left[1], right[1])):
            return None
        if sort == "parameter":
            # The same in all passes; another number of them makes no other tensor.
            left, right = (left[0], left[1][:1]), (right[0], right[1][:1])
        measured = MeasuredTensor(slot, sort, name)
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
        unit = self.unit if sort in ("gradient", "parameter_gradient") else 0.0
        accepted = _accepted((both[0].passes[0][0], both[1].passes[0][0]), unit)
        measured.fit = self.guesses.fit(place, sort, *both, accepted, factor)
        if measured.fit is None:
            measured.problem = "the values of the ranks do not make up a tensor of the shape that the other run has"
        self.tally.add(measured, both, (_is_annotated(splits[0]), _is_annotated(splits[1])))
        return measured

    def learn_factor(self, candidate: LayoutSide, reference: LayoutSide) -> None:
        """Find out what the candidate's gradients are to be multiplied with before they are compared: with one over the
        number of parts of the batch if each rank takes the mean loss of its own part.
        """
        mine, theirs = (self.tally.parts_of_batch(side) for side in ("candidate", "reference"))
        if self._learned:
            return
        choices = dict.fromkeys((1.0, theirs / mine, 1.0 / mine, float(theirs)))
        self.factor = 1.0
        if len(choices) == 1:
            return
        agreeing: Counter[float] = Counter()
        tally, self.tally = self.tally, Tally()
        guesses, self.guesses = self.guesses, Guesses(self.guesses.in_pieces)
        for factor in choices:
            self.factor, seen = factor, 0
            for direction in ("gradient", "backward"):
                for pair in self.modules(candidate, reference, direction):
                    for tensor in (*pair.inputs, *pair.outputs):
                        seen += 1
                        if (
                            tensor.fit is not None
                            and tensor.fit.how
                            and tensor.apart <= layouts.when_paired(tensor.unit)
                        ):
                            agreeing[factor] += 1
                    if seen > _VOTES:
                        break
        self.tally, self.guesses = tally, guesses
        self.factor = max(choices, key=lambda factor: agreeing[factor])


def _passes(side: _Records, number: int, together: bool) -> _Records:
    """One pass of a module, or all of them."""
    return side[0], {rank: events if together else [events[number]] for rank, events in side[1].items()}


def _accepted(blocks: tuple[TensorBlock, TensorBlock], unit: float = 0.0) -> float:
    """How far tensors may be apart that are put together otherwise. ``unit``: of what they are computed from."""
    leaves = [block.described() for block in blocks]
    if not all(map(is_floating, leaves)):
        return 0.0
    return layouts.when_paired(max(unit, *map(units.eps_of, leaves)))


def _split(annotation: Annotation | None, sort: Sort, name: str, slot: str) -> Split | None:
    if annotation is None:
        return None
    if sort in ("parameter", "parameter_gradient"):
        split = annotation.parameter_split(name)
        # Each rank of an axis with copies has its own share of the gradient.
        return split if sort == "parameter" else _divided(split)
    if sort == "activation":
        return annotation.module_split(name, slot)
    # The gradient of a result stands where gradients arrive.
    group, _, rest = slot.partition(".")
    return _divided(annotation.module_split(name, ("output." if group == "input" else "input.") + rest))


def _divided(split: Split) -> Split:
    """Of a placement what holds for the gradient, too."""
    return {axis: placement for axis, placement in split.items() if placement.kind in ("shard", "interleave")}


def _is_annotated(split: Split | None) -> bool:
    return bool(split)


def _together(
    left: dict[Rank, list[Event]], right: dict[Rank, list[Event]], group: str
) -> Iterator[tuple[str, list[dict[Rank, Leaf]], list[dict[Rank, Leaf]]]]:
    """Slot by slot the tensors of both sides: for each pass, by rank."""
    mine, theirs = _by_slot(left, group), _by_slot(right, group)
    for slot, ours in mine.items():
        if slot in theirs:
            yield slot, ours, theirs[slot]


def _by_slot(records: dict[Rank, list[Event]], group: str) -> dict[str, list[dict[Rank, Leaf]]]:
    by_slot: dict[str, list[dict[Rank, Leaf]]] = {}
    passes = len(next(iter(records.values())))
    for rank, events in records.items():
        for number, event in enumerate(events):
            for slot, leaf in _slots(event, group):
                if is_tensor(leaf):
                    by_slot.setdefault(slot, [{} for _ in range(passes)])[number][rank] = leaf
    return {
        slot: leaves
        for slot, leaves in by_slot.items()
        if all(len(leaves_of_pass) == len(leaves[0]) for leaves_of_pass in leaves)
    }


def _slots(event: Event, group: str) -> list[Slot]:
    if group == "inputs":
        return event.inputs()
    return event.parameters() if group == "parameters" else event.outputs()


def _ordered(side: LayoutSide, direction: str) -> list[ModulePlace]:
    """Places in the order of execution; backward goes through later stages first."""
    ranks = side.ranks if direction == "forward" else side.ranks[::-1]
    places: dict[ModulePlace, None] = {}
    for rank in ranks:
        for place, records in side.records.items():
            if place.direction == direction and rank in records:
                places.setdefault(place)
    return list(places)


_OF_BATCH = re.compile(r"(\d+) parts along 0\b")


@dataclass
class Tally:
    """How tensors were compared, and how those that were put together lay on the ranks."""

    methods: Counter[str] = field(default_factory=Counter)
    sources: dict[str, Counter[str]] = field(default_factory=lambda: {"candidate": Counter(), "reference": Counter()})
    spreads: dict[str, dict[str, Counter[str]]] = field(
        default_factory=lambda: {
            side: {"activation": Counter(), "parameter": Counter()} for side in ("candidate", "reference")
        }
    )
    problems: Counter[str] = field(default_factory=Counter)
    several_passes: int = 0
    types: Counter[tuple[str, str]] = field(default_factory=Counter)

    def add(self, tensor: MeasuredTensor, held: tuple[Held, Held], annotated: tuple[bool, bool]) -> None:
        """Count one tensor."""
        if tensor.fit is None:
            self.methods["not_comparable"] += 1
            self.problems[tensor.problem] += 1
            return
        self.several_passes += any(spread.over_passes is not None for spread in tensor.fit.spreads)
        types = tensor.fit.left.dtype, tensor.fit.right.dtype
        if types[0] != types[1]:
            self.types[types] += 1
        together = any(block.kind != "one" for block in (tensor.fit.left, tensor.fit.right))
        how = tensor.fit.how
        if not how:
            self.methods["without_numbers"] += 1
        elif together:
            self.methods["reassembled" if how == "values" else "invariants"] += 1
        else:
            self.methods["whole"] += 1
        for side, blocks_held, spread, is_annotated in zip(
            ("candidate", "reference"), held, tensor.fit.spreads, annotated, strict=True
        ):
            first = blocks_held.passes[0]
            if len(first) == 1 and len(first[0].ranks) == 1:
                continue
            source = "guess"
            if len(first) == 1 or any(len(block.ranks) > 1 for block in first):
                source = "placements"
            elif is_annotated:
                source = "annotation"
            self.sources[side][source] += 1
            if tensor.sort in ("activation", "parameter"):
                self.spreads[side][tensor.sort][_in_words(spread, first)] += 1

    def parts_of_batch(self, side: str) -> int:
        """Over how many parts the batch is divided, as most tensors between modules say."""
        votes: Counter[int] = Counter()
        for words, count in self.spreads[side]["activation"].items():
            match = _OF_BATCH.search(words)
            votes[int(match.group(1)) if match else 1] += count
        return votes.most_common(1)[0][0] if votes else 1


def _in_words(spread: TensorSpread, blocks: Sequence[TensorBlock]) -> str:
    """How a tensor lies on the ranks: ``2 parts along 0, each as 2 copies``."""
    words = []
    for placement, size in zip(spread.placements, spread.sizes, strict=True):
        words.append(_share(placement.kind, size, placement.dim))
    inner = blocks[0]
    while inner.parts:
        words.append(_share(inner.kind, len(inner.parts), inner.dim))
        inner = inner.parts[0]
    return joined(", each of them ", words) or "one whole"


def _share(kind: str, size: int, dim: int) -> str:
    if kind in ("shard", "interleave"):
        return said("blocks-along", size, dim) + (" in turns" if kind == "interleave" else "")
    return said("copies", size) if kind == "replicate" else said("terms-of-a", size, kind)
