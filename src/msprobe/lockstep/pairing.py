"""Which recorded call a call of the candidate answers to, decided as it is made: what comes later is not known yet.

Where everything before was put right, the inputs of a call are those of the recorded one, bit for bit: that is the
strongest reason. Then comes the line of code, then the order.
"""

from __future__ import annotations

from bisect import bisect
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from msprobe.compare.entry_names import read_name
from msprobe.lockstep.reference import OPTIMIZER, RecordedCall, RecordedStep, Slots, line_of

#: A call whose inputs and line of code are others is taken for the recorded one if that comes so soon.
_NEAR = 6
#: So many calls before and behind are looked at: an edited program leaves out or repeats a few calls, not hundreds.
_AROUND = 24

#: Of the tensors that a call takes, by path.
Shapes = frozenset[tuple[str, tuple[int, ...]]]


class Values(Protocol):
    """What is asked of the framework's tensors."""

    def shape(self, tensor: Any) -> tuple[int, ...]:
        """Its shape, as a record has it: of a distributed one that of the whole."""

    def unit(self, tensor: Any) -> float:
        """The distance of 1 to the next number of its type; 0 for whole numbers."""

    def is_floating(self, tensor: Any) -> bool:
        """True if it holds no whole numbers or truth values."""

    def equals(self, tensor: Any, array: Any) -> bool:
        """True if it, or this rank's share of it, holds exactly these values."""

    def like(self, tensor: Any, array: Any) -> Any:
        """These values as a tensor of its type, on its device."""

    def apart(self, tensor: Any, other: Any) -> float:
        """How far both are apart, relative to the norm of ``other``; infinite where other elements are not finite, and
        for whole numbers that differ.
        """

    def size(self, tensor: Any) -> float:
        """The root of the mean of the squares of its elements."""

    def fits(self, tensor: Any, other: Any) -> bool:
        """True if ``other`` has as many elements as this rank holds of the tensor, in the same shape."""

    def arguments(self, args: Sequence[Any], kwargs: Any) -> list[tuple[str, Any]]:
        """The tensors among arguments, by their paths."""

    def results(self, result: Any) -> list[tuple[str, Any]]:
        """The tensors in a result, by their paths."""

    def replaced(self, value: Any, path: str, given: Mapping[str, Any]) -> Any:
        """``given`` in the form of ``value``, with None for all tensors that are not among ``given``, by path."""

    def linked(self, tensor: Any, other: Any) -> Any:
        """``other`` in the place of a tensor, to which its gradient goes on."""

    def put(self, value: Any, path: str, given: Mapping[str, Any]) -> Any:
        """``value`` with ``given`` in the place of tensors, by path."""

    def made_again(
        self, function: Callable[..., Any], args: Sequence[Any], kwargs: Any, given: Mapping[str, Any], writes: bool
    ) -> dict[str, Any] | None:
        """The tensors that a call returns with ``given`` in the place of its arguments, by path, with their gradient;
        None if that cannot be known. ``writes``: it writes to what it is given; nothing of the program is written to.
        """


class Pairs:
    """The pairs of one step of one rank."""

    def __init__(self, step: RecordedStep, values: Values) -> None:
        self.step = step
        self.values = values
        # Calls without a partner, of each name in each module pass, in their order: how many, and those of each shape.
        self._unmade: Counter[tuple[str | None, str]] = Counter()
        self._waiting: dict[tuple[str | None, str, Shapes, bool], list[RecordedCall]] = {}
        for call in step:
            self._unmade[call.parent, call.key] += 1
            self._waiting.setdefault((call.parent, call.key, _shapes_of(call), call.is_recompute), []).append(call)
        self.partner: dict[tuple[str, int], RecordedCall] = {}
        # The recorded passes that passes of the candidate answer to.
        self._passes: dict[str, str] = {}
        # How many more calls of a name the candidate makes in a pass than the reference.
        self._more: Counter[tuple[str | None, str]] = Counter()
        for call in step:
            self._more[call.parent, call.key] -= 1
        # The recorded passes that have begun.
        self._begun: set[str] = set()
        # Where the reference was when the last call found its partner, and when the last one did that takes the same.
        self._at = 0
        self._sure = 0

    def find(
        self,
        key: str,
        number: int,
        parent: str | None,
        tensors: Sequence[tuple[str, Any]],
        stack: Callable[[], Sequence[str]],
        recompute: bool = False,
        is_said: Callable[[RecordedCall], bool] = lambda _: True,
    ) -> RecordedCall | None:
        """The partner of a call that is about to be made; None if there is none. ``tensors``: those among its
        arguments, ``stack``: where it comes from. ``recompute``: it repeats one, as only such a call does. ``is_said``:
        a recorded call was made with the same numbers and words.
        """
        shapes = frozenset((path, self.values.shape(tensor)) for path, tensor in tensors)
        if tensors:  # what it works on, as numbers of another sort are something else
            shapes |= {(_SORT, (int(self.values.is_floating(tensors[0][1])),))}
        if parent is not None and parent not in self.step.parents:
            # A module of another class in the same place is the same module, written otherwise.
            parent = self.step.pass_like(parent) or parent
        if (parent, key) not in self._unmade and (parent is None or parent not in self.step.parents):
            # A module that the reference does not have: only the inputs decide.
            every = self.step.calls.get(key, ()) if tensors else ()
            alike = [call for call in every if call.partner is None and call.is_recompute is recompute]
            alike = [call for call in alike if self._may_come_now(call, parent)]
            alike = [call for call in alike if _shapes_of(call) == shapes]
            call = next((call for call in alike if self._have_values(call, tensors)), None)
        else:
            alike = self._around((parent, key, shapes, recompute))
            call = self._of(alike, tensors, stack, is_said) if alike else None
        if call is None:
            self.count(key, parent)
            return None
        self._more[call.parent, key] += 1
        call.partner = number
        self._at = call.index
        self._unmade[call.parent, key] -= 1
        self._waiting[call.parent, key, shapes, recompute].remove(call)
        self.partner[key, number] = call
        return call

    def _may_come_now(self, call: RecordedCall, parent: str | None) -> bool:
        """True if a call may answer to one in a pass that the reference does not have.

        What an optimizer does answers to nothing of the model; what runs in a pass that has not begun yet to nothing
        that is made now, unless what it takes is like no other: then the pass has other names here.
        """
        if OPTIMIZER in (call.parent, parent):
            return call.parent == parent
        return call.parent is None or call.parent in self._begun or self._is_like_no_other(call)

    def _around(self, mark: tuple[str | None, str, Shapes, bool]) -> list[RecordedCall]:
        """The waiting calls around the place where the reference surely was, the nearest first: what lies further
        before was left out by the candidate.
        """
        every = self._waiting.get(mark, [])
        if len(every) < 2:
            return every[:]
        place = bisect(every, self._sure, key=lambda call: call.index)
        around = every[max(0, place - _AROUND) : place + _AROUND]
        return sorted(around, key=lambda call: (abs(call.index - self._sure), -call.index))

    def _is_like_no_other(self, call: RecordedCall) -> bool:
        """True if what a call takes says where the reference was. Numbers of a step, moments that are still zero and
        the like are the same in many.
        """
        for slot in call.inputs.values():
            array = self.step.array(slot)
            if array is not None and array.size > 1:
                flat = array.reshape(-1)
                if any(flat[place] != flat[0] for place in (-1, len(flat) // 2, len(flat) // 3)):
                    return True
        return False

    def begin(self, own: str, recompute: bool) -> None:
        """The pass of a module begins; ``recompute``: it repeats one, as only such a pass does."""
        recorded = self.step.pass_like(own)
        if recorded is not None and self.step.is_repeated(recorded) is recompute:
            self._begun.add(recorded)
            self._passes.setdefault(own, recorded)

    def count(self, key: str, parent: str | None) -> None:
        """The candidate makes a call that has no partner."""
        self._more[self.pass_of(parent), key] += 1

    def pair_passes(self, passes: Sequence[str], recorded_call: RecordedCall) -> None:
        """A call in these passes, the innermost last, has found its partner: so the passes have. They may have other
        numbers, as where one side repeats passes to save memory.
        """
        recorded = recorded_call.parent
        for own in reversed(passes):
            if recorded is None or _module_of(recorded) != _module_of(own):
                return
            self._passes[own] = recorded
            recorded = self.step.outer(recorded)

    def pass_of(self, own: str | None) -> str | None:
        """The recorded pass that a pass of the candidate answers to; its own name if none is known."""
        return own if own is None else self._passes.get(own, own)

    def pass_outputs(self, own: str) -> Slots:
        """What the pass returned in the reference that answers to a pass of the candidate; nothing if none is known."""
        recorded_pass = self._passes.get(own)
        return {} if recorded_pass is None else self.step.pass_outputs(recorded_pass)

    def is_waiting(self, key: str, parent: str | None) -> bool:
        """True if the reference has more calls of a name in a pass."""
        return self._unmade[parent, key] > 0

    def is_balanced(self, key: str, parent: str | None) -> bool:
        """True if both sides make so many calls of a name in a pass."""
        return not self._more[self.pass_of(parent), key]

    def has_unmade(self, parent: str) -> bool:
        """True if the reference makes calls in a pass that the candidate does not."""
        recorded = self.pass_of(parent)
        return any(count > 0 and where == recorded for (where, _), count in self._unmade.items())

    def _of(
        self,
        alike: Sequence[RecordedCall],
        tensors: Sequence[tuple[str, Any]],
        stack: Callable[[], Sequence[str]],
        is_said: Callable[[RecordedCall], bool],
    ) -> RecordedCall | None:
        """The one of calls with the same shapes that takes the same: the next one, or that of the same line of code;
        else one that takes most of the same.
        """
        same = [call for call in alike[:1] if self._have_values(call, tensors)]
        if same and is_said(alike[0]) and _need_gradients(alike[0], tensors):
            return self._surely(alike[0])
        same += [call for call in alike[1:] if self._have_values(call, tensors)]
        # One that is part of the graph, and one on a detached tensor, may take the same numbers.
        same = [call for call in same if _need_gradients(call, tensors)] or same
        line = line_of(tuple(stack()))
        line_calls = [call for call in alike if self.step.code_of(call) == line]
        among = same or self._nearest(alike, tensors)
        if same and line_calls and not any(call in line_calls for call in same):
            # The line takes what another line takes in the reference: that is what differs.
            same, among = [], line_calls
        line_calls = [call for call in among if call in line_calls]
        if len(among) == 1 < len(alike) and (same or line_calls or is_said(among[0])):
            chosen: RecordedCall | None = among[0]
        else:
            chosen = next((call for call in (*line_calls, *same) if is_said(call)), None) or next(
                iter(line_calls), None
            )
        if chosen is None:
            # A line that was edited. What comes much later is the partner of another call, and this one has none.
            chosen = next(
                (call for call in among if same or (is_said(call) and abs(call.index - self._at) <= _NEAR)), None
            )
        return self._surely(chosen) if chosen is not None and chosen in same else chosen

    def _nearest(self, alike: Sequence[RecordedCall], tensors: Sequence[tuple[str, Any]]) -> Sequence[RecordedCall]:
        """Those that take most of these tensors. What all of them take, as a mask or a table, says nothing."""
        if len(alike) < 2:
            return alike
        counts = [self._count_same(call, tensors) for call in alike]
        return [call for call, count in zip(alike, counts, strict=True) if count == max(counts)]

    def _count_same(self, call: RecordedCall, tensors: Sequence[tuple[str, Any]]) -> int:
        """How many of the tensors that go in are those of a recorded call."""
        arrays = ((tensor, self.step.array(call.inputs[path])) for path, tensor in tensors)
        return sum(array is not None and self.values.equals(tensor, array) for tensor, array in arrays)

    def _surely(self, call: RecordedCall) -> RecordedCall:
        """The call, which takes the same as that of the candidate: the reference was there, if it is like no other."""
        if self._is_like_no_other(call):
            self._sure = call.index
        return call

    def _have_values(self, call: RecordedCall, tensors: Sequence[tuple[str, Any]]) -> bool:
        """True if a recorded call takes exactly these tensors, of which there must be one."""
        if not tensors:
            return False
        for path, tensor in tensors:
            array = self.step.array(call.inputs[path])
            if array is None or not self.values.equals(tensor, array):
                return False
        return True


def _need_gradients(call: RecordedCall, tensors: Sequence[tuple[str, Any]]) -> bool:
    """True if those of the tensors need a gradient that did in a recorded call."""
    return all(bool(tensor.requires_grad) is call.inputs[path].requires_grad for path, tensor in tensors)


#: In the place of a path: whether the first tensor holds floating-point numbers.
_SORT = ""


def _shapes_of(call: RecordedCall) -> Shapes:
    shapes = frozenset((path, slot.shape) for path, slot in call.inputs.items())
    first = next(iter(call.inputs.values()), None)
    return shapes if first is None else shapes | {(_SORT, (int(first.unit > 0),))}


def _module_of(entry: str) -> str:
    """The place of a module, whatever its class."""
    return read_name(entry).path
