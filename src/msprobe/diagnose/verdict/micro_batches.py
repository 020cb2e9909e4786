"""The same batch in other micro-batches: calls do not answer to each other then, and modules do, put together."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable
from typing import Any

from msprobe.compare.entry_names import plain_path
from msprobe.diagnose.differences.records import fingerprint
from msprobe.diagnose.pairing.match import Pairing
from msprobe.diagnose.steps.timeline import Timeline, is_tensor
from msprobe.messages import Wording, said

_HINT = said("put-passes-together")


def note_of_micro_batches(pairing: Pairing) -> list[str]:
    """How to compare runs that give a model the same batch in other micro-batches, or in another order of these; empty
    unless the dumps show that.
    """
    mine, theirs = _batches(pairing.candidate), _batches(pairing.reference)
    sizes = [[shape[0] for shape, _ in batches] for batches in (mine, theirs)]
    if not mine or not theirs or len({shape[1:] for shape, _ in (*mine, *theirs)}) > 1:
        return []
    if len(mine) != len(theirs):
        if sum(sizes[0]) != sum(sizes[1]):
            return []
        text = said("batch-split-differs", _in_words(sizes[0]), _in_words(sizes[1]))
    elif [mark for _, mark in mine] != [mark for _, mark in theirs] and Counter(mine) == Counter(theirs):
        text = said("micro-batches-reordered", len(mine))
    else:
        return []
    return [Wording("{}; {}", text, _HINT)]


def _batches(timeline: Timeline) -> list[tuple[tuple[int, ...], Hashable]]:
    """The shape of what each pass of the first module takes, and what distinguishes it from others."""
    batches: list[tuple[tuple[int, ...], Hashable]] = []
    first = ""
    for event in timeline:
        if not event.is_module or event.parent is not None or event.direction != "forward":
            continue
        path = plain_path(event.parts.path)
        first = first or path
        taken: Any = next((leaf for _, leaf in event.inputs() if is_tensor(leaf) and leaf.get("shape")), None)
        if path == first and taken is not None:
            batches.append((tuple(taken["shape"]), fingerprint(taken)))
    return batches


def _in_words(sizes: list[int]) -> str:
    plural = "es" * (len(sizes) > 1)
    return (
        said("micro-batches-of-size", len(sizes), plural, sizes[0])
        if len(set(sizes)) == 1
        else said("micro-batches-of-sizes", len(sizes), plural, ", ".join(map(str, sizes)))
    )
