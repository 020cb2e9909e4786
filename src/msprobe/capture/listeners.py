"""Listeners: whoever wants to know what happens while a program runs.

An :class:`Observer` looks. It is given no way to change anything: what its methods return is not looked at. A
:class:`Changer` may give a call other arguments or another result, and names in ``changes`` what it changes; nothing
else does it reach. Both say in ``wants`` what they are notified of, and in ``cadence`` in which steps.

What a listener computes in a callback is recorded by nobody and has no gradient; random generators and the grad mode
are put back as they were. A listener that raises is reported once in the log and is notified of nothing more.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from msprobe.capture.events import (
    DIRECTIONS,
    KINDS,
    AccumulatedGradient,
    Direction,
    Event,
    EventKind,
    Failure,
    Gradient,
    ParameterGradient,
    Step,
)
from msprobe.errors import InvalidInputError
from msprobe.messages import joined, said


@dataclass(frozen=True)
class Wants:
    """What a listener is notified of.

    ``kinds``: kinds of events. ``names``: patterns (``*``, ``?``, ``[..]``) of which one has to match, over names
    without direction and number (``Functional.linear``, ``Module.encoder.*.Linear``), or one call with its number
    (``Functional.linear.3``); empty: all. ``modules``: patterns over module paths (``encoder.layers.*``); passes and
    gradients of parameters of these modules, and calls made inside of their passes; empty: all, but the model itself
    (``root``) only where the dump has it. ``directions``: "forward" is ``before`` and ``after``, "backward"
    the gradients of calls and passes.

    What is not wanted costs nothing: a listener for three modules puts hooks on three modules. Raises
    InvalidInputError for an unknown kind or direction.
    """

    kinds: Collection[EventKind] = KINDS
    names: Sequence[str] = ()
    modules: Sequence[str] = ()
    directions: Collection[Direction] = DIRECTIONS

    def __post_init__(self) -> None:
        mistakes: list[str] = []
        for several, known, word in (
            (self.kinds, KINDS, "kind"),
            (self.directions, DIRECTIONS, "direction"),
        ):
            if isinstance(several, str):
                mistakes.append(said("wants-text-for-list", several))
            else:
                mistakes += [said("no-such-wants", name, word) for name in several if name not in known]
        for field, value in (("names", self.names), ("modules", self.modules)):
            if isinstance(value, str) or not all(isinstance(item, str) for item in value):
                mistakes.append(said("wants-list-of-texts", field, value))
        if mistakes:
            raise InvalidInputError(
                said(
                    "wants-wrong",
                    joined("; ", mistakes),
                    ", ".join(sorted(KINDS)),
                    ", ".join(sorted(DIRECTIONS)),
                )
            )


@dataclass(frozen=True)
class Cadence:
    """In which steps and ranks a listener is notified of anything.

    ``steps``: these alone; None: all. ``every``: of these, every n-th from ``first`` on: those whose distance from
    ``first`` is a multiple of it. ``last``: none after this one. ``ranks``: None: all; a single process is rank 0.
    """

    steps: Collection[int] | None = None
    every: int = 1
    first: int = 0
    last: int | None = None
    ranks: Collection[int] | None = None

    def __post_init__(self) -> None:
        if self.every < 1:
            raise InvalidInputError(said("cadence-wrong", self.every))

    def has(self, step: int, rank: int | None) -> bool:
        """True if the step of this number and rank is one of them."""
        if self.steps is not None and step not in self.steps:
            return False
        if step < self.first or (self.last is not None and step > self.last) or (step - self.first) % self.every:
            return False
        return self.ranks is None or (rank or 0) in self.ranks


@dataclass(frozen=True)
class Changes:
    """What a :class:`Changer` changes: of the calls and passes whose names match (as in :class:`Wants`), their
    arguments, their results, the gradients that come back through them (PyTorch). ``values``: of the optimizer steps
    and collectives whose names match, what their tensors hold (PyTorch).
    """

    names: Sequence[str]
    arguments: bool = False
    results: bool = False
    gradients: bool = False
    values: bool = False

    def __post_init__(self) -> None:
        if isinstance(self.names, str):
            raise InvalidInputError(said("changes-wrong", self.names))


@dataclass(frozen=True)
class Arguments:
    """Arguments for a call or pass in place of its own. ``written``: pairs of a tensor among its own ones and of what
    that is to hold before the call, as of :class:`Values`: of tensors that the call itself goes on to write to.
    """

    args: Sequence[Any]
    kwargs: Mapping[str, Any]
    written: Sequence[tuple[Any, Any]] = ()


@dataclass(frozen=True)
class Result:
    """A result in place of the one that a call or pass has computed.

    Where the own result has a gradient and ``value`` has none, the gradient goes on to what computed the own result:
    the values change, and what is differentiated does not. A ``value`` with a gradient of its own is taken as it is. A
    call that writes its result into an argument cannot have another one, unless ``written``.

    ``written`` (PyTorch): ``value`` is written into the memory of the own result, which stays the tensor it is: so what
    the call has saved of it for its backward pass, what it wrote into an argument, and views of it have the other
    values too, and torch does not count it as a write of the program. Types and devices may differ, shapes may not; a
    tensor of which ``value`` has None stays as it is. Where the memory is that of an argument to which the call has not
    written, the values take its place as without ``written``.
    """

    value: Any
    written: bool = False


@dataclass(frozen=True)
class Values:
    """What tensors of an optimizer step (weights, gradients, moments) or of a collective (its buffers) are to hold:
    pairs of a tensor that the event has shown, and its values, of the same shape. They are written in place, and
    torch does not count it as a write of the program.
    """

    pairs: Sequence[tuple[Any, Any]]


@dataclass(frozen=True)
class NewGradient:
    """A gradient in place of the one that came: ``value`` is a tensor of its shape, type and device, and is copied.

    What it came from goes on with it; all else in the backward pass stays as it is. Only where
    :attr:`msprobe.capture.events.Gradient.can_be_replaced` is true.
    """

    value: Any


class Listener:
    """What observers and changers have in common. All methods may be left out."""

    wants: Wants = Wants()
    #: For a listener that watches every step of a long training: it promises by itself what the bus sees to otherwise
    #: (no random numbers, no gradient, nothing that a mode of the program could see, no writing to tensors), and is
    #: called without the time that this takes.
    is_careful: bool = False
    #: For a listener that says by itself which of its names nothing had: the bus puts the name of each call in it that
    #: is made while it is on, wanted or not, and says nothing of its own.
    names_met: set[str] | None = None
    #: May be set anew at any time, as ``is_on``: it counts from the next ``start`` on.
    cadence: Cadence = Cadence()
    is_on: bool = True

    def gradient(self, event: Gradient | ParameterGradient | AccumulatedGradient) -> None:
        """A gradient has come."""

    def failed(self, event: Failure) -> None:
        """What was reported by ``before`` has raised."""

    def step_begin(self, event: Step) -> None:
        """Recording begins in a step."""

    def step_end(self, event: Step) -> None:
        """The step is over."""


class Observer(Listener):
    """Looks, and changes nothing."""

    def before(self, event: Event) -> None:
        """Something is about to happen."""

    def after(self, event: Event, result: Any) -> None:
        """It has happened."""


class Changer(Listener):
    """Looks, and changes what ``changes`` names."""

    changes: Changes = Changes(())
    #: True: it comes behind the dump, which then has the program's own arguments, results and gradients.
    behind_dump: bool = False

    def before(self, event: Event) -> Arguments | Values | None:
        """Something is about to happen. Other arguments for it, if it is a call or pass that ``changes`` names; other
        values, if it is an optimizer step.
        """
        return None

    def after(self, event: Event, result: Any) -> Result | Values | None:
        """It has happened. Another result of it, if it is a call or pass that ``changes`` names; other values, if it is
        an optimizer step or a collective.
        """
        return None

    def gradient(  # type: ignore[override]
        self, event: Gradient | ParameterGradient | AccumulatedGradient
    ) -> NewGradient | None:
        """A gradient has come. Another one for it, if it came through a call or pass that ``changes`` names."""
        return None
