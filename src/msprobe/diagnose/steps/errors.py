"""Calls that raised an error, and whether the program went on behind them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from msprobe.diagnose.steps.timeline import Event, Timeline

#: What the recorder writes of a module whose end nobody saw; the call inside it says why.
_NOT_RETURNED = "the pass did not return"


class RaisedError(NamedTuple):
    """The innermost call of an error, and what that said; ``goes_on``: the program caught it."""

    event: Event
    text: str
    goes_on: bool


def errors_of(timeline: Timeline) -> Iterator[RaisedError]:
    """Each error of a step once. The program went on if something was recorded that came after the call, beside the
    modules that ended by its error.
    """
    named: set[str] = set()
    for event in timeline:
        error = event.record.get("error")
        if isinstance(error, str) and error != _NOT_RETURNED and error not in named:
            named.add(error)
            later = timeline.events[event.index + 1 :]
            yield RaisedError(event, " ".join(error.split())[:300], any(map(_is_work, later)))


def _is_work(event: Event) -> bool:
    """True for what is recorded only if the program goes on."""
    return "error" not in event.record and event.parts.kind not in ("parameters", "saved")
