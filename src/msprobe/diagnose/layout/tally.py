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
