"""What happens while a program is recorded, as facts: calls, passes of modules, gradients, optimizer steps, ...

An event says what happens, under the name that the dump has for it (``Functional.linear.3.forward``), and holds the
live values. Nothing is described, copied or computed for it; where a call came from is looked up when it is asked for.
**An event lives for the callback only**: whoever needs a tensor later copies it, and keeps no event.

No framework is known here. Tensors, modules and optimizers are the framework's own.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from msprobe.capture.stacks import CallStack
from msprobe.messages import said

EventKind = Literal["call", "pass", "parameter_gradient", "accumulated_gradient", "optimizer", "collective", "saved"]
Direction = Literal["forward", "backward"]
Side = Literal["argument", "result"]

KINDS: frozenset[EventKind] = frozenset(
    ("call", "pass", "parameter_gradient", "accumulated_gradient", "optimizer", "collective", "saved")
)
DIRECTIONS: frozenset[Direction] = frozenset(("forward", "backward"))


class Origin:
    """Where an event comes from: looked up once, when somebody asks, and the same for all who do."""

    __slots__ = ("_find", "_stack", "order", "parent")

    def __init__(self, find: Callable[[], CallStack] | None, parent: str | None, order: int | None) -> None:
        self._find = find
        self._stack: CallStack | None = None
        self.parent = parent
        self.order = order

    def stack(self) -> CallStack | None:
        """The call stack; None for what nobody called, as a gradient."""
        if self._stack is None and self._find is not None:
            self._stack = self._find()
        return self._stack


@dataclass(frozen=True, slots=True, eq=False)
class Event:
    """What all events have.

    ``name``: as in the dump. ``step``, ``rank``: the numbers of the dump's folders; ``rank`` is None in a single
    process.
    """

    name: str
    step: int
    rank: int | None


@dataclass(frozen=True, slots=True, eq=False)
class _Placed(Event):
    key: str
    number: int
    origin: Origin

    @property
    def parent(self) -> str | None:
        """The entry of the innermost pass of a module that it happens in, among the modules that are watched."""
        return self.origin.parent

    @property
    def order(self) -> int | None:
        """The place of its record in the dump's order of execution; None if the dump has no record of it."""
        return self.origin.order

    @property
    def stack(self) -> tuple[str, ...]:
        """The call stack as stack.json has it, innermost frame first."""
        call_stack = self.origin.stack()
        return () if call_stack is None else call_stack.lines()

    @property
    def source(self) -> str:
        """``file:line`` of the innermost frame that is the user's; empty if there is none."""
        call_stack = self.origin.stack()
        return "" if call_stack is None else call_stack.source

    @property
    def is_recompute(self) -> bool:
        """True while activation checkpointing repeats a forward pass."""
        call_stack = self.origin.stack()
        return call_stack is not None and call_stack.recompute


@dataclass(frozen=True, slots=True, eq=False)
class Call(_Placed):
    """A call of an API: ``Functional.linear.3.forward``; ``key`` is ``Functional.linear``, ``number`` 3.

    ``function(*args, **kwargs)`` is the call. In ``after`` the arguments are the same objects as in ``before``; the
    call may have written to them.
    """

    args: Sequence[Any]
    kwargs: Mapping[str, Any]
    function: Callable[..., Any] | None
    copied: Callable[[Any], Any]

    @property
    def can_repeat(self) -> bool:
        """True if :meth:`repeat` can make the call again."""
        return self.function is not None

    def copies(self) -> tuple[list[Any], dict[str, Any]]:
        """The arguments, with a copy of each tensor in them: to be changed at will."""
        return [self.copied(value) for value in self.args], {k: self.copied(v) for k, v in self.kwargs.items()}

    def repeat(self, args: Sequence[Any], kwargs: Mapping[str, Any] | None = None) -> Any:
        """Make the call again, with these arguments; no gradient is computed, and nobody records it.

        It may write to what it is given: give it copies (:meth:`copies`). TypeError if it cannot be repeated.
        """
        if self.function is None:
            raise TypeError(said("call-cannot-be-repeated", self.name))
        return self.function(*args, **(kwargs or {}))


@dataclass(frozen=True, slots=True, eq=False)
class ModulePass(_Placed):
    """A forward pass of a module (a cell): ``Module.fc1.Linear.forward.0``; ``key`` is ``Module.fc1.Linear``."""

    module: Any
    args: Sequence[Any]
    kwargs: Mapping[str, Any]

    @property
    def path(self) -> str:
        """Where the module is in the model: ``encoder.layers.0``."""
        return path_of(self.key)


@dataclass(frozen=True, slots=True, eq=False)
class Collective(_Placed):
    """A communication between ranks. ``after`` comes when its buffers are known to be filled: for one that is
    asynchronous when the program has waited for it. Its result there are its arguments; of a functional collective, and
    of one in MindSpore that gives results, these.
    """

    args: Sequence[Any]
    kwargs: Mapping[str, Any]


@dataclass(frozen=True, slots=True, eq=False)
class Gradient(Event):
    """A gradient that comes back through a call or a pass: ``name`` is its backward entry.

    ``side`` "result": it arrives at a result; "argument": it leaves to an argument, the sum of all its uses inside.
    ``place`` is that of the argument or result in the forward record: ``input.0``, ``kwargs.mask``, ``output.1``.
    ``can_be_replaced``: a changer may give another one for it. Not so in MindSpore, of tensors that are distributed or
    not dense, of calls and passes that no changer names, and of an argument whose gradient is the sum of parts that
    come from several nodes of the graph, as the first of them are on their way when the last one comes.
    """

    key: str
    number: int
    side: Side
    place: str
    gradient: Any
    can_be_replaced: bool = False


@dataclass(frozen=True, slots=True, eq=False)
class ParameterGradient(Event):
    """What a backward pass is about to add to the gradient of a parameter, before any reduction over ranks.

    ``name`` is the entry ``Module.fc1.Linear.parameters_grad``, ``parameter`` its key there (``weight``), ``number``
    how many came before in this step.
    """

    key: str
    parameter: str
    number: int
    gradient: Any

    @property
    def path(self) -> str:
        """Where the module is in the model."""
        return path_of(self.key)


@dataclass(frozen=True, slots=True, eq=False)
class AccumulatedGradient(Event):
    """A backward pass has added to the gradient of a parameter: ``gradient`` is what has gathered since it was emptied,
    before any reduction over ranks. Of a parameter that a wrapper keeps in shards nothing gathers here; its parts are
    :class:`ParameterGradient`.

    ``name``, ``parameter``: as there; ``number``: how many backward passes came before in this step; ``weight``: the
    parameter.
    """

    key: str
    parameter: str
    number: int
    weight: Any
    gradient: Any

    @property
    def path(self) -> str:
        """Where the module is in the model."""
        return path_of(self.key)


@dataclass(frozen=True, slots=True, eq=False)
class OptimizedParameter:
    """A parameter as its optimizer has it now: live tensors; ``moments`` is the optimizer's state of it."""

    weight: Any
    gradient: Any
    moments: Mapping[str, Any]


@dataclass(frozen=True, slots=True, eq=False)
class OptimizerStep(_Placed):
    """A step of an optimizer: ``before`` it and ``after`` it.

    ``after`` has no result. ``has_closure``: the gradients are computed inside of the step. ``is_skipped``: a gradient
    scaler has found infinities or NaN, so it is not taken; :meth:`Listener.failed` follows.
    """

    optimizer: Any
    has_closure: bool
    read: Callable[[], Mapping[str, OptimizedParameter]]
    is_skipped: bool = False

    @property
    def parameters(self) -> Mapping[str, OptimizedParameter]:
        """All parameters of the optimizer by name, as they are now."""
        return self.read()


@dataclass(frozen=True, slots=True, eq=False)
class SavedValue(Event):
    """A variable that the program gave to ``save``: ``loss.0.debug``."""

    value: Any


@dataclass(frozen=True, slots=True, eq=False)
class Failure(Event):
    """``event`` has raised ``error``, which goes on its way."""

    event: Event
    error: BaseException


@dataclass(frozen=True, slots=True, eq=False)
class Step:
    """A step of the program begins or ends, in which the listener is on."""

    step: int
    rank: int | None


def path_of(key: str) -> str:
    """The module path in ``Module.{path}.{Class}``."""
    return key.partition(".")[2].rpartition(".")[0]
