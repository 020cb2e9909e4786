"""What was compared, and how: numbers and remarks for the end of a verdict."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from msprobe.diagnose.origin.scene import Scene
from msprobe.diagnose.pairing.match import Pairing
from msprobe.diagnose.pairing.naming import notes_of
from msprobe.diagnose.verdict.micro_batches import note_of_micro_batches
from msprobe.diagnose.verdict.recordings import notes_of_recordings
from msprobe.diagnose.wording import Wording
from msprobe.statistics_table import USUAL


def counts_of(pairing: Pairing, scene: Scene) -> dict[str, Any]:
    """How many calls were paired, and how the pairs were judged."""
    states = Counter(judged.status for judged in scene.judged.values())
    blind = scene.by_rows.blind if scene.by_rows is not None else 0
    return {
        "pairs": len(pairing.partner),
        "candidate_only": len(pairing.candidate) - len(pairing.partner),
        "reference_only": len(pairing.reference) - len(pairing.partner),
        **{state: states[state] for state in ("same", "rounding", "victim", "guilty")},
        **({"not_judged": blind} if blind else {}),
    }


def listed(names: Sequence[str]) -> str:
    """The first names of a list, and how many there are besides."""
    return ", ".join(names[:5]) + (Wording(" and {} more", len(names) - 5) if len(names) > 5 else "")


def notes_on(pairing: Pairing, scene: Scene) -> list[str]:
    """Remarks on a step of a rank that are no findings."""
    notes = [*notes_of(pairing.naming), *([] if scene.comparer.crossing else notes_of_recordings(pairing))]
    notes += note_of_micro_batches(pairing)
    for left, right in sorted(scene.dtype_policy):
        notes.append(
            Wording(
                "precision: {} in the candidate where the reference has {}",
                left.removeprefix("torch."),
                right.removeprefix("torch."),
            )
        )
    if scene.comparer.products is not None:
        notes.append(scene.comparer.products.in_words())
    for timeline, side in ((pairing.candidate, "candidate"), (pairing.reference, "reference")):
        if not timeline.part.complete:
            notes.append(
                Wording(
                    "the {} was interrupted in step {}: what it recorded until then is compared", side, timeline.step
                )
            )
        if timeline.part.header.get("level") in ("L0", "mix") and len(timeline.part) and not timeline.part.parents():
            notes.append(
                Wording(
                    "the {} has no construct.json: what ran in which module is not known, and all calls are compared "
                    "as one row",
                    side,
                )
            )
    if scene.is_structure:
        notes.append("values were not recorded on both sides (task structure): compared is what is called, and how")
    elif not scene.has_values:
        usual = ", ".join(one.name for one in USUAL)
        notes.append(
            Wording(
                "no statistic by which values are judged was recorded on both sides (summary_mode: {}, or a digest): "
                "compared is what is called, and how",
                usual,
            )
        )
    return notes
