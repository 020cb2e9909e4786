"""The one builder of findings that are said of a record: what the record says of itself comes with each of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from msprobe.diagnose.evidence import Fact, as_json
from msprobe.diagnose.findings import Finding, FindingKind
from msprobe.diagnose.steps.timeline import Event, Timeline

_MOST_STACK = 20


def finding_at(
    timeline: Timeline,
    event: Event,
    kind: FindingKind,
    message: str,
    where: str,
    step: int | None,
    facts: Sequence[Fact] = (),
    details: Mapping[str, Any] | None = None,
    **more: Any,
) -> Finding:
    """A finding at a record. Its module, its source line and the call stack are those of the forward pass.

    ``facts``: what it rests on; ``details``: further JSON values for its evidence; ``more``: other fields of
    :class:`Finding`, which go before what the record says.
    """
    forward = timeline.forward_of(event) or event if event.direction == "backward" else event
    source = {} if forward.source is None else {"source": forward.source}
    stated: dict[str, Any] = {
        "entry": event.name,
        "module": forward.module,
        "rank": timeline.rank,
        "direction": event.direction,
        "order": event.order if event.order is not None else event.place,
        "stack": tuple(timeline.part.stack(forward.name)[:_MOST_STACK]),
    }
    return Finding(
        kind=kind,
        message=message,
        where=where,
        step=step,
        facts=tuple(facts),
        evidence={**as_json(facts), **(details or {}), **source},
        **(stated | more),
    )
