"""All ranks of one run in one step: their records by module and parameter, whichever rank has them.

Names are those of the whole model: what wrappers put in front is gone, and layers that count from 0 in each stage of a
pipeline count on. The annotation says which rank is which stage, else the order of the ranks.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from msprobe.compare.entry_names import operation, plain_path
from msprobe.diagnose import operators
from msprobe.diagnose.layout.annotation import Annotation, Split, moved
from msprobe.diagnose.layout.blocks import Leaf, Rank, TensorBlock, arrange, block_of_leaf
from msprobe.diagnose.layout.guess import Held
from msprobe.diagnose.layout.placements import Placement, holding
from msprobe.diagnose.steps import optimizer
from msprobe.diagnose.steps.timeline import Event, Timeline, is_tensor
from msprobe.store.damage import place_in_words
from msprobe.store.part import DumpPart


class ModulePlace(NamedTuple):
    """What records of several ranks have in common: the direction and the path of a module (or a parameter's name)."""

    direction: str
    path: str


class ParameterStep(NamedTuple):
    """What one rank recorded of a parameter at one step of the optimizer."""

    event: Event
    before: dict[str, Any]
    after: dict[str, Any]


class LayoutSide:
    """``records``: the events of modules by place and rank, those of each rank by the number of their pass.

    ``parameters``: by name and rank, what each step of the optimizer has of it. ``offsets``: by rank, which groups of
    layers begin at another number than 0, where that was found out by the order of the ranks.
    """

    def __init__(self, parts: Sequence[DumpPart], annotation: Annotation | None = None) -> None:
        self.parts = {part.rank: part for part in parts}
        self.ranks: list[Rank] = list(self.parts)
        self.annotation = annotation
        self.timelines = {rank: Timeline(part) for rank, part in self.parts.items()}
        self.offsets: dict[Rank, dict[str, int]] = {}
        self.records: dict[ModulePlace, dict[Rank, list[Event]]] = {}
        self.parameters: dict[str, dict[Rank, list[ParameterStep]]] = {}
        self.collect()

    @property
    def unread(self) -> list[str]:
        """The tensor files that were asked for and could not be read; not those of interrupted parts."""
        return [
            f"{place_in_words(part.step, part.rank)}: {name}"
            for part in self.parts.values()
            if part.complete
            for name in part.unread
        ]

    def close(self) -> None:
        """Let go of all records."""
        for timeline in self.timelines.values():
            timeline.close()
        for part in self.parts.values():
            part.close()

    def name(self, name: str, rank: Rank) -> str:
        """The name in the whole model of a module or parameter of a rank."""
        renamed = plain_path(name)
        if self.annotation is not None:
            renamed = self.annotation.renamed(renamed, self.position(rank))
        for group, offset in self.offsets.get(rank, {}).items():
            renamed = moved(renamed, group, offset)
        return renamed

    def position(self, rank: Rank) -> int:
        """The place of a rank among those of the run."""
        return rank if isinstance(rank, int) else self.ranks.index(rank)

    def collect(self) -> None:
        """Read all records under the names of the whole model."""
        self.records, self.parameters = {}, {}
        for rank, timeline in self.timelines.items():
            passes: dict[ModulePlace, dict[int, Event]] = {}
            for event in timeline:
                if event.parts.kind == "optimizer":
                    self._collect_step(event, rank)
                elif event.parts.kind in ("module", "parameters") and event.direction != "recompute":
                    path = self.name(event.parts.path, rank)
                    number = -1 if event.parts.number is None else event.parts.number
                    if event.direction == "gradient" and not any(is_tensor(leaf) for _, leaf in event.outputs()):
                        continue
                    passes.setdefault(ModulePlace(event.direction, path), {})[number] = event
            for place, by_number in passes.items():
                if place.direction == "gradient" and len(by_number) > 1:
                    by_number.pop(-1, None)  # the last of the numbered ones once more
                self.records.setdefault(place, {})[rank] = [by_number[number] for number in sorted(by_number)]

    def _collect_step(self, event: Event, rank: Rank) -> None:
        results = optimizer.results_of(event)
        for name, fields in optimizer.parameters_of(event).items():
            after = results.get(name)
            if isinstance(fields, dict):
                own = self.parameters.setdefault(self.name(name, rank), {}).setdefault(rank, [])
                own.append(ParameterStep(event, fields, after if isinstance(after, dict) else {}))

    def held(self, leaves: Sequence[dict[Rank, Leaf]], split: Split | None = None) -> Held | None:
        """What the ranks hold of a tensor; ``leaves``: for each pass, by rank. None if a rank of a mesh is missing."""
        passes = [self._blocks(leaf) for leaf in leaves]
        done = [blocks for blocks in passes if blocks is not None]
        if len(done) < len(passes) or len({len(blocks) for blocks in done}) > 1:
            return None
        ranks = [block.ranks for block in done[0]]
        if split is None or self.annotation is None or any(len(rank) > 1 for rank in ranks):
            return Held(tuple(map(tuple, done)))
        mesh = self._mesh_of([rank[0] for rank in ranks])
        if mesh is None:
            return Held(tuple(map(tuple, done)))
        sizes = tuple(size for _, size in mesh)
        dimensions = len(done[0][0].shape)
        return Held(tuple(map(tuple, done)), sizes, tuple(_fitting(split.get(axis), dimensions) for axis, _ in mesh))

    def _blocks(self, leaves: dict[Rank, Leaf]) -> list[TensorBlock] | None:
        """A block for each rank; ranks that hold one DTensor give one block together."""
        blocks_held: list[TensorBlock] = []
        taken: set[Rank] = set()
        for rank, leaf in leaves.items():
            if rank in taken:
                continue
            mesh = holding(leaf)
            if mesh is None:
                blocks_held.append(block_of_leaf(leaf, self.parts[rank], rank))
                continue
            ranks, sizes, placements = mesh
            if any(rank not in leaves for rank in ranks):
                if len(self.ranks) == 1 and len(ranks) == 1:
                    blocks_held.append(block_of_leaf(leaf, self.parts[rank], rank))
                    continue
                return None
            taken.update(ranks)
            blocks = [block_of_leaf(leaves[rank], self.parts[rank], rank) for rank in ranks]
            whole = arrange(blocks, sizes, placements)
            if whole is None:
                return None
            blocks_held.append(whole)
        return blocks_held

    def _mesh_of(self, ranks: Sequence[Rank]) -> list[tuple[str, int]] | None:
        """The axes of the annotated mesh that these ranks span; None if they are no full part of it."""
        assert self.annotation is not None
        places = [self.annotation.place(self.position(rank)) for rank in ranks]
        spans = [(axis, len({place[axis] for place in places})) for axis, _ in self.annotation.mesh]
        count = 1
        for _, span in spans:
            count *= span
        return [(axis, span) for axis, span in spans if span > 1] if count == len(ranks) else None

    def layer_groups(self) -> dict[str, list[tuple[Rank, int]]]:
        """Groups of numbered modules, and how many each rank has of them."""
        numbers_by_rank: dict[str, dict[Rank, set[int]]] = {}
        for rank, names in self.names():
            for name in names:
                parts = name.split(".")
                for place, part in enumerate(parts):
                    if part.isdigit():
                        numbers_by_rank.setdefault(".".join(parts[:place]), {}).setdefault(rank, set()).add(int(part))
                        break
        return {
            group: [(rank, len(numbers)) for rank, numbers in ranks.items()]
            for group, ranks in numbers_by_rank.items()
            if all(numbers == set(range(len(numbers))) for numbers in ranks.values())
        }

    def count_on(self, group: str, stages: Sequence[Sequence[Rank]], sizes: Sequence[int]) -> None:
        """Let the layers of a group count on from stage to stage."""
        begin = 0
        for ranks, size in zip(stages, sizes, strict=True):
            for rank in ranks:
                self.offsets.setdefault(rank, {})[group] = begin
            begin += size

    def is_pipeline(self) -> bool:
        """True if the first and the last rank have other modules, or hand tensors from one to the other."""
        names = dict(self.names())
        if set(names[self.ranks[0]]) != set(names[self.ranks[-1]]):
            return True
        return any(
            event.is_collective and operation(event.stem) in operators.BETWEEN_TWO
            for event in self.timelines[self.ranks[0]]
        )

    def names(self) -> Iterator[tuple[Rank, list[str]]]:
        """Each rank, and the names of its modules and parameters."""
        for rank in self.ranks:
            modules = [place.path for place, ranks in self.records.items() if rank in ranks]
            yield rank, [*modules, *(name for name, ranks in self.parameters.items() if rank in ranks)]


def _fitting(placement: Placement | None, dimensions: int) -> Placement | None:
    """A placement that a tensor of so many dimensions can have: the count of steps that an optimizer keeps of a divided
    parameter is not divided.
    """
    if placement is not None and placement.kind in ("shard", "interleave"):
        return placement if -dimensions <= placement.dim < dimensions else None
    return placement


def number_stages(side: LayoutSide, other: LayoutSide) -> bool:
    """Let the layers of later stages count on, if all ranks of ``side`` count from 0 and together have as many layers
    as ``other``. True if that was done.
    """
    if side.annotation is not None and side.annotation.stage_axis is not None:
        return False
    if not side.is_pipeline():
        return False
    theirs = other.layer_groups()
    done = False
    for group, counts in side.layer_groups().items():
        wanted = max((count for _, count in theirs.get(group, ())), default=0)
        if not wanted or any(count >= wanted for _, count in counts):
            continue
        for stages in (n for n in range(2, len(counts) + 1) if len(counts) % n == 0):
            beside = len(counts) // stages
            stage_counts = [counts[place * beside : (place + 1) * beside] for place in range(stages)]
            sizes = [{count for _, count in stage} for stage in stage_counts]
            if (
                all(len(numbers_of_stage) == 1 for numbers_of_stage in sizes)
                and sum(min(numbers_of_stage) for numbers_of_stage in sizes) == wanted
            ):
                side.count_on(
                    group,
                    [[rank for rank, _ in stage] for stage in stage_counts],
                    [min(numbers_of_stage) for numbers_of_stage in sizes],
                )
                done = True
                break
    if done:
        side.collect()
    return done


def number_both(side: LayoutSide, other: LayoutSide) -> bool:
    """The same for two pipelines of two stages in both of which layers count from 0. True if that was done."""
    if not (side.is_pipeline() and other.is_pipeline()):
        return False
    plans = []
    for known in (side, other):
        if known.offsets or (known.annotation is not None and known.annotation.stage_axis is not None):
            return False
        plans.append({group: _two_stages(known, counts) for group, counts in known.layer_groups().items()})
    groups = [group for group, plan in plans[0].items() if plan is not None and plans[1].get(group) is not None]
    done = False
    for group in groups:
        mine, theirs = plans[0][group], plans[1][group]
        if mine is not None and theirs is not None and sum(mine[1]) == sum(theirs[1]):
            side.count_on(group, *mine)
            other.count_on(group, *theirs)
            done = True
    if done:
        side.collect()
        other.collect()
    return done


def _two_stages(side: LayoutSide, counts: Sequence[tuple[Rank, int]]) -> tuple[list[list[Rank]], list[int]] | None:
    """Ranks and numbers of layers of both stages: ranks with the modules of the first, then those of the last."""
    names = {rank: frozenset(names_of_rank) for rank, names_of_rank in side.names()}
    first, last = names[side.ranks[0]], names[side.ranks[-1]]
    stages = [[rank for rank, _ in counts if names[rank] == own] for own in (first, last)]
    sizes = [{count for rank, count in counts if rank in ranks} for ranks in stages]
    whole = sum(map(len, stages)) == len(side.ranks) and stages[0] + stages[1] == side.ranks
    return (stages, [min(size) for size in sizes]) if whole and all(len(size) == 1 for size in sizes) else None
