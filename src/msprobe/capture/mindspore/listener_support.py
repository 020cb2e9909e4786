"""What the bus asks of MindSpore so that listeners work unseen, and may put something in the place of a result."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any

import mindspore
import numpy as np
from mindspore import nn, ops

from msprobe.capture.listener_support import check_is_alike, check_is_new, copied
from msprobe.capture.mindspore.gradients.relayed_gradients import RelayedGradients, RelayedParameterGradients
from msprobe.capture.relayed_units import Relayed
from msprobe.capture.units import UnitRecorder
from msprobe.messages import said


class MindSporeListenerSupport:
    """See :class:`msprobe.capture.adapter.ListenerSupport`."""

    def __init__(self, units: UnitRecorder, gradients: RelayedGradients, parameters: RelayedParameterGradients) -> None:
        self.units = units
        self.gradients = gradients
        self.parameters = parameters

    def unseen(self) -> AbstractContextManager[Any]:
        return _unseen()

    def is_traced(self) -> bool:
        """Nothing of ours is in place while something is compiled."""
        return False

    def tensors_of(self, values: Sequence[Any]) -> Sequence[Any]:
        return [tensor for _, tensor in self.units.places(values, {})]

    def versions(self, tensors: Sequence[Any]) -> Sequence[int]:
        """MindSpore does not count writes: none are seen."""
        return ()

    def copied(self, value: Any) -> Any:
        return copied(value, mindspore.Tensor, lambda tensor: tensor.copy())

    def in_place_of(self, own: Any, given: Any, args: Sequence[Any]) -> Any:
        check_is_new(self.tensors_of((own,)), self.tensors_of(args))
        return _in_place_of(own, given)

    def written(self, own: Any, given: Any, kept: Sequence[Any]) -> Any:
        raise ValueError(said("mindspore-results-fixed"))

    def write(self, own: Any, given: Any) -> None:
        raise ValueError(said("mindspore-tensors-fixed"))

    def note(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        return self.gradients.note(self.units.places(args, dict(kwargs)))

    def watch(self, relayed: Relayed, note: Any, result: Any) -> None:
        self.gradients.follow(relayed, note, self.units.places_of_results(result))

    def watch_parameters(self, name: str, module: Any) -> None:
        self.parameters.watch(name, module)


class _InPlaceOf(nn.Cell):  # type: ignore[misc]
    """Other values in the place of a tensor, whose gradient goes on to what computed it."""

    def construct(self, own: Any, given: Any) -> Any:
        return given * 1

    def bprop(self, own: Any, given: Any, out: Any, gradient: Any) -> Any:
        return gradient, ops.zeros_like(given)


def _in_place_of(own: Any, given: Any) -> Any:
    if isinstance(given, mindspore.Tensor):
        check_is_alike(own, given, mindspore.Tensor, "result")
        return _InPlaceOf()(own, given)
    if isinstance(given, (list, tuple)) and type(given) is type(own) and len(given) == len(own):
        return type(given)(_in_place_of(mine, other) for mine, other in zip(own, given, strict=True))
    return given


@contextlib.contextmanager
def _unseen() -> Iterator[None]:
    with random_numbers_kept(), aside():
        yield


@contextlib.contextmanager
def aside() -> Iterator[None]:
    """What is done here with tensors is in no graph."""
    with mindspore._no_grad():
        yield


@contextlib.contextmanager
def random_numbers_kept() -> Iterator[None]:
    """Puts all random generators back as they were."""
    python_state, numpy_state, mindspore_state = random.getstate(), np.random.get_state(), mindspore.get_rng_state()
    try:
        yield
    finally:
        random.setstate(python_state)
        np.random.set_state(numpy_state)
        mindspore.set_rng_state(mindspore_state)
