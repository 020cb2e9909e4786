"""The calls of one step that answer to each other: what the verdict judges, and what the sheet shows side by side."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from msprobe.diagnose.differences.tensor_files import TensorFiles
from msprobe.diagnose.differences.value_digests import add_digests
from msprobe.diagnose.pairing.compiled import leave_out_unseen
from msprobe.diagnose.pairing.match import Pairing, pair
from msprobe.diagnose.pairing.translation import translate
from msprobe.diagnose.steps.timeline import Timeline

if TYPE_CHECKING:
    from msprobe.compare.mapping import Mappings


@dataclass(frozen=True)
class PairedStep:
    """``crossing``: one side ran on MindSpore, the other on PyTorch. ``notes``: what was left out, in words.
    ``files``: the tensor files of both, as far as they were read.
    """

    pairing: Pairing
    crossing: bool
    notes: list[str]
    files: TensorFiles


def pair_step(
    candidate: Timeline, reference: Timeline, mappings: Mappings | None = None, known: Mapping[str, str] | None = None
) -> PairedStep:
    """Pair the calls of two timelines of one step, without those that one side alone could record.

    ``mappings``: names that are given, from MindSpore's to PyTorch's. ``known``: see
    :class:`msprobe.diagnose.one_step.Task`. Both timelines are changed.
    """
    crossing = translate(candidate, reference, mappings)
    files = TensorFiles(candidate.part, reference.part)
    if not crossing:
        add_digests(candidate, reference, files=files)
    unseen = leave_out_unseen(candidate, reference)
    _leave_out_unrecorded(candidate, reference)
    return PairedStep(pair(candidate, reference, known), crossing, unseen, files)


def _leave_out_unrecorded(candidate: Timeline, reference: Timeline) -> None:
    """Leave out the calls of one side where the other recorded modules alone: else they would be told as its own."""
    if not (candidate.part.ours and reference.part.ours):
        return
    for timeline, other in ((candidate, reference), (reference, candidate)):
        if timeline.part.header.get("level") == "mix" and other.part.header.get("level") == "L0":
            timeline.leave_out({event for event in timeline if event.parts.kind == "api"})
