"""Whether the program still has anything of what models have returned."""

from __future__ import annotations

from typing import Any

from msprobe.capture.torch.gradients.graph_nodes import collect_tensors
from msprobe.capture.torch.tensors.storages import StorageHold


class ReturnedResults:
    """The results of models in a part of a program. Nothing is kept alive."""

    def __init__(self) -> None:
        self._storages: list[StorageHold] = []
        self._handles: list[Any] = []
        self._is_known = True

    def note(self, result: Any) -> None:
        """A model has returned ``result``. Whether a tensor without memory of its own (a sparse one, one inside a
        transform of torch.func) is gone nobody can say.
        """
        was_known, self._is_known = self._is_known, False
        tensors: list[tuple[str, Any]] = []
        collect_tensors(result, "output", tensors)
        for _, tensor in tensors:
            hold = StorageHold()
            try:
                hold.add(tensor)
            except RuntimeError:
                return
            self._storages.append(hold)
            if tensor.grad_fn is not None:
                # Of no use but that it goes with its node.
                self._handles.append(tensor.grad_fn.register_prehook(_nothing))
        self._is_known = was_known

    def are_gone(self) -> bool:
        """True if neither the elements of any of them nor the graph behind them exist any more."""
        is_gone = all(handle.hooks_dict_ref() is None for handle in self._handles)
        return self._is_known and is_gone and all(hold.is_gone() for hold in self._storages)

    def forget(self) -> None:
        """A new part begins."""
        handles, self._handles = self._handles, []
        for handle in handles:
            handle.remove()
        storages, self._storages = self._storages, []
        for hold in storages:
            hold.release()
        self._is_known = True


def _nothing(gradients: Any) -> None:
    pass
