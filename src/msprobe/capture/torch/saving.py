"""``save`` for PyTorch.

Gradients are read by hooks on graph nodes that exist anyway; no tensor is replaced and the tensors
themselves carry no hook, so they can be copied and pickled as before. ``step`` takes the hooks away.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager
from functools import partial
from typing import Any

import torch

from msprobe.capture import saving
from msprobe.capture.records import Describer
from msprobe.capture.saving import DEPTH_LIMIT, PLAIN, SavedGradients
from msprobe.capture.torch import private
from msprobe.capture.torch.recorder import TorchRecorder
from msprobe.messages import said

_LONGEST_PLACE = 60


class VariableSaver(saving.VariableSaver):
    """Saves variables into the ``debug.json`` of the current step. Of a container with a wrong part nothing is."""

    def __init__(self, recorder: TorchRecorder) -> None:
        super().__init__(recorder.session, recorder.bus)
        self.hooks = recorder.hooks
        self.statistics = statistics = recorder.statistics
        self.keep = recorder.keeper.keep if recorder.session.saves_all else _described
        # Nobody watches the calls between two saves, so nothing that is known of a tensor can be relied upon.
        own_types = {
            kind: describe
            for kind, describe in recorder.describer.by_type.items()
            if not issubclass(kind, torch.Tensor)
        }
        self.describer = Describer(
            lambda t: statistics.describe(t, False), recorder.describer.is_tensor, own_types, statistics.text
        )
        # Leaves have no node in the graph but the one that accumulates their gradient; it lives as long as
        # it is held.
        self._held: list[Any] = []

    def _unseen(self) -> AbstractContextManager[Any]:
        context: AbstractContextManager[Any] = private.without_functions()
        return context

    def _is_tensor(self, value: Any) -> bool:
        return isinstance(value, torch.Tensor)

    def _mistake_in(self, variable: Any, where: str) -> str:
        if variable is None:
            return said("save-none", where, said("save-allowed"))
        return next(_wrong_parts(variable, where, 0), "")

    def _tree(self, value: Any, path: str) -> Any:
        return self.describer.describe_kept(value, path, self.keep)

    def _watch(self, tensor: torch.Tensor, gradients: SavedGradients, place: tuple[Any, ...]) -> bool:
        if not tensor.requires_grad:
            return False
        node, slot = tensor.grad_fn, tensor.output_nr
        if node is None:
            node, slot = _accumulating_node(tensor), 0
            if node is None:
                return False
            self._held.append(node)
        self.hooks.before(node, partial(self._arrive_at_node, gradients, place, slot))
        return True

    def _forget_step(self) -> None:
        self._held.clear()
        super()._forget_step()


def _accumulating_node(leaf: torch.Tensor) -> Any:
    """The node that adds to the gradient of ``leaf``; it exists as long as somebody holds it."""
    with torch.enable_grad():
        view = leaf.view_as(leaf)
    return view.grad_fn.next_functions[0][0] if view.grad_fn is not None else None


def _described(tensor: Any, description: Any, path: str) -> Any:
    return description


def _wrong_parts(value: Any, where: str, depth: int) -> Iterator[str]:
    if value is None or isinstance(value, (torch.Tensor, *PLAIN)):
        return
    if isinstance(value, (list, tuple, dict)):
        if depth >= DEPTH_LIMIT:
            yield said("save-too-deep", where[:_LONGEST_PLACE], DEPTH_LIMIT)
            return
        if isinstance(value, dict):
            for key, item in value.items():
                if isinstance(key, str):
                    yield from _wrong_parts(item, f"{where}[{key!r}]", depth + 1)
                else:
                    yield said("save-key-wrong", where, key)
        else:
            for index, item in enumerate(value):
                yield from _wrong_parts(item, f"{where}[{index}]", depth + 1)
        return
    yield said("save-type-wrong", where, type(value).__name__, said("save-allowed"))
