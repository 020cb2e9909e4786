"""What is to be said of a part before its findings: what was not recorded."""

from __future__ import annotations

from msprobe.diagnose.check.values import tensors
from msprobe.diagnose.steps.timeline import Timeline
from msprobe.store.damage import place_in_words


def notes_of(timeline: Timeline) -> list[str]:
    """The remarks on one step of a rank, from the most to the least that is missing."""
    part = timeline.part
    place = place_in_words(part.step, part.rank)
    found = []
    if not part.complete:
        found.append(f"{place}: the recording was interrupted; what is there was checked")
    if not len(part):
        return [*found, f"{place}: no call was recorded"]
    if part.kind == "debug" or part.header.get("level") == "debug":
        return [*found, "level debug: values that were saved by hand; the checks look at calls, and there are none"]
    results = [leaf for event in timeline for leaf in tensors(event.outputs())]
    if results and not any("Max" in leaf for leaf in results):
        found.append(f"no statistics were recorded{_why(part.header.get('task'), results)}; most checks need them")
    if not any(event.parts.kind == "api" for event in timeline) and any(event.is_module for event in timeline):
        found.append("only modules were recorded (L0): checks of single calls see nothing")
    if not any(event.direction == "backward" for event in timeline):
        found.append(f"step {part.step}: no backward pass was recorded")
    return found


def _why(task: object, results: list[dict[str, object]]) -> str:
    if task == "structure":
        return " (task structure)"
    return " (summary_mode md5)" if any("md5" in leaf for leaf in results) else ""
