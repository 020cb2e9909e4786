"""Regions: calls that the candidate makes otherwise, followed on their own values and judged at their ends.

Queries may be scaled before the product instead of after it, or a mask be added instead of filled in. Put right call by
call, such a program does not come to what the reference has, though nothing is wrong. So beside the values that were
put right the program's *own* are carried along: from a call that has no recorded partner, or other arguments, or takes
a recorded result that the recorded call does not take, each call that takes an own value is made a second time with it,
unseen. A region ends where an own value is, up to rounding, what the reference has in its place: from there on the
gradient goes back through the region as it is. It ends, too, where the innermost module that it began in returns
something else, where gradients leave it, and where it has gone on for too long. If all its ends agree, a region is
healthy, whatever is done otherwise in it; if not, each call of it was put right and proven alone all the same.
"""

from __future__ import annotations

import math
import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from msprobe.diagnose.tolerance.roundings import least, rounding_count_limit
from msprobe.diagnose.tolerance.units import FINE

#: So many calls after another may be followed outside of all modules, and inside of one.
_FARTHEST, _FARTHEST_INSIDE = 24, 256
#: Sums on the way of a gradient cancel, which makes their rounding larger beside them; in types of few digits much is
#: left to rounding already.
_OF_GRADIENTS, _OF_COARSE_GRADIENTS = 8.0, 2.0
#: The norm of an error of rounding is 0.29 units of each element, and that of many of them grows with their root.
_OF_COARSE = 0.5
#: A gradient whose terms cancel out (of scores whose values are all the same) is what rounding leaves of them, a
#: quarter of a unit at most.
_OF_CANCELLED = 0.25

#: What ends at them says more than the value that they take.
_OF_MODULES, _OF_MANY = "Module.", ("Module.", "Optimizer.")

Mark = tuple[str, int]
#: What is said of a region by names alone.
NAMES = ("calls", "followed", "arrived", "passed", "unreported", "made_up")
#: What else is said of it, as truth values.
WORDS = ("compensates", "is_coarser")


@dataclass(eq=False)
class Region:
    """Calls on own values. ``passes``: the passes of modules around all of its beginnings, the innermost last;
    ``unit``: the unit of rounding that it computes in; ``ends``: where it was judged, and whether it agreed.
    """

    passes: tuple[str, ...]
    unit: float = 0.0
    calls: dict[str, None] = field(default_factory=dict)
    ends: dict[str, bool] = field(default_factory=dict)
    #: Tensors that calls take which are what the reference has there, as ``NAME SLOT``.
    arrived: dict[str, None] = field(default_factory=dict)
    #: Backward calls through which gradients go back as they are: they say nothing.
    passed: dict[str, None] = field(default_factory=dict)
    #: Calls whose own result is what the reference has, while that on what was put right is not: they make up for what
    #: calls before them do otherwise.
    made_up: dict[str, None] = field(default_factory=dict)
    #: Calls that were made a second time, through which gradients may come back instead of the first.
    followed: dict[str, None] = field(default_factory=dict)
    #: Of a call, the calls that made the own values that it takes; and of which calls an end has judged the values.
    takes: dict[str, set[str]] = field(default_factory=dict)
    judged: set[str] = field(default_factory=set)
    into: Region | None = None
    #: A result has another shape than in the reference.
    is_reshaped: bool = False
    #: Gradients come back through calls that were put right, and through calls that were not.
    is_put_right: bool = False
    is_own: bool = False
    #: The paired calls in it.
    paired: set[Mark] = field(default_factory=set)
    #: Something in it requires a gradient, so that gradients of parameters depend on it.
    has_gradient: bool = False
    #: No unit is coarser: that of the reference.
    most: float = math.inf
    #: What was put right call by call comes to something else where the own values agree: one call makes up for what
    #: another does otherwise.
    compensates: bool = False
    #: The coarsest type of what it takes, as a unit of rounding; and whether a call of it gives a coarser one.
    taken: float = 0.0
    is_coarser: bool = False
    #: It began with a call that the reference makes with other shapes.
    is_of_other_shapes: bool = False
    #: By how much the loss changes with what has gone in, relative to that: the most of all gradients that leave it.
    moves: float = 0.0

    @property
    def root(self) -> Region:
        """The region that this one has become a part of, or itself."""
        return self if self.into is None else self.into.root

    @property
    def decides_by_gradients(self) -> bool:
        """True if gradients that agree are its own, and not come back through what was put right."""
        return bool(self.ends) or self.is_own or not self.is_put_right

    def note_gradient(self, paired: Mark | None, is_own: bool) -> None:
        """Gradients will come back through a call of it: a paired one, or None; ``is_own``: its result was not put
        right.
        """
        if paired is not None:
            self.paired.add(paired)
        if is_own:
            self.is_own = True
        else:
            self.is_put_right = True

    @property
    def is_open(self) -> bool:
        """True if nothing that was computed forward has ended it, and calls of the candidate alone are in it: its
        gradients depend on it then, and they come back through its calls as these are.
        """
        return self.is_own and not any(name.endswith(".forward") or name.startswith(_OF_MODULES) for name in self.ends)

    @property
    def is_loose(self) -> bool:
        """True if nothing that the reference calls has taken anything of it."""
        return not self.paired and not any(
            name.endswith(".forward") or name.startswith(_OF_MODULES) for name in self.ends
        )

    def note_unit(self, unit: float) -> None:
        """A call of it has rounded to this unit."""
        self.unit = max(self.unit, min(self.most, unit))

    def allowed(self, unit: float, gradient: bool = False) -> float:
        """How far an end may be apart by rounding, relative. ``unit``: that of its own type."""
        unit = max(unit, self.unit)
        if unit > FINE:
            return (
                _OF_COARSE * rounding_count_limit(len(self.calls), unit) * (_OF_COARSE_GRADIENTS if gradient else 1.0)
            )
        return max(rounding_count_limit(len(self.calls), unit), least(unit)) * (_OF_GRADIENTS if gradient else 1.0)

    def is_noise(self, apart: float, unit: float) -> bool:
        """True if a gradient that leaves it is apart by rounding of others that do, as it is nothing beside these.
        ``apart``: by how much of the loss; ``unit``: that of its own type.
        """
        return apart <= _OF_CANCELLED * max(unit, self.unit) * self.moves

    def end(self, name: str, agrees: bool) -> None:
        """It was judged at a call, a module or an optimizer; one disagreement stays."""
        self.ends[name] = agrees and self.ends.get(name, True)

    def arrive(self, name: str, path: str, maker: str) -> None:
        """Where a call takes an own value, made by ``maker``, it is what the reference has there."""
        self.end(name, True)
        self.judged.add(maker)
        self.arrived.setdefault(f"{name} {path.replace('kwargs.', 'input.', 1)}")

    @property
    def unreported(self) -> list[str]:
        """The calls that no end accounts for, as nothing that was judged comes of what they make: of those of an
        optimizer, each parameter's by themselves. Gradients, those of the optimizer too, and what modules return
        account for all.
        """
        if any(not name.endswith(".forward") or name.startswith(_OF_MANY) for name in self.ends):
            return []
        reached, waiting = set[str](), list(self.judged)
        while waiting:
            name = waiting.pop()
            if name not in reached:
                reached.add(name)
                waiting += self.takes.get(name, ())
        return [name for name in self.calls if name not in reached]

    def to_json(self) -> dict[str, Any]:
        """As whoever judges reads it."""
        names = {word: list(getattr(self, word)) for word in NAMES}
        return {**names, "ends": self.ends, "unit": self.unit, **{word: getattr(self, word) for word in WORDS}}


@dataclass(frozen=True)
class Own:
    """What is known of a tensor that stands for an own value: its region, how many calls lie behind it, and the value;
    None if that is the tensor itself. ``maker``: the paired call that has returned it, if there is one; ``call``: the
    name of the call that has, in any case.
    """

    region: Region
    depth: int
    value: Any = None
    maker: Mark | None = None
    call: str = ""


class Regions:
    """The regions of one step of one rank. ``unit``: the unit of rounding that the reference computes in; a type of
    fewer digits that the candidate alone uses is no reason to be apart.
    """

    def __init__(self, unit: float = 0.0) -> None:
        self._unit = unit
        self._all: list[Region] = []
        self._own: dict[int, tuple[Any, Own]] = {}
        # By which paired call a tensor was made, which has the recorded values.
        self._made: dict[int, tuple[Any, Mark]] = {}
        # Paired calls whose results go into regions: the gradients that come back to them are ends.
        self._entries: dict[Mark, list[Region]] = {}
        self._passes: list[str] = []
        # Own values that are not what the reference has, and that nothing took so far.
        self._loose_ends: dict[int, tuple[Region, str, str, str | None]] = {}
        # Of paired calls: where they were made, and which paired calls made what they took.
        self._calls: dict[Mark, tuple[str | None, tuple[Mark, ...]]] = {}
        # By parameter, the regions that have taken it.
        self._taken: dict[int, tuple[Any, list[Region]]] = {}
        # Paired calls through which gradients of a region go back as they are.
        self._passed: dict[Mark, list[Region]] = {}

    def __iter__(self) -> Iterator[Region]:
        return (region for region in self._all if region.into is None)

    # ---------------------------------------------------------------- passes

    def enter(self, name: str) -> None:
        """A module begins."""
        self._passes.append(name)

    def leave(self, name: str) -> None:
        """It ends; those inside of it that did not say so have, too."""
        if name in self._passes:
            del self._passes[self._passes.index(name) :]

    @property
    def passes(self) -> Sequence[str]:
        """The passes of modules that run now, the innermost last."""
        return self._passes

    # ---------------------------------------------------------------- tensors

    def own(self, tensor: Any) -> Own | None:
        """What is known of a tensor that stands for an own value; None of all others."""
        entry = self._own.get(id(tensor))
        return entry[1] if entry is not None and entry[0]() is tensor else None

    def maker(self, tensor: Any) -> Mark | None:
        """The paired call that has returned a tensor, which was put right."""
        entry = self._made.get(id(tensor))
        return entry[1] if entry is not None and entry[0]() is tensor else None

    def note_made(self, tensor: Any, mark: Mark) -> None:
        """A paired call has returned a tensor, which has the reference's values."""
        self._own.pop(id(tensor), None)
        self._made[id(tensor)] = weakref.ref(tensor), mark

    def keep(
        self,
        tensor: Any,
        region: Region,
        depth: int,
        value: Any = None,
        differs: Any = None,
        maker: Mark | None = None,
        call: str = "",
    ) -> None:
        """A tensor stands for an own value now. ``differs``: the paired call which the reference has another result of;
        that counts if nothing takes it any more. ``maker``: the paired call that has returned it; ``call``: the name of
        the call that has.
        """
        if differs is not None:
            self._loose_ends[id(tensor)] = region, differs.name, differs.key, differs.parent
        else:
            self._loose_ends.pop(id(tensor), None)
        region.root.has_gradient |= tensor.requires_grad
        self._own[id(tensor)] = weakref.ref(tensor), Own(region, depth, None if value is tensor else value, maker, call)
        if value is None or value is tensor:
            self._made.pop(id(tensor), None)

    def take(self, tensor: Any) -> None:
        """A call takes an own value: what comes of it says more."""
        self._loose_ends.pop(id(tensor), None)

    def close(self, is_balanced: Callable[[str, str | None], bool]) -> None:
        """The step is over. ``is_balanced``: both sides make so many calls of a name in a pass, so that it is known
        which of them answer to each other.
        """
        for region, name, key, parent in self._loose_ends.values():
            if is_balanced(key, parent):
                region.root.end(name, False)
        self._loose_ends.clear()

    def drop(self, tensor: Any) -> None:
        """A tensor is followed no more: it is what the paired call has returned."""
        own = self.own(tensor)
        self._own.pop(id(tensor), None)
        if own is not None and own.maker is not None and own.value is not None:
            self.note_made(tensor, own.maker)

    def taking(self, parameter: Any) -> list[Region]:
        """The regions that have taken a parameter."""
        entry = self._taken.get(id(parameter))
        if entry is None or entry[0]() is not parameter:
            return []
        return list(dict.fromkeys(region.root for region in entry[1]))

    # ---------------------------------------------------------------- calls

    def join(self, name: str, owned: Sequence[Own], tensors: Iterable[Any], begins: bool) -> Region:
        """The region that a call on own values is in. ``tensors``: all that go in; ``begins``: it does something
        otherwise itself.
        """
        passes = tuple(self._passes)
        region: Region | None = None
        for owned_tensor in owned:
            other = owned_tensor.region.root
            region = other if region is None else self._merged(region, other)
        if region is None:
            region = Region(passes, most=self._unit)
            self._all.append(region)
        elif begins:
            region.passes = _common(region.passes, passes)
        region.calls.setdefault(name)
        region.takes.setdefault(name, set()).update(owned_tensor.call for owned_tensor in owned)
        for tensor in tensors:
            if tensor.requires_grad and tensor.is_leaf:
                self._taken.setdefault(id(tensor), (weakref.ref(tensor), []))[1].append(region)
            maker = self.maker(tensor)
            if maker is not None and region not in self._entries.setdefault(maker, []):
                self._entries[maker].append(region)
        return region

    def _merged(self, region: Region, other: Region) -> Region:
        if region is other:
            return region
        region.passes = _common(region.passes, other.passes)
        region.unit = max(region.unit, other.unit)
        region.compensates |= other.compensates
        region.taken = max(region.taken, other.taken)
        region.moves = max(region.moves, other.moves)
        region.is_coarser |= other.is_coarser
        region.is_reshaped |= other.is_reshaped
        region.is_put_right |= other.is_put_right
        region.is_own |= other.is_own
        region.paired |= other.paired
        region.has_gradient |= other.has_gradient
        region.is_of_other_shapes |= other.is_of_other_shapes
        region.calls.update(other.calls)
        region.followed.update(other.followed)
        region.arrived.update(other.arrived)
        region.passed.update(other.passed)
        region.made_up.update(other.made_up)
        region.judged |= other.judged
        for name, makers in other.takes.items():
            region.takes.setdefault(name, set()).update(makers)
        for name, agrees in other.ends.items():
            region.end(name, agrees)
        other.into = region
        return region

    def is_too_far(self, own: Own) -> bool:
        """True if own values have been followed for too long."""
        return own.depth >= (_FARTHEST_INSIDE if own.region.root.passes else _FARTHEST)

    def note_call(self, mark: Mark, parent: str | None, tensors: Iterable[Any]) -> None:
        """A paired call was made of tensors, in the pass of a module."""
        makers = (self.maker(tensor) for tensor in tensors)
        self._calls[mark] = parent, tuple(maker for maker in makers if maker is not None and maker != mark)

    def goes_back(self, mark: Mark, region: Region, has_unmade: Callable[[str], bool]) -> bool:
        """True if the gradient that a region gives back to a paired call says nothing yet: in the pass that the region
        is in the reference makes calls that the candidate does not, so that another share of it comes back by each.
        Then it is judged further back.
        """
        parent, makers = self._calls.get(mark, (None, ()))
        if not all(region.ends.values()) or not region.passes or parent != region.passes[-1] or not has_unmade(parent):
            return False
        self.pass_back(mark, region)
        return bool(makers)

    def pass_back(self, mark: Mark, region: Region) -> None:
        """What comes back to a paired call by a region, or what the region has taken from it, is another share of its
        gradient than in the reference: that is judged, and put right, at the calls before it.
        """
        _, makers = self._calls.get(mark, (None, ()))
        self._passed.setdefault(mark, []).append(region)
        for maker in makers:
            if region not in self._entries.setdefault(maker, []):
                self._entries[maker].append(region)

    def is_passed(self, mark: Mark, name: str) -> bool:
        """True if gradients go back through a paired call as they are; ``name``: that of its backward call."""
        regions = self._passed.get(mark, ())
        for region in regions:
            region.root.passed.setdefault(name)
        return bool(regions)

    def goes_through(self, mark: Mark, name: str) -> bool:
        """True if gradients go back through a paired call of a region as they are, as they depend on it; ``name``: that
        of its backward call.
        """
        entered = next((region for region in self if mark in region.paired and region.is_open), None)
        if entered is not None:
            entered.passed.setdefault(name)
        return entered is not None

    def entries(self) -> list[Mark]:
        """The paired calls whose results have gone into regions."""
        return list(self._entries)

    def entered_from(self, mark: Mark) -> list[Region]:
        """The regions that the results of a paired call have gone into."""
        return list(dict.fromkeys(entry.root for entry in self._entries.get(mark, ())))


def _common(first: tuple[str, ...], other: tuple[str, ...]) -> tuple[str, ...]:
    count = next((n for n, (a, b) in enumerate(zip(first, other, strict=False)) if a != b), min(len(first), len(other)))
    return first[:count]
