"""Code that writes memory without torch's knowledge: where it runs, and which memory it is given.

Kernels of Triton, C++ extensions, numpy and ctypes write to an address, and no version counter shows it. What can
be noticed of that: a custom Function or an operator of somebody else begins and ends, forward or backward, and a
tensor is asked for its address. What was remembered of tensors is not used across the former, and nothing is
remembered of the latter.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from msprobe.capture.targets import Targets
from msprobe.capture.torch import private
from msprobe.capture.torch.calls.call_records import CallRecorder
from msprobe.capture.torch.calls.names import Api, ApiNames
from msprobe.capture.torch.calls.recorded_call import run_call
from msprobe.capture.torch.gradients.graph_nodes import is_foreign
from msprobe.capture.torch.operators.dispatch_operators import OWN_SPACES
from msprobe.guard import attempt

_without_functions = private.without_functions

# These hand the memory of a tensor to somebody else.
_ADDRESS_METHODS = (
    "data_ptr",
    "numpy",
    "__array__",
    "__cuda_array_interface__",
    "__dlpack__",
    "share_memory_",
)
# And these its storage, which is mostly asked for its size.
_STORAGE_METHODS = ("untyped_storage", "storage", "_typed_storage")


class ForeignCode:
    """Has the statistics of one recorder forget what foreign code may have written."""

    def __init__(self, calls: CallRecorder, targets: Targets) -> None:
        self.targets = targets
        self.calls = calls
        self.statistics = calls.statistics

    def watch(self, names: ApiNames) -> None:
        """Notice foreign operators and questions for addresses among the calls that ``names`` has names for."""
        names.foreign_operator = self._find
        for methods, unit in ((_ADDRESS_METHODS, self._give_address), (_STORAGE_METHODS, self._give_storage)):
            for method in methods:
                function = getattr(torch.Tensor, method, None)
                target = function if callable(function) else getattr(function, "__get__", None)
                if target is not None:
                    key = getattr(names.table.get(target), "key", "")
                    names.table[target] = Api(key, False, transparent=True, unit=unit)

    def _find(self, space: str, key: str) -> Api | None:
        """How an operator of this namespace is recorded; None: as any other. Without a key, it is not."""
        return None if space in OWN_SPACES else Api(key, False, transparent=True, unit=self._run_operator, name=key)

    # ------------------------------------------------------------ it runs

    def run(self, inner: Callable[..., Any], args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        """Call ``inner``, whose code is foreign."""
        attempt(self.statistics.forget_all)
        try:
            result = inner(*args, **kwargs)
        finally:
            attempt(self.statistics.forget_all)
        attempt(self._follow, result)
        return result

    def _follow(self, result: Any) -> None:
        with _without_functions():
            self._watch_backward(result)

    def _watch_backward(self, result: Any) -> None:
        hooks = self.calls.hooks
        seen: list[Any] = []
        for tensor in result if isinstance(result, (tuple, list)) else (result,):
            node = tensor.grad_fn if isinstance(tensor, torch.Tensor) and tensor.requires_grad else None
            if node is not None and is_foreign(node) and node not in seen:
                seen.append(node)
                hooks.before(node, self._forget)
                hooks.after(node, self._forget)

    def _forget(self, *gradients: Any) -> None:
        self.statistics.forget_all()

    def _run_operator(self, api: Api, operator: Any, args: Sequence[Any], kwargs: dict[str, Any] | None) -> Any:
        return self._record(api, operator, args, kwargs or {}, self.run)

    def _record(
        self, api: Api, function: Any, args: Sequence[Any], kwargs: dict[str, Any], run: Callable[..., Any]
    ) -> Any:
        if not api.key:
            return run(function, args, kwargs)

        def run_it(given: Sequence[Any], words: dict[str, Any]) -> Any:
            return run(function, given, words)

        # Who calls this, and the mode's function.
        return run_call(self.targets.calls, api.key, run_it, args, kwargs)

    # ------------------------------------------------------------ it is given memory

    def _give_address(self, api: Api, function: Any, args: Sequence[Any], kwargs: dict[str, Any] | None) -> Any:
        return self._record(api, function, args, kwargs or {}, self._distrust)

    def _give_storage(self, api: Api, function: Any, args: Sequence[Any], kwargs: dict[str, Any] | None) -> Any:
        return self._record(api, function, args, kwargs or {}, self._distrust_storage)

    def _distrust(self, function: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        attempt(self._distrust_first, args)
        return function(*args, **kwargs)

    def _distrust_first(self, args: Sequence[Any]) -> None:
        if args and isinstance(args[0], torch.Tensor):
            with _without_functions():
                self.statistics.distrust(args[0])

    def _distrust_storage(self, function: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        storage = function(*args, **kwargs)
        attempt(self._look_at_storage, args, storage)
        return storage

    def _look_at_storage(self, args: Sequence[Any], storage: Any) -> None:
        tensor = args[0]
        with _without_functions():
            self.statistics.distrust(tensor, written=False)
            if not storage.nbytes() and tensor.numel():
                # Memory that was given back, and is asked for again now.
                self.statistics.leave_unwritten(tensor, later=True)
