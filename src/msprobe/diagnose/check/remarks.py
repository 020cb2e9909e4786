"""What is to be said of a part before its findings: what was not recorded."""

from __future__ import annotations

from collections import Counter

from msprobe.diagnose.check.values import tensors
from msprobe.diagnose.steps.timeline import Timeline
from msprobe.messages import Wording, said
from msprobe.statistics_table import USUAL_KEYS
from msprobe.store.damage import place_in_words

_MOST_PLACES = 20


class Notes:
    """Remarks in order, each once; of one that many steps and ranks have, the first places are reported and the others
    counted.
    """

    def __init__(self) -> None:
        self._places: dict[str, list[str]] = {}
        self._more: Counter[str] = Counter()

    def add(self, place: str, text: str) -> None:
        """A remark on a step or a rank; ``place`` is empty for one on the whole dump."""
        places = self._places.setdefault(text, [])
        if place in places:
            return
        if len(places) < _MOST_PLACES:
            places.append(place)
        else:
            self._more[text] += 1

    def lines(self) -> list[str]:
        """One line for each remark and place."""
        lines = []
        for text, places in self._places.items():
            lines += [Wording("{}: {}", place, text) if place else text for place in places]
            if self._more[text]:
                lines.append(said("more-steps-or-ranks", self._more[text], text))
        return lines


def notes_of(timeline: Timeline) -> list[tuple[str, str]]:
    """The remarks on one step of a rank, from the most to the least that is missing, each with its place; without one
    it is the same for the whole dump.
    """
    part = timeline.part
    place = place_in_words(part.step, part.rank)
    notes: list[tuple[str, str]] = []
    if not part.complete:
        notes.append((place, said("recording-interrupted")))
    if not len(part):
        return [*notes, (place, said("no-calls"))]
    if part.kind == "debug" or part.header.get("level") == "debug":
        text = said("level-debug")
        return [*notes, ("", text)]
    results = [leaf for event in timeline for leaf in tensors(event.outputs())]
    if results and not any(key in leaf for leaf in results for key in USUAL_KEYS):
        why = _why(part.header.get("task"), results)
        notes.append(("", said("statistics-not-recorded", why)))
    if not any(event.parts.kind == "api" for event in timeline) and any(event.is_module for event in timeline):
        notes.append(("", said("only-modules")))
    if not any(event.direction == "backward" for event in timeline):
        notes.append((said("step", part.step), said("no-backward-pass")))
    return notes


def _why(task: object, results: list[dict[str, object]]) -> str:
    if task == "structure":
        return " (task structure)"
    return " (summary_mode md5)" if any("md5" in leaf for leaf in results) else ""
