"""What the bus asks of PyTorch so that listeners work unseen, and may put something in the place of a result."""

from __future__ import annotations

import contextlib
import random
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any

import torch

from msprobe.capture.listener_support import check_is_new, copied
from msprobe.capture.relayed_units import Relayed
from msprobe.capture.torch import private
from msprobe.capture.torch.gradients.graph_nodes import ArgumentEdge, collect_tensors, edge_of, sequence_number
from msprobe.capture.torch.gradients.relayed_gradients import RelayedGradients, RelayedParameterGradients
from msprobe.capture.torch.replacing import in_place_of, write, written

# Whose generators a listener could use.
_DEVICES = ("cuda", "npu", "xpu")


class TorchListenerSupport:
    """See :class:`msprobe.capture.adapter.ListenerSupport`."""

    def __init__(
        self,
        gradients: RelayedGradients,
        parameters: RelayedParameterGradients,
        forget: Callable[[torch.Tensor], None],
    ) -> None:
        """``forget``: what is known of a tensor is not true any more."""
        self.gradients = gradients
        self.parameters = parameters
        self.forget = forget

    def unseen(self) -> AbstractContextManager[Any]:
        return _unseen()

    def is_traced(self) -> bool:
        return private.is_traced()

    def tensors_of(self, values: Sequence[Any]) -> Sequence[Any]:
        tensors: list[tuple[str, Any]] = []
        with private.without_functions():
            for value in values:
                collect_tensors(value, "", tensors)
        return [tensor for _, tensor in tensors]

    def versions(self, tensors: Sequence[Any]) -> Sequence[int]:
        with private.without_functions():
            return [-1 if tensor is None or tensor.is_inference() else tensor._version for tensor in tensors]

    def copied(self, value: Any) -> Any:
        return copied(value, torch.Tensor, lambda tensor: tensor.detach().clone())

    def in_place_of(self, own: Any, given: Any, args: Sequence[Any]) -> Any:
        with private.without_functions():
            check_is_new(self.tensors_of((own,)), self.tensors_of(args))
            return in_place_of(own, given)

    def written(self, own: Any, given: Any, kept: Sequence[Any]) -> Any:
        with private.without_functions(), torch.no_grad():
            kept = self.tensors_of(kept)
        with private.without_functions():
            return written(own, given, kept, self.forget)

    def write(self, own: Any, given: Any) -> None:
        with private.without_functions():
            write(own, given, self.forget)

    def note(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> tuple[list[ArgumentEdge], int] | None:
        if not torch.is_grad_enabled():
            return None
        tensors: list[tuple[str, Any]] = []
        with private.without_functions():
            for i, value in enumerate(args):
                collect_tensors(value, f"input.{i}", tensors)
            for word, value in kwargs.items():
                collect_tensors(value, f"kwargs.{word}", tensors)
            return [edge_of(tensor, path) for path, tensor in tensors if tensor.requires_grad], sequence_number()

    def watch(self, relayed: Relayed, note: Any, result: Any) -> None:
        edges, oldest = note
        with private.without_functions():
            self.gradients.watch(relayed, edges, oldest, result)

    def watch_parameters(self, name: str, module: Any) -> None:
        if torch.is_grad_enabled():
            with private.without_functions():
                self.parameters.watch(name, module)


# ---------------------------------------------------------------- unseen


@contextlib.contextmanager
def _unseen() -> Iterator[None]:
    with random_numbers_kept(), aside():
        yield


@contextlib.contextmanager
def aside() -> Iterator[None]:
    """What is done here with tensors is seen by no mode of the program, by no graph and by no cache."""
    with contextlib.ExitStack() as stack:
        stack.enter_context(private.without_functions())
        if private.count_dispatch_modes():
            stack.enter_context(private.without_dispatch_modes())
        stack.enter_context(torch.no_grad())
        if torch.is_autocast_cache_enabled():
            # A weight that is cast here, without a gradient, must not be what the program finds in the cache.
            torch.set_autocast_cache_enabled(False)
            stack.callback(torch.set_autocast_cache_enabled, True)
        yield


@contextlib.contextmanager
def random_numbers_kept() -> Iterator[None]:
    """Puts all random generators back as they were. A tenth of a millisecond, most of it numpy's."""
    generators = [torch.default_generator]
    for name in _DEVICES:
        device = getattr(torch, name, None)
        if device is not None and device.is_initialized():
            generators += device.default_generators
    states = [generator.get_state() for generator in generators]
    numpy: Any = sys.modules.get("numpy.random")
    python_state = random.getstate()
    numpy_state = numpy.get_state() if numpy is not None else None
    try:
        yield
    finally:
        for generator, state in zip(generators, states, strict=True):
            generator.set_state(state)
        random.setstate(python_state)
        if numpy is not None:
            numpy.set_state(numpy_state)
