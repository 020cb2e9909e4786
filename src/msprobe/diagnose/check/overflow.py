"""Where a NaN or an infinity is born: the first call with sound inputs and a result that is not, over all ranks."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from msprobe.diagnose.check.across import Across
from msprobe.diagnose.check.origins import Origin, origins
from msprobe.diagnose.check.overflow_words import reason
from msprobe.diagnose.check.values import measured, tensors
from msprobe.diagnose.findings import Finding
from msprobe.diagnose.statement import finding_at
from msprobe.diagnose.steps.communication import Rank
from msprobe.diagnose.steps.timeline import Event, Timeline
from msprobe.diagnose.steps.unwritten import reads_unwritten
from msprobe.messages import Wording, said


def check(across: Across) -> Iterable[Finding]:
    """Every birth that no other birth explains, in the order of execution over ranks."""
    matters = any(calls.matters for calls in across.exchange.calls)
    for origin in origins(across.exchange):
        if matters or origin.how != "bad_input":
            with across.opened(origin.rank) as timeline:
                yield finding_of(timeline, across.step, origin, matters)


def finding_of(timeline: Timeline, step: int | None, origin: Origin, matters: bool) -> Finding:
    """An origin in words, of the rank it is on. ``matters``: a bad value reaches a loss, a gradient, a weight or the
    end of the recording.
    """
    event = timeline.by_name[origin.name]
    skipped = any(optimizer.record.get("skipped") for optimizer in timeline.optimizers)
    message = _message(timeline, event, origin)
    if skipped:
        message += "; the gradient scaler skipped this step"
    return finding_at(
        timeline,
        event,
        "overflow",
        message,
        event.name,
        step,
        details={
            "birth": origin.how,
            "value": origin.value,
            "inputs": [measured(leaf) for leaf in tensors(event.inputs())[:4]],
            "outputs": [measured(leaf) for leaf in tensors(event.outputs())[:4]],
            "reached": {str(rank): name for rank, name in in_order_of_ranks(origin.reached)},
            "first_bad": {str(rank): name for rank, name in in_order_of_ranks(origin.first_bad)},
        },
        harmless=skipped or not matters,
    )


def in_order_of_ranks(calls: Mapping[Rank, str]) -> list[tuple[Rank, str]]:
    """Calls by rank, those without a number first."""
    return sorted(calls.items(), key=lambda item: (item[0], "") if isinstance(item[0], int) else (-1, item[0]))


def _message(timeline: Timeline, event: Event, origin: Origin) -> Wording:
    name = {
        "nan": "NaN",
        "inf": said("infinity"),
        "-inf": "minus infinity",
        "large": said("a-number-beyond-the-limit"),
    }[origin.value]
    if origin.how == "bad_input":
        if reads_unwritten(event):
            return said("bad-value-from-memory", name, event.name)
        return said("bad-value-in-input", name, event.name)
    if origin.how == "communication":
        return said("bad-value-from-communication", name, event.name)
    why = reason(timeline, event, origin.value)
    return said("bad-value-made", name, event.name, why)
