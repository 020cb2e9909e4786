"""Functional collectives: operators whose result is filled later, when somebody waits for it.

``torch.distributed._functional_collectives`` and DTensor communicate by operators of the namespace
``_c10d_functional``. The function mode sees them; their record is ``Ops._c10d_functional_{operator}.{n}``.
Such an operator returns memory that is still being written, so the results are not looked at before the
program waits for them: the record stands with ``"completed": false`` until then.
"""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from typing import Any

import torch
from torch.multiprocessing.reductions import StorageWeakRef

from msprobe.capture.torch import private, private_compiler
from msprobe.capture.torch.calls.names import Api
from msprobe.capture.torch.collectives.collectives_values import Groups
from msprobe.capture.torch.context import Context
from msprobe.capture.torch.tensors.storages import address_of_storage, may_be_passing
from msprobe.capture.torch.watched_functions import FunctionCalls
from msprobe.guard import attempt, pass_on

_without_functions = private.without_functions
NAMESPACES = ("_c10d_functional", "_c10d_functional_autograd", "c10d_functional")


class _Awaited:
    """A collective whose results somebody will wait for."""

    def __init__(self, begun: Any, result: Any, facts: dict[str, Any], generation: int) -> None:
        # What the target made of it.
        self.begun = begun
        self.result = result
        self.facts = facts
        self.generation = generation
        self.missing = {address_of_storage(tensor) for tensor in _tensors(result)}


class FunctionalCollectives:
    """Records operators of functional collectives between attach and detach."""

    def __init__(self, context: Context) -> None:
        self.session = context.session
        self.calls = context.calls
        self.targets = context.targets
        self.groups = Groups()
        self.include_unlisted = context.names.include_unlisted
        # Address of a storage -> a weak reference that keeps the address from being used again, or shows that
        # it was, and the collective.
        self._awaited: dict[int, tuple[Any, _Awaited]] = {}
        self._functions = FunctionCalls()
        for space in NAMESPACES:
            context.names.namespaces[space] = self.find
        self.session.at_step_end.append(self._awaited.clear)

    def attach(self) -> None:
        """Notice when somebody waits: also inside calls that are recorded as a whole."""
        if torch.distributed.is_available():
            waits = private.function_that_waits()
            if private.has("waiting for collectives"):
                self._functions.add(waits, self._wait)
        self._functions.attach()

    def detach(self) -> None:
        """Give the function back."""
        self._functions.detach()

    def find(self, operator: Any, key: str) -> Api | None:
        """How an operator of these namespaces is recorded."""
        name = key.rsplit("_functional_", 1)[-1]
        if name.startswith(("wrap_tensor", "_wrap_tensor")) or not self.include_unlisted:
            return None
        if name == "wait_tensor":
            return Api(key, False, transparent=True, unit=self._run_wait)
        return Api(key, False, transparent=True, unit=self._run, name=key)

    # ------------------------------------------------------------ one operator

    def _run(self, api: Api, operator: Any, args: Sequence[Any], kwargs: dict[str, Any] | None) -> Any:
        begun_call = attempt(self._begin, api, args, kwargs or {})
        if begun_call is None:
            return operator(*args, **(kwargs or {}))
        begun, group = begun_call
        try:
            result = operator(*args, **(kwargs or {}))
        except BaseException as error:
            attempt(self._fail, begun, error)
            raise
        attempt(self._end, begun, group, result)
        return result

    def _begin(self, api: Api, args: Sequence[Any], words: dict[str, Any]) -> tuple[Any, bytes | None] | None:
        with _without_functions():
            named, group = self._name_group(args)
            begun = self.targets.collectives.begin_collective(api.key, named, words)
        return None if begun is None else (begun, group)

    def _fail(self, begun: Any, error: BaseException) -> None:
        with _without_functions():
            self.targets.collectives.fail_collective(begun, error)

    def _end(self, begun: Any, group: bytes | None, result: Any) -> None:
        with _without_functions():
            self._issued(begun, group, result)

    def _name_group(self, args: Sequence[Any]) -> tuple[Sequence[Any], bytes | None]:
        """The arguments with the group itself in place of its name, and the group as it is written.

        Operators are given the name that torch made up for the group, at the end: "0", "1", ...
        """
        if not args:
            return args, None
        group = args[-1]
        try:
            if isinstance(group, str) and private.has("names of groups"):
                group = private.group_of_name(group)
            group_text = self.groups.find(group) if group is not None else None
        except Exception as error:
            pass_on(error)
            return args, None
        return ([*args[:-1], group], group_text.text) if group_text is not None else (args, None)

    def _issued(self, begun: Any, group: bytes | None, result: Any) -> None:
        facts: dict[str, Any] = {"async": True, "completed": False}
        if group is not None:
            facts["process_group"] = group
        awaited = _Awaited(begun, result, facts, self.session.generation)
        # One place for each result, as when they are there.
        waiting = [None] * len(_tensors(result)) if isinstance(result, list) else None
        self.targets.collectives.leave_under_way(begun, [waiting], facts, result)
        for tensor in _tensors(result):
            # An operator that writes its argument does not count as a write for torch.
            self.calls.statistics.invalidate(tensor)
            reference: Any
            if may_be_passing(tensor):
                reference = weakref.ref(tensor)
            else:
                reference = StorageWeakRef(tensor.untyped_storage())  # type: ignore[no-untyped-call]
            self._awaited[address_of_storage(tensor)] = (reference, awaited)

    # ------------------------------------------------------------ waiting

    def _run_wait(self, api: Api, operator: Any, args: Sequence[Any], kwargs: dict[str, Any] | None) -> Any:
        result = operator(*args, **(kwargs or {}))
        attempt(self._waited, result)
        return result

    def _wait(self, original: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if private_compiler.is_compiling():
            return original(*args, **kwargs)
        result = original(*args, **kwargs)
        attempt(self._waited, result)
        return result

    def _waited(self, tensor: Any) -> None:
        if self._awaited and isinstance(tensor, torch.Tensor):
            with _without_functions():
                self.session.guard(self._arrived, tensor)

    def _arrived(self, tensor: torch.Tensor) -> None:
        inner = getattr(tensor, "elem", tensor)
        address = address_of_storage(inner)
        reference, awaited = self._awaited.pop(address, (None, None))
        if awaited is None or (isinstance(reference, weakref.ref) and reference() is None):
            return
        awaited.missing.discard(address)
        if awaited.missing or awaited.generation != self.session.generation:
            return
        for result in _tensors(awaited.result):
            self.calls.statistics.invalidate(result)
        awaited.facts["completed"] = True
        self.targets.collectives.end_collective(awaited.begun, awaited.result, awaited.facts)


def _tensors(result: Any) -> list[torch.Tensor]:
    if isinstance(result, torch.Tensor):
        return [result]
    if isinstance(result, (list, tuple)):
        return [item for item in result if isinstance(item, torch.Tensor)]
    return []
