"""The calls of one step that answer to each other: what the verdict judges, and what the sheet shows side by side."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from msprobe.diagnose.differences.records import Comparer
from msprobe.diagnose.differences.tensor_files import TensorFiles
from msprobe.diagnose.differences.value_digests import add_digests
from msprobe.diagnose.pairing.compiled import leave_out_unseen
from msprobe.diagnose.pairing.exchanged_passes import part_other_exchanges
from msprobe.diagnose.pairing.interrupted import leave_out_unreached
from msprobe.diagnose.pairing.match import Pairing, pair
from msprobe.diagnose.pairing.translation import translate
from msprobe.diagnose.steps.timeline import Timeline
from msprobe.diagnose.steps.written import add_written

if TYPE_CHECKING:
    from msprobe.compare.mapping import Mappings


@dataclass(frozen=True)
class Paired:
    """Two timelines whose calls answer to each other, and what compares their values.

    ``crossing``: one ran on MindSpore, the other on PyTorch. ``unseen``: remarks on what one side could not record.
    """

    pairing: Pairing
    comparer: Comparer
    crossing: bool
    unseen: tuple[str, ...]


def pair_timelines(
    candidate: Timeline,
    reference: Timeline,
    mappings: Mappings | None = None,
    follows: bool = False,
    known: Mapping[str, str] | None = None,
) -> Paired:
    """Pair the calls of two timelines of one step, without those that one side alone could record: for the verdict, the
    second healthy run, sheets, graphs and the page. Both timelines are changed.

    ``mappings``: names that are given, from MindSpore's to PyTorch's. ``follows``: steps of both sides came before.
    ``known``: see :class:`msprobe.diagnose.one_step.StepTask`.
    """
    crossing = translate(candidate, reference, mappings)
    files = TensorFiles(candidate.part, reference.part)
    if not crossing:
        add_digests(candidate, reference, files=files)
    unseen = leave_out_unseen(candidate, reference)
    _leave_out_unrecorded(candidate, reference)
    pairing = pair(candidate, reference, known)
    if not crossing:
        part_other_exchanges(pairing)
        add_written(candidate)
        add_written(reference)
    leave_out_unreached(pairing)
    comparer = Comparer(candidate.part, reference.part, files)
    comparer.crossing, comparer.follows = crossing, follows
    return Paired(pairing, comparer, crossing, tuple(unseen))


def _leave_out_unrecorded(candidate: Timeline, reference: Timeline) -> None:
    """Leave out the calls of one side where the other recorded modules alone: else they would be reported as its
    own.
    """
    if not (candidate.part.ours and reference.part.ours):
        return
    for timeline, other in ((candidate, reference), (reference, candidate)):
        if timeline.part.header.get("level") == "mix" and other.part.header.get("level") == "L0":
            timeline.leave_out({event for event in timeline if event.parts.kind == "api"})
