"""What was compared, and how: numbers and remarks for the end of a verdict."""

from __future__ import annotations

from collections import Counter
from typing import Any

from msprobe.diagnose.origin.scene import Scene
from msprobe.diagnose.pairing.match import Pairing
from msprobe.diagnose.pairing.naming import notes_of
from msprobe.diagnose.verdict.micro_batches import note_of_micro_batches
from msprobe.diagnose.verdict.recordings import notes_of_recordings
from msprobe.messages import said
from msprobe.statistics_table import USUAL


def counts_of(pairing: Pairing, scene: Scene) -> dict[str, Any]:
    """How many calls were paired, and how the pairs were judged."""
    explained = scene.by_rows.explained if scene.by_rows is not None else frozenset()
    states = Counter(
        "explained" if judged.status == "unexplained" and judged.event in explained else judged.status
        for judged in scene.judged.values()
    )
    blind = scene.by_rows.blind if scene.by_rows is not None else 0
    return {
        "pairs": len(pairing.partner),
        "candidate_only": len(pairing.candidate) - len(pairing.partner),
        "reference_only": len(pairing.reference) - len(pairing.partner),
        **{state: states[state] for state in ("same", "rounding", "explained", "unexplained")},
        **({"not_judged": blind} if blind else {}),
    }


def lone_calls(pairing: Pairing) -> list[str]:
    """Calls that one side alone makes, as far as the other would have recorded them."""
    part, other = pairing.candidate.part, pairing.reference.part
    if not (part.ours and other.ours) or part.header.get("level") != other.header.get("level"):
        return []
    return [event.name for event in [*pairing.alone(), *pairing.missing()] if event.direction != "recompute"]


def notes_on(pairing: Pairing, scene: Scene) -> list[str]:
    """Remarks on a step of a rank that are no findings."""
    notes = [*notes_of(pairing.naming), *([] if scene.comparer.crossing else notes_of_recordings(pairing))]
    notes += note_of_micro_batches(pairing)
    for left, right in sorted(scene.dtype_policy):
        notes.append(said("precision-differs", left.removeprefix("torch."), right.removeprefix("torch.")))
    if scene.comparer.products is not None:
        notes.append(scene.comparer.products.in_words())
    for timeline, side in ((pairing.candidate, "candidate"), (pairing.reference, "reference")):
        if not timeline.part.complete:
            notes.append(said("interrupted-in-step", side, timeline.step))
        if timeline.part.header.get("level") in ("L0", "mix") and len(timeline.part) and not timeline.part.parents():
            notes.append(said("construct-missing", side))
    if scene.is_structure:
        notes.append(said("structure-only"))
    elif not scene.has_values:
        usual = ", ".join(statistic.name for statistic in USUAL)
        notes.append(said("values-not-recorded", usual))
    return notes
