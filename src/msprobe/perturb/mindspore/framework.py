"""What the free benchmark asks of MindSpore (:class:`msprobe.perturb.framework.Framework`).

Elements are read and changed on the host, with numpy.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from typing import Any

import mindspore
import numpy as np
from mindspore import Parameter, Tensor

from msprobe.capture.mindspore import listener_support
from msprobe.capture.mindspore.graphs.executor import pynative_executor, wait_for_all
from msprobe.config.settings import FreeBenchmark, PerturbationMode
from msprobe.messages import said
from msprobe.perturb import arrays
from msprobe.perturb.framework import ErrorLimits, Invocation, Reactions, TensorDistance
from msprobe.perturb.operators import last_name
from msprobe.perturb.thresholds import unit_of
from msprobe.perturb.trees import LeafPath, leaves, mapped

# Their generators cannot be put back: made again they would change what the program draws.
_RANDOM = ("drop", "rand", "bernoulli", "multinomial", "normal", "uniform", "poisson", "gamma", "laplace", "gumbel")
_RANDOM_TOO = frozenset("rrelu shuffle choice log_uniform fractional_max_pool2d fractional_max_pool3d".split())
# Their tensors may have a probability to leave elements out.
_MAY_DRAW = ("attention", "rnn", "lstm", "gru")
# Operators that write to parameters, which nobody counts.
_WRITING = ("assign", "apply", "scatter", "fused", "sparseapply")


class MindSporeFramework:
    """See the protocol, which has the meaning of each method."""

    # ---------------------------------------------------------------- unseen

    # A kernel that is missing makes the executor forget the graph of the program.
    asks_later = True

    def settle(self) -> None:
        wait_for_all()

    def aside(self) -> AbstractContextManager[None]:
        return listener_support.aside()

    def random_numbers_kept(self) -> AbstractContextManager[None]:
        return listener_support.random_numbers_kept()

    def is_in_optimizer(self) -> bool:
        """Optimizers have no closures here."""
        return True

    # ---------------------------------------------------------------- tensors

    def is_tensor(self, value: Any) -> bool:
        return isinstance(value, Tensor)

    def why_not(self, value: Any) -> str:
        if not isinstance(value, Tensor):
            is_type = isinstance(value, (type, mindspore.common.dtype.Type))
            return said("is-given-function") if callable(value) and not is_type else ""
        # Initialisers give parameters classes of their own, which are called Parameter as well.
        if type(value) is not Tensor and not isinstance(value, Parameter):
            return said("has-value-of-kind", type(value).__name__)
        if isinstance(value, Parameter) and not value.requires_grad:
            return said("has-parameter-without-gradient")
        return ""

    def why_not_call(self, key: str) -> str:
        name = last_name(key).lower()
        if any(word in name for word in (*_RANDOM, *_MAY_DRAW)) or name in _RANDOM_TOO:
            return said("draws-unrepeatable-numbers")
        if name.startswith(_WRITING):
            return said("writes-to-parameter")
        return ""

    def is_float(self, tensor: Any) -> bool:
        return bool(tensor.is_floating_point())

    def dtype(self, tensor: Any) -> str:
        return str(tensor.dtype).lower()

    def shown_dtype(self, tensor: Any) -> str:
        return str(tensor.dtype)

    def shown_shape(self, tensor: Any) -> str:
        return str(tuple(tensor.shape))

    def rank(self, tensor: Any) -> int:
        return len(tensor.shape)

    def nbytes(self, tensor: Any) -> int:
        return int(tensor.nbytes)

    def requires_grad(self, tensor: Any) -> bool:
        return True

    def versions(self, tensors: Sequence[Any]) -> Sequence[int]:
        """MindSpore does not count."""
        return ()

    def shares_memory(self, results: Sequence[Any], arguments: Sequence[Any]) -> bool:
        """Views are not reported: an argument itself is known."""
        known = {id(argument) for argument in arguments}
        return any(id(result) in known for result in results)

    def unit(self, tensor: Any) -> float:
        return unit_of(self.dtype(tensor))

    def free_memory(self, tensor: Any) -> int | None:
        return None

    # ---------------------------------------------------------------- copies

    def detached(self, tensor: Any) -> Any:
        return tensor.copy()

    def twin(self, tensor: Any) -> Any:
        return Tensor(tensor).copy()

    def cast(self, tensor: Any, dtype: str) -> Any:
        return Tensor(tensor).copy().astype(getattr(mindspore, dtype))

    def with_dtype_of(self, tensor: Any, other: Any) -> Any:
        return tensor.astype(other.dtype)

    def on_cpu(self, tensor: Any) -> Any:
        return self.twin(tensor)

    def on_device_of(self, tensor: Any, other: Any) -> Any:
        return tensor

    def perturbed(self, mode: PerturbationMode, tensor: Any, settings: FreeBenchmark) -> Any:
        """See the protocol. numpy has no bfloat16, of which the values are moved by float32's upper half."""
        name = self.dtype(tensor)
        changed = arrays.perturbed(mode, _array(tensor), name, settings.noise, settings.noise_scale)
        return changed if isinstance(changed, str) else Tensor(changed).astype(tensor.dtype)

    def exchanged(self, tensor: Any, axis: int | None) -> Any:
        exchanged = arrays.exchanged(_array(tensor), axis)
        return exchanged if isinstance(exchanged, str) else Tensor(exchanged).astype(tensor.dtype)

    def as_required(self, tensor: Any, own: Any) -> Any:
        return tensor

    def last(self, tensor: Any, axis: int) -> Any:
        return Tensor(np.take(_array(tensor), -1, axis)).astype(tensor.dtype)

    def rounded(self, tensor: Any, unit: float, seed: int) -> Any:
        return Tensor(arrays.rounded(_array(tensor), unit, seed)).astype(tensor.dtype)

    def moved(self, tensor: Any, seed: int) -> Any:
        return Tensor(arrays.moved(_array(tensor), 2 * unit_of(self.dtype(tensor)), seed)).astype(tensor.dtype)

    # ---------------------------------------------------------------- running

    def ones_for(self, result: Any) -> Sequence[Any]:
        tensors = [leaf for _, leaf in leaves(result) if isinstance(leaf, Tensor)]
        return [mindspore.ops.ones_like(tensor) if self.is_float(tensor) else None for tensor in tensors]

    def context(self) -> Any:
        return mindspore.get_rng_state()

    def precision(self, context: Any) -> str:
        return ""

    def again(self, call: Invocation, widened: bool = False) -> Any:
        mindspore.set_rng_state(call.context)
        return call.function(*call.args, **call.kwargs)

    def vjp(
        self, call: Invocation, wanted: Sequence[LeafPath], gradients: Sequence[Any], widened: bool = False
    ) -> list[Any]:
        whole = {"args": tuple(call.args), "kwargs": dict(call.kwargs)}
        values = dict(leaves(whole))
        mindspore.set_rng_state(call.context)

        def function(*tensors: Any) -> Any:
            given = dict(zip(wanted, tensors, strict=True))
            args = mapped(tuple(call.args), lambda place, value: given.get(place, value), ("args",))
            kwargs = mapped(dict(call.kwargs), lambda place, value: given.get(place, value), ("kwargs",))
            tensors_made = [leaf for _, leaf in leaves(call.function(*args, **kwargs)) if isinstance(leaf, Tensor)]
            chosen = [tensor for tensor, gradient in zip(tensors_made, gradients, strict=True) if gradient is not None]
            return sum((tensor.astype(mindspore.float64) if widened else tensor).sum() for tensor in chosen)

        with _gradients_on():
            gradients_made = mindspore.grad(function, grad_position=tuple(range(len(wanted))))(
                *(values[place] for place in wanted)
            )
        return list(gradients_made) if isinstance(gradients_made, tuple) else [gradients_made]

    def with_graph(self, call: Invocation, on_cpu: bool) -> Any:
        raise NotImplementedError

    # ---------------------------------------------------------------- comparing

    def distance(self, first: Any, other: Any) -> float:
        return arrays.distance(_array(first), _array(other))

    def compare(self, own: Any, other: Any, limits: ErrorLimits) -> TensorDistance:
        return arrays.compare(_array(own.astype(other.dtype)), _array(other), limits)

    def compare_with_cpu(self, own: Any, golden: Any, limit: float, mean_limit: float) -> TensorDistance:
        raise NotImplementedError

    def is_explained(self, own: Any, other: Any, limits: ErrorLimits, reactions: Reactions) -> bool:
        shifted = [_array(reaction) for reaction in reactions.shifted]
        read = Reactions(_array(reactions.base), shifted, reactions.unit)
        return arrays.is_explained(_array(own.astype(other.dtype)), _array(other), limits, read)

    def goes_one_way(self, own: Any, reactions: Reactions) -> str:
        shifted = [_array(reaction) for reaction in reactions.shifted]
        return arrays.goes_one_way(_array(own), Reactions(_array(reactions.base), shifted, reactions.unit))


@contextlib.contextmanager
def _gradients_on() -> Iterator[None]:
    """Listeners are called without gradients; MindSpore has no public way to have them for a moment."""
    executor = pynative_executor()
    before = executor.enable_grad()
    executor.set_enable_grad(True)
    try:
        yield
    finally:
        executor.set_enable_grad(before)


def _array(tensor: Any) -> Any:
    """The elements, of a type that numpy has."""
    readable = tensor.astype(mindspore.float32) if tensor.dtype == mindspore.bfloat16 else tensor
    return readable.asnumpy()
