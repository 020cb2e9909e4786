"""Calls that raised."""

from __future__ import annotations

from collections.abc import Iterable

from msprobe.diagnose.check.moment import CheckedStep
from msprobe.diagnose.check.values import measured, tensors
from msprobe.diagnose.findings import Finding
from msprobe.diagnose.steps.errors import errors_of
from msprobe.messages import said


def check(moment: CheckedStep) -> Iterable[Finding]:
    """The innermost call of each error; harmless if the program went on behind it, since it caught the error then."""
    for event, text, goes_on in errors_of(moment.timeline):
        what = "a call" if goes_on else "the last call"
        end = "; the program caught the error and went on" if goes_on else ""
        at = said("at-source", event.source) if event.source else ""
        evidence = {"error": event.record["error"], "input": [measured(leaf) for leaf in tensors(event.inputs())]}
        message = said("call-raised", what, text, at, end)
        yield moment.finding(event, "error", message, evidence=evidence, harmless=goes_on)
