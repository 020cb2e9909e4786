"""One side of a step while origins are looked for: who made and who takes its tensors, and what it alone calls."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any, Literal

from msprobe.diagnose.differences.records import fingerprint
from msprobe.diagnose.steps.links import Producers, consumers_of
from msprobe.diagnose.steps.randomness import is_random
from msprobe.diagnose.steps.timeline import Event, Timeline

#: The most calls of one side alone that are followed back.
_LONGEST_CHAIN = 200


class StepSide:
    """The candidate or the reference of a step.

    ``makers`` says which call made a tensor; ``consumers`` which calls take it, by what identifies it; ``paired`` leads
    from its events to those of the other side that answer to them; ``alone``: its events that have none.
    """

    def __init__(
        self,
        name: Literal["candidate", "reference"],
        timeline: Timeline,
        paired: Mapping[Event, Event],
        alone: Sequence[Event],
    ) -> None:
        self.name = name
        self.timeline = timeline
        self.paired = paired
        self.alone = alone
        self.makers = Producers(timeline)
        self.consumers = consumers_of(timeline.events)

    @cached_property
    def random_alone(self) -> list[Event]:
        """Its calls without partner that draw random numbers."""
        return [event for event in self.alone if is_random(event)]

    def is_alone(self, event: Event | None) -> bool:
        """True for an event that has no partner; not if there is none."""
        return event is not None and event not in self.paired

    def chain(self, event: Event | None) -> list[Event]:
        """The calls without partner that lead to ``event``, first one first; none if it has a partner."""
        met: dict[Event, None] = {}
        todo = [event] if event is not None and event not in self.paired else []
        while todo and len(met) < _LONGEST_CHAIN:
            at = todo.pop()
            if at in met:
                continue
            met[at] = None
            makers = (self.makers.of(leaf, at) for _, leaf in at.inputs())
            todo += [maker for maker in makers if maker is not None and self.is_alone(maker) and maker not in met]
        return sorted(met, key=lambda member: member.index)

    def lone_makers(self, leaf: Any, user: Event) -> list[Event]:
        """The calls without partner that made what ``user`` takes."""
        return self.chain(self.makers.of(leaf, user))

    def users_of(self, forward: Event | None, slot: str) -> Iterator[Event]:
        """The calls that took the result which the gradient in ``slot`` belongs to, in order. All tensors of NaN look
        alike: of these there are as many as calls, and who asks needs the first few.
        """
        if forward is None:
            return
        place = slot.partition(".")[2]
        output = f"output.{place}"
        for name, leaf in forward.outputs():
            if name == output or name.partition(".")[2] == place:
                mark = fingerprint(leaf)
                consumers = self.consumers.get(mark, []) if mark is not None else []
                later = bisect_right(consumers, forward.index, key=lambda event: event.index)
                yield from map(consumers.__getitem__, range(later, len(consumers)))
