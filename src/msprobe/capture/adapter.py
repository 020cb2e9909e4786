"""What the core asks of a framework, and nothing more.

An adapter tells the core of calls and passes (:class:`msprobe.capture.units.UnitRecorder`) and answers these
questions. Arguments and results are the framework's own objects; the core looks into containers only.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from msprobe.capture.units import Unit

# A tensor with its index path in the record: ``input.0``, ``kwargs.mask``, ``output.1``.
Place = tuple[str, Any]


class Tensors(Protocol):
    """How a framework's tensors are read. Any of these may raise: it costs the value, never the training."""

    def is_tensor(self, value: Any) -> bool:
        """True for what a record describes as a tensor."""

    def describe(self, tensor: Any) -> Any:
        """The description of a tensor as it is now; see :meth:`msprobe.capture.records.Describer`."""

    def keep(self, tensor: Any, description: Any, path: str) -> Any:
        """Save the values as they are now under ``path``; the description that names the file."""


class Gradients(Protocol):
    """How a framework's backward pass is watched. Nothing that is done here may change a result."""

    def note(self, tensors: Sequence[Place]) -> Any:
        """Before a call or pass: what must be known of its arguments to find their gradients later."""

    def watch(self, unit: Unit, note: Any, tensors: Sequence[Place]) -> None:
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


class NoGradients:
    """For programs without a backward pass."""

    def note(self, tensors: Sequence[Place]) -> None:
        """Nothing."""

    def watch(self, unit: Unit, note: Any, tensors: Sequence[Place]) -> None:
        """Nothing."""

    def close_open(self) -> None:
        """Nothing."""
