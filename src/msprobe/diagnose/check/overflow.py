"""Where a NaN or an infinity is born: the first call with sound inputs and a result that is not, over all ranks."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from msprobe.diagnose.check.bad_values import USUAL, Limits, Watcher
from msprobe.diagnose.check.communication import Exchange, Rank
from msprobe.diagnose.check.moment import Moment
from msprobe.diagnose.check.origins import Origin, origins
from msprobe.diagnose.check.overflow_words import reason
from msprobe.diagnose.check.values import measured, tensors
from msprobe.diagnose.findings import Finding
from msprobe.diagnose.steps.unwritten import reads_unwritten
from msprobe.diagnose.wording import Wording


def check(moment: Moment) -> Iterable[Finding]:
    """Every birth that no other birth explains, in the order of execution over ranks."""
    watchers = watch(moment)
    matters = any(watcher.counts for watcher in watchers.values())
    for origin in first_origins(Exchange(moment.timelines), watchers):
        if matters or origin.how != "bad_input":
            yield finding_of(moment, origin, matters)


def watch(moment: Moment, limits: Limits = USUAL) -> dict[Rank, Watcher]:
    """The bad values of all ranks of a step."""
    return {rank: Watcher(timeline, limits) for rank, timeline in moment.timelines.items()}


def first_origins(exchange: Exchange, watchers: Mapping[Rank, Watcher]) -> list[Origin]:
    """Where bad values come from first; nothing where no rank has any."""
    if not any(watcher.any for watcher in watchers.values()):
        return []
    return origins(exchange, watchers)


def finding_of(moment: Moment, origin: Origin, matters: bool) -> Finding:
    """An origin in words. ``matters``: a bad value reaches a loss, a gradient, a weight or the end of the recording."""
    timeline = moment.timelines[origin.rank]
    event = origin.event
    skipped = any(step.record.get("skipped") for step in moment.optimizer_steps(timeline))
    message = _message(moment, origin)
    if skipped:
        message += "; the gradient scaler left this step out"
    return moment.finding(
        timeline,
        event,
        "overflow",
        message,
        evidence={
            "birth": origin.how,
            "value": origin.value,
            "inputs": [measured(leaf) for leaf in tensors(event.inputs())[:4]],
            "outputs": [measured(leaf) for leaf in tensors(event.outputs())[:4]],
            "reached": {str(rank): one.name for rank, one in origin.reached.items()},
            "first_bad": {str(rank): one.name for rank, one in origin.first_bad.items()},
        },
        harmless=skipped or not matters,
    )


def _message(moment: Moment, origin: Origin) -> Wording:
    event = origin.event
    name = {
        "nan": "NaN",
        "inf": Wording("infinity"),
        "-inf": "minus infinity",
        "large": Wording("a number beyond the limit"),
    }[origin.value]
    if origin.how == "bad_input":
        if reads_unwritten(event):
            return Wording("{} comes out of {}, which reads memory that nobody has written", name, event.name)
        return Wording("{} is in the input of {} already, and no recorded call made it", name, event.name)
    if origin.how == "communication":
        return Wording("{} is born in {}: what the ranks gave was finite, the result is not", name, event.name)
    why = reason(moment.timelines[origin.rank], event, origin.value)
    return Wording("{} is born in {}: {}", name, event.name, why)
