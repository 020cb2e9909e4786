"""How tensors were compared, and how they lay on the ranks of both sides."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from msprobe.diagnose.layout.blocks import TensorBlock
from msprobe.diagnose.layout.guess import Held, TensorSpread
from msprobe.diagnose.layout.measured import MeasuredTensor
from msprobe.messages import joined, said

_OF_BATCH = re.compile(r"(\d+) parts along 0\b")


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

    def add(self, found: MeasuredTensor, held: tuple[Held, Held], annotated: tuple[bool, bool]) -> None:
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
        for side, one, way, is_annotated in zip(
            ("candidate", "reference"), held, found.fit.ways, annotated, strict=True
        ):
            first = one.passes[0]
            if len(first) == 1 and len(first[0].ranks) == 1:
                continue
            source = "guess"
            if len(first) == 1 or any(len(block.ranks) > 1 for block in first):
                source = "placements"
            elif is_annotated:
                source = "annotation"
            self.sources[side][source] += 1
            if found.sort in ("activation", "parameter"):
                self.ways[side][found.sort][_in_words(way, first)] += 1

    def parts_of_batch(self, side: str) -> int:
        """Over how many parts the batch is divided, as most tensors between modules say."""
        votes: Counter[int] = Counter()
        for words, count in self.ways[side]["activation"].items():
            match = _OF_BATCH.search(words)
            votes[int(match.group(1)) if match else 1] += count
        return votes.most_common(1)[0][0] if votes else 1


def _in_words(way: TensorSpread, blocks: Sequence[TensorBlock]) -> str:
    """How a tensor lies on the ranks: ``2 parts along 0, each as 2 copies``."""
    words = []
    for placement, size in zip(way.placements, way.sizes, strict=True):
        words.append(_share(placement.way, size, placement.dim))
    inner = blocks[0]
    while inner.parts:
        words.append(_share(inner.way, len(inner.parts), inner.dim))
        inner = inner.parts[0]
    return joined(", each of them ", words) or "one whole"


def _share(way: str, size: int, dim: int) -> str:
    if way in ("shard", "interleave"):
        return said("blocks-along", size, dim) + (" in turns" if way == "interleave" else "")
    return said("copies", size) if way == "replicate" else said("terms-of-a", size, way)
