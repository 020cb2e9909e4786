"""What the monitor asks of a framework: names, numbers of tensors, and the state of the program."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from typing import Any, Protocol

from msprobe.monitor.gathering import TensorCells
from msprobe.monitor.operators import Operators

#: Environment variable: tensors of the host are treated as those of a device. For tests of that way.
DEFER = "MSPROBE_MONITOR_DEFER"

Named = list[tuple[str, Any]]


class Meter(Protocol):
    """Gives each tensor its :class:`TensorCells`, with the values or with values that come when they are collected."""

    @property
    def operators(self) -> Operators:
        """What is computed."""

    def nothing(self) -> TensorCells:
        """For what is no tensor."""

    def measure(self, tensor: Any) -> TensorCells:
        """The statistics of a tensor as it is now. Raises what the framework raises for what cannot be read."""

    def collect(self) -> Callable[[], None]:
        """The step is over: begin to read what is still to come. Call what is returned when the cells are needed."""

    def drop(self) -> None:
        """What is still to come is not wanted."""


class MonitorFramework(Protocol):
    """The framework of the training, as far as a monitor has to know it."""

    #: As ``run.json`` names it.
    name: str
    #: The class of tensors.
    tensor: type[Any]

    def unwatched(self) -> AbstractContextManager[Any]:
        """What is done inside is seen by no mode of the program."""

    def new_meter(self, operators: Operators) -> Meter:
        """What measures tensors."""

    def agreement(self, first: Any, other: Any) -> float | None:
        """Mean of the products of the elements' signs, -1 to 1; None where two tensors have no elements to compare."""

    # ---------------------------------------------------------------- the model

    def name_modules(self, models: Sequence[Any]) -> Named:
        """All modules, the models themselves among them, by the keys of their events."""

    def modules_of(self, model: Any) -> Named:
        """Path and module, the model itself first with an empty path."""

    def is_wrapper(self, module: Any) -> bool:
        """True for a module that only wraps another one, and is not measured itself."""

    def parameters_of(self, model: Any) -> Named:
        """Name and parameter, of those that are trained."""

    def states_of(self, model: Any) -> Named:
        """Name and tensor of what the model keeps and no optimizer trains: buffers, parameters without a gradient."""

    def own_parameters(self, module: Any) -> Iterable[tuple[str, Any]]:
        """A module's own parameters by their keys in events."""

    # ---------------------------------------------------------------- the program

    def repeats(self, event: Any) -> bool:
        """True if activation checkpointing repeats a pass that was there before."""

    def has_gradients(self) -> bool:
        """True if what is computed now will have gradients."""

    def trains(self, module: Any) -> bool:
        """True if a module that is about to run is trained, and not evaluated."""

    # ---------------------------------------------------------------- ranks

    def rank(self) -> int:
        """The rank of this process; 0 of a single one."""

    def world(self) -> int:
        """How many processes there are."""

    def is_distributed(self) -> bool:
        """True if this process is one of several that talk to each other, or may be."""

    def ranks_of(self, group: Any) -> list[int]:
        """The ranks of a group of processes."""

    def place_in(self, group: Any) -> int:
        """The place of this process in a group."""

    # ---------------------------------------------------------------- collectives and answers

    def tensors_in(self, value: Any) -> list[Any]:
        """The tensors in an argument, however deep."""

    def joined(self, tensors: Sequence[Any]) -> Any:
        """A list of tensors as one without dimensions but one."""

    def is_in_place(self, event: Any) -> bool:
        """True if a collective leaves what comes in its arguments, not in its result."""

    def as_tensor(self, number: float) -> Any:
        """A number for a program that asks for metrics."""

    def as_shape(self, shape: Sequence[int]) -> Any:
        """A shape for the same."""

    def as_type(self, name: str) -> Any:
        """An element type for the same, by its name in files."""
