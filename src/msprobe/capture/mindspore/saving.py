"""``save`` for MindSpore.

No tensor is replaced. The gradient of a result is read by a hook on its node in the graph; that of a parameter or
input, which has no node that runs, by a hook on the tensor, taken away at ``step``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import Any

from msprobe.capture import saving
from msprobe.capture.mindspore.gradients import backward_graph as graph
from msprobe.capture.mindspore.recorder import MindSporeRecorder
from msprobe.capture.mindspore.tensors import is_tensor
from msprobe.capture.saving import DEPTH_LIMIT, PLAIN, SavedGradients
from msprobe.messages import said


class VariableSaver(saving.VariableSaver):
    """Saves variables into the ``debug.json`` of the current step. Of a container those parts that can be are."""

    def __init__(self, recorder: MindSporeRecorder) -> None:
        super().__init__(recorder.session, recorder.bus)
        self.hooks = recorder.hooks
        self.describer = recorder.describer
        self.keep = recorder.tensors.keep if recorder.session.saves_all else None
        self._handles: list[Any] = []

    def _unseen(self) -> AbstractContextManager[Any]:
        return self.session.thread.mute()

    def _is_tensor(self, value: Any) -> bool:
        return is_tensor(value)

    def _mistake_in(self, variable: Any, where: str) -> str:
        if any(is_tensor(leaf) or isinstance(leaf, PLAIN) for leaf in _leaves(variable, 0)):
            return ""
        return said("save-holds-nothing", where, type(variable).__name__, said("save-allowed-mindspore"))

    def _tree(self, value: Any, path: str) -> Any:
        if self.keep is None:
            return self.describer.describe(value)
        return self.describer.describe_kept(value, path, self.keep)

    def _watch(self, tensor: Any, gradients: SavedGradients, place: tuple[Any, ...]) -> bool:
        if not graph.is_readable():
            self._handles.append(tensor.register_hook(self._hook(gradients, place)))
            return True
        node = tensor._grad_node
        if node is None:
            return False
        if node.is_leaf():
            self._handles.append(tensor.register_hook(self._hook(gradients, place)))
        else:
            self.hooks.before(node, self._arrive_at_node, gradients, place, tensor._output_index)
        return True

    def _hook(self, gradients: SavedGradients, place: tuple[Any, ...]) -> Callable[[Any], None]:
        def arrived(gradient: Any) -> None:
            self._arrive(gradients, place, gradient)

        return arrived

    def _forget_step(self) -> None:
        super()._forget_step()
        handles, self._handles = self._handles, []
        for handle in handles:
            self.session.guard(handle.remove)


def _leaves(value: Any, depth: int) -> Iterator[Any]:
    if isinstance(value, (list, tuple, dict)) and depth < DEPTH_LIMIT:
        for item in value.values() if isinstance(value, dict) else value:
            yield from _leaves(item, depth + 1)
    else:
        yield value
