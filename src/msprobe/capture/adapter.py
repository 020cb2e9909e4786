"""What the core asks of a framework, and nothing more.

An adapter notifies the core of calls and passes (:class:`msprobe.capture.units.UnitRecorder`) and answers these
questions. Arguments and results are the framework's own objects; the core looks into containers only.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, Protocol

from msprobe.capture.relayed_units import Relayed

# A tensor with its index path in the record: ``input.0``, ``kwargs.mask``, ``output.1``.
PlacedTensor = tuple[str, Any]


class Tensors(Protocol):
    """How a framework's tensors are read. Any of these may raise: it costs the value, never the training."""

    def is_tensor(self, value: Any) -> bool:
        """True for what a record describes as a tensor."""

    def describe(self, tensor: Any) -> Any:
        """The description of a tensor as it is now; see :meth:`msprobe.capture.records.Describer`."""

    def keep(self, tensor: Any, description: Any, path: str) -> Any:
        """Save the values as they are now under ``path``; the description that names the file."""


class Followed(Protocol):
    """A call or pass whose gradients are looked for."""

    # The entry of its backward record.
    backward: str
    # None for a call.
    module: Any
    # The entry that it happens in; False: it has no place in the hierarchy.
    parent: Any


class Gradients(Protocol):
    """How a framework's backward pass is watched. Nothing that is done here may change a result."""

    def note(self, tensors: Sequence[PlacedTensor]) -> Any:
        """Before a call or pass: what must be known of its arguments to find their gradients later."""

    def watch(self, unit: Followed, note: Any, tensors: Sequence[PlacedTensor]) -> None:
        """The call or pass has returned these tensors: see to it that its backward record is written."""

    def close_open(self) -> None:
        """Write the backward records of which not all has arrived."""


class Modules(Protocol):
    """What is asked of a module (a cell)."""

    def own_parameters(self, module: Any) -> Iterable[tuple[str, Any]]:
        """Its parameters without those of the modules inside, by name."""

    def is_training(self, module: Any) -> bool:
        """False if it runs in evaluation mode."""

    def ran(self, name: str, module: Any) -> None:
        """The first pass of the module in this step is recorded: the place for its parameters' gradients."""


class ListenerSupport(Protocol):
    """What the bus asks of a framework for its listeners (:mod:`msprobe.capture.bus`)."""

    def unseen(self) -> AbstractContextManager[Any]:
        """Inside, a listener works: nothing that it computes has a gradient, or is seen by modes and hooks of the
        program; random generators and the grad mode are put back behind it.
        """

    def is_traced(self) -> bool:
        """True while the program is traced or compiled: what we do would become part of that."""

    def tensors_of(self, values: Sequence[Any]) -> Sequence[Any]:
        """The tensors among these values and in their containers."""

    def versions(self, tensors: Sequence[Any]) -> Sequence[int]:
        """For each tensor a number that another one takes the place of when it is written to."""

    def copied(self, value: Any) -> Any:
        """``value`` with a copy of each tensor in it."""

    def in_place_of(self, own: Any, given: Any, args: Sequence[Any]) -> Any:
        """``given``, to take the place of the result ``own`` of a call with ``args``: the gradient of each tensor in
        it that has none of its own goes on to what computed the own one. Raises ValueError if it cannot.
        """

    def written(self, own: Any, given: Any, kept: Sequence[Any]) -> Any:
        """The result ``own``, with the values of ``given`` in its memory, or, where that is the memory of one of
        ``kept``, in its place. Raises ValueError if it cannot.
        """

    def write(self, own: Any, given: Any) -> None:
        """Write the values of ``given`` into a tensor of the program, unseen. Raises ValueError if it cannot."""

    def note(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        """Before a call or pass: what must be known of its arguments to find their gradients. None: there are none."""

    def watch(self, relayed: Relayed, note: Any, result: Any) -> None:
        """It has returned: notify the bus of its gradients when they come."""

    def watch_parameters(self, name: str, module: Any) -> None:
        """A module is about to run: notify the bus of the gradients of its parameters when they come."""
