"""What the free benchmark asks of a framework. Tensors are the framework's own."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Protocol

from msprobe.config.settings import FreeBenchmark, PerturbationMode


@dataclass(frozen=True)
class Invocation:
    """A call, ready to be made again.

    ``context``: what of the framework's state it was made in. ``with_graph``: its result had a gradient, for which
    frameworks may choose another kernel. ``rounding``: by how much, relative, and with which signs its inputs were
    moved, among which the gradients that arrive count in the backward stage.
    """

    function: Callable[..., Any]
    args: Sequence[Any]
    kwargs: Mapping[str, Any]
    context: Any = None
    with_graph: bool = False
    rounding: tuple[float, int] | None = None


@dataclass(frozen=True)
class ErrorLimits:
    """What counts as different: elements below ``floor`` count as it; ratios up to ``ratio`` are equal."""

    floor: float
    ratio: float


@dataclass(frozen=True)
class TensorDistance:
    """How far two tensors are apart. ``ratio``: the greatest; ``word``: in its place, ``symbol_flipping`` or
    ``nan_mismatch``; empty otherwise.
    """

    is_equal: bool
    ratio: float = 1.0
    word: str = ""
    mean_rel: float = 0.0
    bad_ratio: float = 0.0

    @property
    def max_rel(self) -> float | str:
        """As the table has it."""
        return self.word or self.ratio - 1


@dataclass(frozen=True)
class Reactions:
    """What is needed to say whether rounding explains a difference: results of runs in a wider type, or in the own one
    where there is none, of which all but the first had inputs that are apart as the compared runs' are, or by rounding.
    ``unit``: rounding of the call's own type, relative.
    """

    base: Any
    shifted: Sequence[Any]
    unit: float


class Framework(Protocol):
    """See the module's text. Nothing here may change a tensor of the program."""

    @property
    def asks_later(self) -> bool:
        """True where a call that fails spoils the gradients that the program is about to compute, though its error is
        caught: calls are made again when the step is over.
        """

    def settle(self) -> None:
        """Wait for what was computed, so that what fails in it fails here. Raises what failed."""

    def aside(self) -> AbstractContextManager[None]:
        """What is done with tensors in it is seen by no mode and no graph of the program."""

    def random_numbers_kept(self) -> AbstractContextManager[None]:
        """Whatever draws random numbers in it, the program draws those that it would have drawn."""

    def is_in_optimizer(self) -> bool:
        """True if it is the code of an optimizer that makes the call that is reported, and no closure of the program's.
        Asked in a step of an optimizer alone.
        """

    def is_tensor(self, value: Any) -> bool:
        """True for any tensor."""

    def why_not(self, value: Any) -> str:
        """Why calls with this argument or result are not made again; empty if they are."""

    def why_not_call(self, key: str) -> str:
        """Why calls of this API are not made again here; empty if they are."""

    def is_float(self, tensor: Any) -> bool:
        """True for real and complex floating types."""

    def dtype(self, tensor: Any) -> str:
        """``float16``."""

    def shown_dtype(self, tensor: Any) -> str:
        """As the table has it."""

    def shown_shape(self, tensor: Any) -> str:
        """As the table has it."""

    def rank(self, tensor: Any) -> int:
        """The number of dimensions."""

    def nbytes(self, tensor: Any) -> int:
        """The bytes of its elements."""

    def requires_grad(self, tensor: Any) -> bool:
        """True if a gradient is wanted of it."""

    def versions(self, tensors: Sequence[Any]) -> Sequence[int]:
        """Numbers that another one takes the place of when a tensor is written to; empty where nobody counts."""

    def detached(self, tensor: Any) -> Any:
        """The same memory, without the graph."""

    def twin(self, tensor: Any) -> Any:
        """A copy that a kernel cannot distinguish from the tensor: same strides, same alignment."""

    def cast(self, tensor: Any, dtype: str) -> Any:
        """A copy of this type."""

    def with_dtype_of(self, tensor: Any, other: Any) -> Any:
        """``tensor`` with the type and device of ``other``."""

    def on_cpu(self, tensor: Any) -> Any:
        """A copy on the host."""

    def on_device_of(self, tensor: Any, other: Any) -> Any:
        """``tensor`` where ``other`` is."""

    def perturbed(self, mode: PerturbationMode, tensor: Any, settings: FreeBenchmark) -> Any:
        """A changed copy for the modes add_noise and bit_noise, or the reason why there is none: a str."""

    def exchanged(self, tensor: Any, axis: int | None) -> Any:
        """A copy with the first and last slice along ``axis`` exchanged (None: the first and last element by row and
        column, as 8.1.1 has it), or the reason why there is none: a str.
        """

    def as_required(self, tensor: Any, own: Any) -> Any:
        """``tensor``, which is ours, with a gradient wanted of it if one is of ``own``."""

    def last(self, tensor: Any, axis: int) -> Any:
        """The last slice along an axis."""

    def rounded(self, tensor: Any, unit: float, seed: int) -> Any:
        """A copy of which each element is moved by ``unit``, relative, with signs that ``seed`` chooses."""

    def moved(self, tensor: Any, seed: int) -> Any:
        """A copy of the same type of which each element is another number, as near as one rounding of that type may
        take it; with signs that ``seed`` chooses, and finite where it was.
        """

    def distance(self, first: Any, other: Any) -> float:
        """Norm of the difference over norm of the first; 0 for equal tensors."""

    def ones_for(self, result: Any) -> Sequence[Any]:
        """For each tensor of a result a gradient of ones; None for those that have none."""

    def context(self) -> Any:
        """Before a call: what :meth:`again` needs to make it under the same state (random generators, autocast)."""

    def precision(self, context: Any) -> str:
        """The type that autocast makes calls compute in; empty where it is off."""

    def again(self, call: Invocation, widened: bool = False) -> Any:
        """Make a call; its results have no graph. ``widened``: without autocast."""

    def vjp(
        self, call: Invocation, wanted: Sequence[tuple[Any, ...]], gradients: Sequence[Any], widened: bool = False
    ) -> list[Any]:
        """What comes back to the tensors at the places ``wanted`` when ``gradients`` arrive at the results (None for
        those that none arrives at): a gradient or None each.
        """

    def with_graph(self, call: Invocation, on_cpu: bool) -> Any:
        """Make a call in float32, or on the CPU, with the graph of its arguments."""

    def shares_memory(self, results: Sequence[Any], arguments: Sequence[Any]) -> bool:
        """True if one of the results is a view of an argument, or an argument itself."""

    def unit(self, tensor: Any) -> float:
        """What one rounding changes at most where this result was computed, relative."""

    def compare(self, own: Any, other: Any, limits: ErrorLimits) -> TensorDistance:
        """How far apart they are, where ``own`` counts in the type of ``other``."""

    def compare_with_cpu(self, own: Any, golden: Any, limit: float, mean_limit: float) -> TensorDistance:
        """Against what the CPU computed."""

    def is_explained(self, own: Any, other: Any, limits: ErrorLimits, reactions: Reactions) -> bool:
        """True if every element that differs does so by no more than rounding or the change of the inputs may do."""

    def goes_one_way(self, own: Any, reactions: Reactions) -> str:
        """What the errors of a result against that of the wider type have in common, as those of rounding have not
        (:mod:`msprobe.signed_errors`); empty if nothing.
        """

    def free_memory(self, tensor: Any) -> int | None:
        """The bytes that are free where this tensor is; None if nobody knows."""
