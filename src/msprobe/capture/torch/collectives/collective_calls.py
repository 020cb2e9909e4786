"""Communication between ranks: every call of ``torch.distributed`` that moves data, as
``Distributed.{api}.{n}``.

The function mode does not see these calls in a form worth recording, so their functions are watched
themselves (:mod:`msprobe.capture.torch.watched_functions`). A record's ``output`` holds all arguments as
they are when the call is over: buffers filled. An asynchronous collective is recorded twice under the same
name: when it is issued, with ``"completed": false`` and nothing for outputs, and again when the user has
learned that it is done. What hangs is therefore in the journal.

Not seen: collectives that C++ issues (DDP's reduction of gradients; the optimizer's record has the reduced
gradients), and methods of a process group that the user calls directly.
"""

from __future__ import annotations

import contextlib
import inspect
import threading
import types
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import torch

from msprobe.capture.torch import private
from msprobe.capture.torch.calls.names import listed_names
from msprobe.capture.torch.collectives.collectives_values import (
    Groups,
    add_types,
    open_keyword_operations,
    open_operations,
)
from msprobe.capture.torch.collectives.collectives_work import Unfinished, WorkWatch, is_handle
from msprobe.capture.torch.context import Context
from msprobe.capture.torch.watched_functions import FunctionCalls
from msprobe.guard import attempt

_without_functions = private.without_functions
_BATCH = "batch_isend_irecv"

# Collectives that the list does not name, each recorded as one unit.
UNLISTED = (
    "all_gather_single",
    "reduce_scatter_single",
    "all_reduce_coalesced",
    "all_gather_coalesced",
    "all_gather_object",
    "gather_object",
    "scatter_object_list",
    "broadcast_object_list",
    "send_object_list",
    "recv_object_list",
    "barrier",
    "monitored_barrier",
)

# The arguments that a collective writes. One that is not named here may write any.
WRITTEN: Mapping[str, tuple[str, ...]] = {
    "send": (),
    "isend": (),
    "recv": ("tensor",),
    "irecv": ("tensor",),
    "broadcast": ("tensor",),
    "all_reduce": ("tensor",),
    "reduce": ("tensor",),
    "all_gather": ("tensor_list",),
    "gather": ("gather_list",),
    "scatter": ("tensor",),
    "reduce_scatter": ("output",),
    "reduce_scatter_tensor": ("output",),
    "reduce_scatter_single": ("output",),
    "_reduce_scatter_base": ("output",),
    "all_gather_into_tensor": ("output_tensor",),
    "all_gather_single": ("output_tensor",),
    "_all_gather_base": ("output_tensor",),
    "all_to_all_single": ("output",),
    "all_to_all": ("output_tensor_list",),
    "barrier": (),
    "monitored_barrier": (),
}


class Collective(NamedTuple):
    """What is known of one function of torch.distributed."""

    name: str
    key: str
    # Parameter name -> position.
    positions: Mapping[str, int]
    written: tuple[str, ...] | None

    def argument(self, name: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        """The value that a call gave for a parameter; None if it gave none."""
        if name in kwargs:
            return kwargs[name]
        position = self.positions.get(name, len(args))
        return args[position] if position < len(args) else None


class _Issued(NamedTuple):
    """A collective on its way: what the target made of it, its arguments with operations taken apart, what it writes,
    and what its record says besides.
    """

    begun: Any
    args: Sequence[Any]
    kwargs: Mapping[str, Any]
    written: list[torch.Tensor]
    facts: dict[str, Any]


class _Block:
    """A ``with _coalescing_manager(...)`` of the user: collectives inside it run at its end."""

    def __init__(self, group: Any) -> None:
        self.group = group
        self.issued: list[_Issued] = []


class _Blocks(threading.local):
    """Those that this thread is in, the innermost last."""

    def __init__(self) -> None:
        self.blocks: list[_Block] = []


class CollectiveRecorder:
    """Watches collectives between attach and detach."""

    def __init__(self, context: Context) -> None:
        self.session = session = context.session
        self.calls = context.calls
        self.targets = context.targets
        self.groups = Groups()
        self.work = WorkWatch(session)
        self._functions = FunctionCalls()
        self._recorded_thread = context.thread
        self._open_blocks = _Blocks()
        add_types(context.calls.describer, self.groups)
        for collective, function in find_collectives(context.names.include_unlisted, context.names.list_file):
            self._functions.add(function, partial(self._run, collective))
        for function in _functions_named(private.COALESCING):
            self._functions.add(function, self._coalesce)
        # Before the recorder reads back what is late.
        session.before_publish.insert(0, self.work.look)
        session.at_step_end.append(self.work.clear)

    def attach(self) -> None:
        """Watch the functions of torch.distributed, and the handles that are still open."""
        self._functions.attach()
        self.work.attach()

    def pause(self) -> None:
        """A compiled region is entered: as :meth:`detach`, but what is under way is still awaited."""
        self._functions.detach()
        self.work.pause()

    def resume(self) -> None:
        """It was left."""
        self._functions.attach()
        self.work.resume()

    def detach(self) -> None:
        """Give all functions and classes back what is theirs."""
        self._functions.detach()
        self.work.detach()

    # ------------------------------------------------------------ one call

    def _run(
        self,
        collective: Collective,
        original: Callable[..., Any],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
    ) -> Any:
        is_recorded = attempt(self._is_recorded)
        if not is_recorded:
            try:
                return original(*args, **kwargs)
            finally:
                # Recorded or not, what it wrote has other numbers now.
                attempt(self._forget_all, [*args, *kwargs.values()])
        issued = attempt(self._begin_unseen, collective, args, kwargs)
        # What one collective calls to do its work is part of it, also where it is not wanted itself.
        added = attempt(self.session.thread.mute_more, 1)
        try:
            result = original(*args, **kwargs)
        except BaseException as error:
            attempt(self._fail_unseen, issued, error)
            raise
        finally:
            attempt(self.session.thread.mute_more, -(added or 0))
        attempt(self._end_unseen, collective, issued, result)
        return result

    def _is_recorded(self) -> bool:
        session = self.session
        return session.recording and not session.thread.muted and self._recorded_thread.is_here()

    def _begin_unseen(self, collective: Collective, args: Sequence[Any], kwargs: Mapping[str, Any]) -> _Issued | None:
        with _without_functions(), torch.no_grad():
            return self._begin(collective, args, kwargs)

    def _fail_unseen(self, issued: _Issued | None, error: BaseException) -> None:
        if issued is not None:
            with _without_functions():
                self.targets.collectives.fail_collective(issued.begun, error)

    def _end_unseen(self, collective: Collective, issued: _Issued | None, result: Any) -> None:
        if issued is not None:
            with _without_functions(), torch.no_grad():
                self._end(collective, issued, result)

    def _begin(self, collective: Collective, args: Sequence[Any], kwargs: Mapping[str, Any]) -> _Issued | None:
        group = collective.argument("group", args, kwargs)
        if collective.name == _BATCH:
            operations = list(collective.argument("p2p_op_list", args, kwargs) or ())
            written = [op.tensor for op in operations if getattr(op.op, "__name__", "") != "isend"]
            group = operations[0].group if operations else None
            args, kwargs = open_operations(args, self.groups), open_keyword_operations(kwargs, self.groups)
        elif collective.written is None:
            written = _tensors([*args, *kwargs.values()])
        else:
            written = _tensors([collective.argument(name, args, kwargs) for name in collective.written])
        begun = self.targets.collectives.begin_collective(collective.key, args, kwargs)
        if begun is None:
            return None
        group_text = self.groups.find(group)
        return _Issued(begun, args, kwargs, written, {} if group_text is None else {"process_group": group_text.text})

    def _end(self, collective: Collective, issued: _Issued, result: Any) -> None:
        self._forget(issued)
        block = self._block_of(collective.argument("group", issued.args, issued.kwargs))
        if block is not None:
            issued.facts["coalesced"] = True
            self._put(issued, completed=False)
            block.issued.append(issued)
            return
        handles = _handles(result)
        if handles:
            self._await([issued], handles)
            return
        if collective.name == "recv" and isinstance(result, int):
            issued.facts["source_rank"] = self.calls.describer.describe(result)
        self._put(issued, completed=True)

    def _put(self, issued: _Issued, completed: bool) -> None:
        target = self.targets.collectives
        values = (*issued.args, *issued.kwargs.values())
        # Collectives have no backward of their own: nothing is said of what the program is given.
        if completed:
            target.end_collective(issued.begun, values, issued.facts)
        else:
            target.leave_under_way(issued.begun, [None] * len(values), issued.facts)

    def _forget(self, issued: _Issued) -> None:
        """What is known of the buffers is not true any more: a collective does not count as a write for
        torch.
        """
        for tensor in issued.written:
            self.calls.statistics.invalidate(tensor)

    def _forget_all(self, values: Sequence[Any]) -> None:
        if not self.session.recording:
            return
        for tensor in _tensors(values):
            self.calls.statistics.invalidate(tensor)

    # ------------------------------------------------------------ asynchronous calls

    def _await(self, issued: Sequence[_Issued], handles: Sequence[Any]) -> None:
        """The results come when all ``handles`` are done."""
        generation = self.session.generation
        for call in issued:
            call.facts["async"] = True
            call.facts["completed"] = False
            self._put(call, completed=False)

        def finish(waited: bool) -> None:
            if generation != self.session.generation:
                return
            with _without_functions(), torch.no_grad():
                for call in issued:
                    self._forget(call)
                    call.facts["completed"] = True
                    if not waited:
                        # The buffers were filled, but the program had not asked whether they were.
                        call.facts["waited"] = False
                    self._put(call, completed=True)

        buffers = [tensor for call in issued for tensor in call.written]
        self.work.watch(Unfinished(finish, buffers), handles)

    # ------------------------------------------------------------ coalescing

    def _coalesce(self, original: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        is_recorded = attempt(self._is_recorded)
        return self._coalesced(original, args, kwargs) if is_recorded else original(*args, **kwargs)

    @contextlib.contextmanager
    def _coalesced(self, original: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Iterator[Any]:
        block = attempt(_Block, kwargs.get("group", args[0] if args else None))
        with original(*args, **kwargs) as works:
            attempt(self._open_blocks.blocks.append, block)
            try:
                yield works
            finally:
                attempt(self._open_blocks.blocks.remove, block)
        attempt(self._end_block_unseen, block, works)

    def _end_block_unseen(self, block: _Block, works: Any) -> None:
        with _without_functions(), torch.no_grad():
            self._end_block(block, works)

    def _end_block(self, block: _Block, works: Any) -> None:
        handles = [work for work in getattr(works, "works", ()) if is_handle(work)]
        if not block.issued:
            return
        if handles:
            self._await(block.issued, handles)
            return
        for issued in block.issued:
            self._forget(issued)
            self._put(issued, completed=True)

    def _block_of(self, group: Any) -> _Block | None:
        for block in reversed(self._open_blocks.blocks):
            if self.groups.find(block.group) is self.groups.find(group):
                return block
        return None


def _handles(result: Any) -> list[Any]:
    if is_handle(result):
        return [result]
    if isinstance(result, (list, tuple)):
        return [item for item in result if is_handle(item)]
    return []


def _tensors(values: Any, depth: int = 0) -> list[torch.Tensor]:
    if isinstance(values, torch.Tensor):
        return [values]
    if isinstance(values, (list, tuple)) and depth < 5:
        return [tensor for value in values for tensor in _tensors(value, depth + 1)]
    return []


# ---------------------------------------------------------------- which functions


def find_collectives(
    include_unlisted: bool, list_file: str | None = None
) -> Iterator[tuple[Collective, types.FunctionType]]:
    """The functions of torch.distributed that are recorded: those on the list, and others if wanted."""
    names = [*sorted(listed_names(list_file).get("distributed", ()))]
    if include_unlisted:
        names += [name for name in UNLISTED if name not in names]
    for name in names:
        for function in _functions_named(name):
            try:
                parameters = tuple(inspect.signature(function).parameters)
            except (TypeError, ValueError):
                parameters = ()
            positions = {parameter: i for i, parameter in enumerate(parameters)}
            yield Collective(name, f"Distributed.{name}", positions, WRITTEN.get(name)), function


def _functions_named(name: str) -> list[types.FunctionType]:
    """What goes by ``name``: in torch.distributed, and where that has it from (they may have been replaced
    apart).
    """
    if not torch.distributed.is_available():
        return []
    functions: list[types.FunctionType] = []
    for space in (torch.distributed, torch.distributed.distributed_c10d):
        function = getattr(space, name, None)
        if isinstance(function, types.FunctionType) and function not in functions:
            functions.append(function)
    return functions
