"""Which calls ran inside the step of an optimizer, where the dump has no structure (level L1): by their call stacks.

The record of a step has the stack of its pre-hook: a frame of the optimizer's own (``wrapper`` in ``optimizer.py``),
and what is around it. A call inside the step has the same frames around it, from the same function on.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol, TypeVar

if TYPE_CHECKING:
    from msprobe.compare.entry_names import EntryName
    from msprobe.store.part import DumpPart


class Recorded(Protocol):
    """What is asked of a record."""

    @property
    def name(self) -> str:
        """Its name."""

    @property
    def parts(self) -> EntryName:
        """Its name, taken apart."""

    @property
    def direction(self) -> str:
        """Forward, backward, ..."""


R = TypeVar("R", bound=Recorded)


def calls_inside_steps(part: DumpPart, events: Sequence[R]) -> list[R]:
    """The calls that stand in a row before a step of an optimizer and whose stacks lead through it."""
    kept: list[R] = []
    for index, step in enumerate(events):
        if step.parts.kind != "optimizer":
            continue
        around = part.stack(step.name)
        for event in reversed(events[:index]):
            if (
                event.parts.kind != "api"
                or event.direction != "forward"
                or not _is_inside(part.stack(event.name), around)
            ):
                break
            kept.append(event)
    return kept


def _is_inside(stack: Sequence[str], around: Sequence[str]) -> bool:
    depth = len(around)
    if depth < 2 or len(stack) < depth:
        return False
    return list(stack[len(stack) - depth + 1 :]) == list(around[1:]) and _function(stack[-depth]) == _function(
        around[0]
    )


def _function(frame: str) -> tuple[str, str]:
    """File and function of a frame, without the line."""
    file, _, rest = frame.partition(", line ")
    return file, rest.partition(", in ")[2].partition(",")[0]
