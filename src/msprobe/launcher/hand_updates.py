"""Updates that a program makes by hand, without an optimizer of torch: weights that have other values than before.

A write through ``p.data``, in a ``foreach`` function, or with other parameters in the place of the old ones
(``torch.func.functional_call``) has no common sign but this: after a backward pass, the next forward pass has other
weights than the one before. Only models without an optimizer are looked at.
"""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from typing import Any

import torch
from torch import nn

from msprobe.capture.torch import private
from msprobe.capture.torch.listener_support import aside
from msprobe.capture.torch.modules.user_modules import parameters
from msprobe.messages import said

# Of a tensor with more elements than this, some rows are looked at.
_MOST_ELEMENTS = 1 << 26
_WHOLE_NUMBERS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


class HandUpdates:
    """The weights of one model over a training step. In the place of an optimizer where these are counted."""

    def __init__(self, model: nn.Module) -> None:
        self._model = weakref.ref(model)
        # Those of the last forward pass with gradients, and what they were at the first backward pass behind it.
        self._used: list[weakref.ref[torch.Tensor]] = []
        self._marks: list[Any] | None = None
        self._is_exact = True
        # How often the weights were updated.
        self.updates = 0
        self.label = said("updates-of-model-by-hand", type(model).__name__)

    @property
    def param_groups(self) -> list[dict[str, Any]]:
        """As of an optimizer."""
        model = self._model()
        return [] if model is None else [{"params": list(parameters(model))}]

    def forward(self) -> None:
        """The model is about to be called with gradients on."""
        if self._marks is None:
            model = self._model()
            self._used = [] if model is None else [weakref.ref(weight) for weight in _weights(model)]

    def backward(self, exact: bool) -> None:
        """A backward pass begins. ``exact``: look at the values of the weights, not only at what torch counts: all of
        them are read.
        """
        if self._marks is None:
            self._is_exact = exact and not private.in_transform()
            weights = [reference() for reference in self._used]
            # Without any, as inside of a transform, the pass says nothing of weights.
            self._marks = self._marks_of([weight for weight in weights if weight is not None]) or None
            if self._marks:
                # torch swaps no tensor that has a weak reference, as it does where modules are converted.
                self._used = []

    def _marks_of(self, weights: list[torch.Tensor]) -> list[Any]:
        if self._is_exact:
            return _sums(weights)
        with private.without_functions():
            return [(weight.data_ptr(), weight._version) for weight in weights]

    def is_updated(self) -> bool:
        """Whether the model has other weights than those of the forward passes before the backward pass."""
        model = self._model()
        if model is None or not self._marks:
            return False
        weights = _weights(model)
        # Weights that were computed in the graph (inner loops) are no update.
        return bool(weights) and self._marks_of(weights) != self._marks

    def end(self) -> None:
        """The training step is over."""
        self._used, self._marks = [], None


class LeafUpdates(HandUpdates):
    """The same for the leaves that a backward pass leads to, where no model is seen to be called: in compiled code."""

    def __init__(self, roots: Sequence[Any]) -> None:
        super().__init__(nn.Module())
        self.label = said("updates-by-hand")
        self._leaves = [(weakref.ref(leaf), _sums([leaf])) for leaf in leaves_of(roots)]

    @property
    def param_groups(self) -> list[dict[str, Any]]:
        """As of an optimizer."""
        return [{"params": [leaf for reference, _ in self._leaves if (leaf := reference()) is not None]}]

    def is_updated(self) -> bool:
        """Whether a leaf that is still there has other values."""
        return any((leaf := reference()) is not None and _sums([leaf]) != sums for reference, sums in self._leaves)

    def end(self) -> None:
        """The training step is over."""
        self._leaves = []


def leaves_of(roots: Sequence[Any]) -> list[torch.Tensor]:
    """The leaves that gradients of ``roots`` would be accumulated in."""
    with private.without_functions():
        waiting = [root.grad_fn for root in roots if isinstance(root, torch.Tensor)]
    seen: set[Any] = set()
    leaves: list[torch.Tensor] = []
    while waiting:
        node = waiting.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        if private.AccumulateGrad is not None and isinstance(node, private.AccumulateGrad):
            leaves.append(node.variable)
        waiting += [following for following, _ in node.next_functions]
    return leaves


def _weights(model: nn.Module) -> list[torch.Tensor]:
    with private.without_functions():
        return [
            weight
            for weight in parameters(model)
            if type(weight) in (torch.Tensor, nn.Parameter)
            and weight.requires_grad
            and weight.grad_fn is None
            and not private.is_transformed(weight)
        ]


def _sums(weights: list[torch.Tensor]) -> list[Any]:
    """A number of the bits of each: equal where the values are."""
    sums: list[Any] = []
    with aside():
        on_devices: list[torch.Tensor] = []
        for weight in weights:
            sum_of = _sum(weight)
            if sum_of is not None and sum_of.device.type != "cpu":
                on_devices.append(sum_of)
            sums.append((tuple(weight.shape), None if sum_of is None else sum_of))
        # One wait for all of a device.
        numbers = iter(torch.stack(on_devices).tolist()) if on_devices else iter(())
        return [
            (shape, None if value is None else int(value) if value.device.type == "cpu" else next(numbers))
            for shape, value in sums
        ]


def _sum(weight: torch.Tensor) -> torch.Tensor | None:
    if weight.layout is not torch.strided or weight.is_meta or not weight.numel():
        return None
    values = torch.view_as_real(weight.detach()) if weight.is_complex() else weight.detach()
    if values.numel() > _MOST_ELEMENTS and values.dim():
        values = values[:: 1 + values.numel() // _MOST_ELEMENTS]
    return values.view(_WHOLE_NUMBERS[values.element_size()]).sum(dtype=torch.int64)
