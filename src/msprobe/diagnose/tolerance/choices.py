"""Choices that rounding decides: which expert a token goes to, which of two candidates a beam keeps.

Of values that are about as large, the one that is chosen may be another one on each side, although both are right. What
is calculated from the choice (masks, indices, the rows that they take) then has nothing to compare: other elements, or
another number of them. Nobody is to blame for that, unless the values that were chosen among were wrong already.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from msprobe.compare.entry_names import operation
from msprobe.diagnose import operators
from msprobe.diagnose.differences.records import Difference, is_floating, is_integer
from msprobe.diagnose.steps.links import Producers
from msprobe.diagnose.steps.timeline import Event, is_tensor
from msprobe.diagnose.tolerance import noise

if TYPE_CHECKING:
    from msprobe.diagnose.tolerance.judge import Judged


class Choices:
    """Follows choices through the calls of the candidate, in their order. ``producers``: who made its tensors;
    ``unit``: of the type that the run computes in.
    """

    def __init__(self, producers: Producers, unit: float) -> None:
        self._producers = producers
        self._unit = unit
        self._chosen: set[Event] = set()
        #: Of these, the calls that were given nothing that differs but the choice: counts of it, masks, shares.
        self._counted: set[Event] = set()
        #: What follows from tokens that were chosen, through whatever lies between.
        self._behind: set[Event] = set()

    def is_behind(self, event: Event) -> bool:
        """True if a call follows from a token that was chosen before, which may be another one: in a generation, all
        that is calculated from there on. Of a choice in a layer, of experts, the results of the model still say.
        """
        return event in self._behind

    def __contains__(self, event: Event) -> bool:
        """True if the results of a call follow from a choice that may be another one."""
        return event in self._chosen

    def note(self, judged: Judged) -> None:
        """Follow a call that was judged. It follows from a choice if it makes one, takes whole numbers or truth values
        that follow from one or what was calculated of these alone, or takes on the rows that were chosen, which may be
        another number of them.
        """
        event = judged.event
        if event.direction != "forward":
            return
        if event.is_call and self._chooses_otherwise(judged):
            self._chosen.add(event)
        elif self._chosen:
            sized = any(math.isinf(difference.delta) for difference in judged.changed_inputs)
            makers = [
                maker
                for leaf, maker in self._taken(event)
                if maker in self._chosen and (sized or maker in self._counted or not is_floating(leaf))
            ]
            if makers:
                self._chosen.add(event)
                if not any(self._differs_itself(event, difference) for difference in judged.changed_inputs):
                    self._counted.add(event)
        self._follow_tokens(event)

    def _follow_tokens(self, event: Event) -> None:
        if event in self._chosen and _looks_up(event):
            if any(maker in self._chosen for leaf, maker in self._taken(event) if is_integer(leaf)):
                self._behind.add(event)
        elif self._behind and (
            any(child in self._behind for child in event.children)
            or any(maker in self._behind for _, maker in self._taken(event))
        ):
            self._behind.add(event)

    def _differs_itself(self, event: Event, difference: Difference) -> bool:
        """True for a number that differs and is more than a count of what was chosen."""
        maker = self._producers.of(difference.left, event) if is_floating(difference.left) else None
        return is_floating(difference.left) and maker not in self._counted

    def _taken(self, event: Event) -> Iterator[tuple[Any, Event | None]]:
        for _, leaf in event.inputs():
            if is_tensor(leaf):
                yield leaf, self._producers.of(leaf, event)

    def _chooses_otherwise(self, judged: Judged) -> bool:
        """True if a call chooses among values that are apart by what rounding makes of them at most, or gives other
        whole numbers of what looks alike and is apart.
        """
        changed = judged.changed_outputs
        if judged.hidden and changed and all(is_tensor(output.left) and is_integer(output.left) for output in changed):
            return not judged.changed_inputs
        if operation(judged.event.stem) not in operators.CHOOSES or judged.status == "unexplained":
            return False
        apart = [difference.delta for difference in judged.changed_inputs if is_floating(difference.left)]
        if not apart or max(apart) > noise.explained(self._unit):
            return False
        # Without digests whole numbers may stand in another order and look alike.
        differ = any(is_integer(output.left) for output in changed)
        return differ or any(is_integer(leaf) and "digest" not in leaf for _, leaf in judged.event.outputs())


def _looks_up(event: Event) -> bool:
    """True for an embedding, as a call or as a module."""
    return operation(event.stem) in operators.LOOKS_UP or event.stem.rpartition(".")[2].lower() in operators.LOOKS_UP
