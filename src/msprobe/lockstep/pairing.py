"""Which recorded call a call of the candidate answers to, decided as it is made: what comes later is not known yet.

Where everything before was put right, the inputs of a call are those of the recorded one, bit for bit: that is the
strongest reason. Then comes the line of code, then the order.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from msprobe.lockstep.reference import RecordedCall, RecordedStep, line_of

#: A call whose inputs and line of code are others is taken for the recorded one if that comes so soon.
_NEAR = 6
#: So many calls ahead are looked at: an edited program leaves out or repeats a few calls in one module, not hundreds.
_AHEAD = 24


class Values(Protocol):
    """What is asked of the framework's tensors."""

    def shape(self, tensor: Any) -> tuple[int, ...]:
        """Its shape, as a record has it: of a distributed one that of the whole."""

    def equals(self, tensor: Any, array: Any) -> bool:
        """True if it, or this rank's share of it, holds exactly these values."""

    def like(self, tensor: Any, array: Any) -> Any:
        """These values as a tensor of its type, on its device."""

    def fits(self, tensor: Any, other: Any) -> bool:
        """True if ``other`` has as many elements as this rank holds of the tensor, in the same shape."""

    def arguments(self, args: Sequence[Any], kwargs: Any) -> list[tuple[str, Any]]:
        """The tensors among arguments, by their paths."""

    def results(self, result: Any) -> list[tuple[str, Any]]:
        """The tensors in a result, by their paths."""

    def replaced(self, value: Any, path: str, given: Mapping[str, Any]) -> Any:
        """``given`` in the form of ``value``, with None for all tensors that are not among ``given``, by path."""

    def linked(self, value: Any, path: str, given: Mapping[str, Any]) -> Any:
        """``value`` with ``given`` in the place of tensors, by path, whose gradients go on to these tensors."""


class Pairs:
    """The pairs of one step of one rank."""

    def __init__(self, step: RecordedStep, values: Values) -> None:
        self.step = step
        self.values = values
        # What is next of each name in each module pass.
        self._waiting: dict[tuple[str | None, str], list[RecordedCall]] = {}
        for call in step:
            self._waiting.setdefault((call.parent, call.key), []).append(call)
        self.partner: dict[tuple[str, int], RecordedCall] = {}
        # Where the reference was when the last call found its partner.
        self._at = 0

    def find(
        self,
        key: str,
        number: int,
        parent: str | None,
        tensors: Sequence[tuple[str, Any]],
        stack: Callable[[], Sequence[str]],
        recompute: bool = False,
    ) -> RecordedCall | None:
        """The partner of a call that is about to be made; None if there is none. ``tensors``: those among its
        arguments, ``stack``: where it comes from. ``recompute``: it repeats one, as only such a call does.
        """
        waiting = self._waiting.get((parent, key))
        if waiting is None and (parent is None or parent not in self.step.parents):
            # A module that the reference does not have: only what goes in tells.
            every = self.step.calls.get(key, ())
            waiting = [call for call in every if not call.used and call.is_recompute is recompute]
            found = self._by_inputs(waiting, tensors) if tensors else None
        else:
            found = self._of([one for one in waiting or () if one.is_recompute is recompute], tensors, stack)
        if found is None:
            return None
        found.used = True
        self._at = found.index
        own = self._waiting.get((found.parent, key), [])
        if found in own:
            own.remove(found)
        self.partner[key, number] = found
        return found

    def _of(
        self,
        waiting: Sequence[RecordedCall],
        tensors: Sequence[tuple[str, Any]],
        stack: Callable[[], Sequence[str]],
    ) -> RecordedCall | None:
        alike = [call for call in waiting[:_AHEAD] if self._have_shapes(call, tensors)]
        if not alike:
            return None
        found = self._by_inputs(alike, tensors) if tensors else None
        if found is not None:
            return found
        line = line_of(tuple(stack()))
        same = next((call for call in alike if self.step.code_of(call) == line), None)
        if same is not None:
            return same
        # A line that was edited. What comes much later is the partner of another call, and this one has none.
        return next((call for call in alike if abs(call.index - self._at) <= _NEAR), None)

    def _by_inputs(self, waiting: Sequence[RecordedCall], tensors: Sequence[tuple[str, Any]]) -> RecordedCall | None:
        return next((call for call in waiting if self._have_values(call, tensors)), None)

    def _have_shapes(self, call: RecordedCall, tensors: Sequence[tuple[str, Any]]) -> bool:
        return len(call.inputs) == len(tensors) and all(
            path in call.inputs and call.inputs[path].shape == self.values.shape(tensor) for path, tensor in tensors
        )

    def _have_values(self, call: RecordedCall, tensors: Sequence[tuple[str, Any]]) -> bool:
        if not self._have_shapes(call, tensors):
            return False
        for path, tensor in tensors:
            array = self.step.array(call.inputs[path])
            if array is None or not self.values.equals(tensor, array):
                return False
        return True
