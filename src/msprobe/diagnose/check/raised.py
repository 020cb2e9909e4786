"""Calls that raised."""

from __future__ import annotations

from collections.abc import Iterable

from msprobe.diagnose.check.moment import CheckedStep
from msprobe.diagnose.check.values import measured, tensors
from msprobe.diagnose.findings import Finding
from msprobe.diagnose.steps.timeline import Event, Timeline
from msprobe.messages import said

#: What the recorder writes of a module whose end nobody saw; the call inside it says why.
_NOT_RETURNED = "the pass did not return"


def check(moment: CheckedStep) -> Iterable[Finding]:
    """The innermost call of each error; harmless if the program went on behind it, since it caught the error then."""
    named: set[str] = set()
    for event in moment.timeline:
        error = event.record.get("error")
        if not isinstance(error, str) or error == _NOT_RETURNED or error in named:
            continue
        named.add(error)
        goes_on = _goes_on(moment.timeline, event)
        what = "a call" if goes_on else "the last call"
        end = "; the program caught the error and went on" if goes_on else ""
        yield moment.finding(
            event,
            "error",
            said("call-raised", what, " ".join(error.split())[:300], _at(event), end),
            evidence={"error": error, "input": [measured(leaf) for leaf in tensors(event.inputs())]},
            harmless=goes_on,
        )


def _at(event: Event) -> str:
    return said("at-source", event.source) if event.source else ""


def _goes_on(timeline: Timeline, event: Event) -> bool:
    """True if something was recorded that came after a call, beside the modules that ended by its error."""
    return any(
        later.index > event.index and "error" not in later.record and later.parts.kind not in ("parameters", "saved")
        for later in timeline
    )
