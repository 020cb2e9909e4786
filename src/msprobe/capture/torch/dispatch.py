"""Level L2 on CPU and CUDA: every operator that reaches the dispatcher, forward and backward:
``Aten.{op}.{n}.forward``.

A ``TorchDispatchMode`` would see these operators too, but while one is active torch takes other ways
through its own composite functions and derivative formulas (it must, for the modes' sake), and does not run
compiled code: what is measured would change. So operators are watched one floor higher: each gets a kernel
for a dispatch key that nothing else uses, and the key is switched on for the thread that records. The
autograd engine hands it on to its own threads. Tensors and modes of the user's own making are met below, as
ever. Composite functions have no such kernel, so that the operators they are made of are seen instead.

Only where torch cannot register such kernels (before 2.5), a dispatch mode does the work.
"""

from __future__ import annotations

import atexit
import contextlib
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import torch
from torch.utils import _python_dispatch
from torch.utils._python_dispatch import TorchDispatchMode

from msprobe.capture.stacks import CallStack
from msprobe.capture.torch.calls import CallRecorder
from msprobe.capture.torch.recorder import TorchRecorder

# Nothing but tests of torch itself registers anything for this key; it stands above autograd.
_KEY_NAME = "TESTING_ONLY_GenericMode"

# What these give is memory without values.
_UNSET_RESULTS = frozenset(("empty", "empty_like", "empty_strided", "empty_permuted", "new_empty", "new_empty_strided"))
# Their results are complete at some later time, which nobody here may wait for.
_LATE_SPACES = frozenset(("c10d", "_c10d_functional", "_c10d_functional_autograd"))
_SKIPPED_SPACES = frozenset(("prim", "profiler", "prims", "debugprims", "rngprims", "inductor_prims", "static_runtime"))
# torch makes tensors of other Python types from what these give, which must not have a Python object yet.
_ORIGINS = ("aten::alias", "aten::detach", "aten::lift", "aten::lift_fresh", "aten::empty.memory_format")
# A sparse gradient is copied, not taken over, once one of its parts has a Python object.
_PARTS = ("aten::_indices", "aten::_values")
_UNSEEN = frozenset(_ORIGINS + _PARTS)

_NUMBERS = frozenset((int, float, bool, complex))

_quiet = torch._C.DisableTorchFunction
# While torch.jit traces, sizes are tensors and what we do would become part of the trace.
_tracing: Callable[[], Any] = torch._C._get_tracing_state
_in_backward: Callable[[], Any] = torch._C._current_autograd_node


class Operator(NamedTuple):
    """What is known of one operator overload."""

    key: str
    text: str
    skipped: bool
    unset_result: bool
    late: bool
    # Arguments that it writes to: positions, and names where they can only be given by name.
    writes: tuple[int, ...]
    writes_named: tuple[str, ...]
    # Positions of tensors, which Python sees as numbers where C++ made tensors of numbers.
    tensors: tuple[int, ...]


class OperatorRecorder:
    """Records the operators of a thread and of the backward passes it starts: a part of the recorder."""

    def __init__(self, recorder: TorchRecorder) -> None:
        self.recorder = recorder
        self.calls: CallRecorder = recorder.calls
        self.session = recorder.session
        self._watch: _Watch = _watch_by_key() or _WatchByMode()
        self._was_on = threading.local()

    def attach(self) -> None:
        """Begin to watch this thread."""
        self._watch.attach(self)

    def detach(self) -> None:
        """Leave nothing behind."""
        self._watch.detach(self)

    def pause(self) -> None:
        """A compiled region is entered: as :meth:`detach`, until :meth:`resume` in the same thread."""
        self._was_on.yes = self._watch.is_on()
        self._watch.detach(self)

    def resume(self) -> None:
        """It was left."""
        if getattr(self._was_on, "yes", False):
            self._watch.resume(self)

    # ------------------------------------------------------------ one operator

    def run(self, operator: Operator, go: Callable[[], Any], args: Sequence[Any], kwargs: Any) -> Any:
        """Run the operator by ``go`` and record it."""
        with _quiet(), self._watch.away():
            record = self._begin(operator, args, kwargs)
        try:
            # What an operator calls to do its work is part of it, also where it is not wanted itself.
            with self._watch.away():
                result = go()
        except BaseException as error:
            if record is not None:
                with _quiet(), self._watch.away():
                    self._end(record, operator, args, kwargs, None, error)
            raise
        if record is None:
            return result
        with _quiet(), self._watch.away():
            self._end(record, operator, args, kwargs, result, None)
        return result

    def _begin(self, operator: Operator, args: Sequence[Any], kwargs: Any) -> _Record | None:
        session, calls = self.session, self.calls
        try:
            backward = _in_backward() is not None
            name = f"{operator.key}.{session.number(operator.key)}.forward"
            if calls.filter is not None and not calls.filter.wants_call(name):
                return None
            if not (calls.backward if backward else calls.forward):
                return None
            record = _Record(name, session.next_order(), session.stacks.here(3), backward)
            if calls.input:
                record.inputs, record.kwinputs = self._inputs(name, args, kwargs)
            return record
        except Exception as error:
            session.fault(operator.key, error)
            return None

    def _inputs(self, name: str, args: Sequence[Any], kwargs: dict[str, Any]) -> tuple[Any, Any]:
        calls = self.calls
        if calls.saving and self.session.saves(name):
            return calls.kept_inputs(name, args, kwargs)
        describe = calls.describer.describe
        return [describe(v) for v in args], {k: describe(v) for k, v in kwargs.items()}

    def _end(
        self,
        record: _Record,
        operator: Operator,
        args: Sequence[Any],
        kwargs: dict[str, Any],
        result: Any,
        error: BaseException | None,
    ) -> None:
        session, calls = self.session, self.calls
        try:
            for tensor in _written(operator, args, kwargs):
                calls.statistics.invalidate(tensor)
            tree: dict[str, Any] = {}
            if calls.input:
                tree["input_args"] = record.inputs
                tree["input_kwargs"] = record.kwinputs
            tree["is_recompute"] = record.stack.recompute
            if calls.output:
                if error is not None:
                    tree["output"] = [None]
                elif operator.late or operator.unset_result:
                    tree["output"] = [_without_values(value, operator) for value in _several(result)]
                else:
                    tree["output"] = calls.outputs_of(record.name, result)
            if error is not None:
                tree["error"] = f"{type(error).__name__}: {error}"[:2000]
            about: dict[str, Any] = {"order": record.order, "operator": operator.text}
            if record.backward:
                about["in_backward"] = True
            if record.stack.source:
                about["source"] = record.stack.source
            tree["msprobe"] = about
            if calls.overflow and not calls.keeper.overflowed(record.name, tree):
                return
            session.put(record.name, tree, record.stack)
        except Exception as problem:
            session.fault(record.name, problem)


class _Record:
    """An operator between its beginning and its end."""

    __slots__ = ("backward", "inputs", "kwinputs", "name", "order", "stack")

    def __init__(self, name: str, order: int, stack: CallStack, backward: bool) -> None:
        self.name = name
        self.order = order
        self.stack = stack
        self.backward = backward
        self.inputs: Any = []
        self.kwinputs: Any = {}


def describe_operator(op: Any) -> Operator:
    """Look at the schema of an operator overload."""
    schema = op._schema
    space, _, name = str(schema.name).partition("::")
    writes: list[int] = []
    writes_named: list[str] = []
    tensors: list[int] = []
    for position, argument in enumerate(schema.arguments):
        if argument.alias_info is not None and argument.alias_info.is_write:
            writes_named.append(argument.name)
            if not argument.kwarg_only:
                writes.append(position)
        if not argument.kwarg_only and str(argument.type) in ("Tensor", "Optional[Tensor]"):
            tensors.append(position)
    return Operator(
        key=f"Aten.{name}" if space == "aten" else f"Ops.{space}_{name}",
        text=str(op),
        skipped=space in _SKIPPED_SPACES,
        unset_result=name in _UNSET_RESULTS,
        late=space in _LATE_SPACES,
        writes=tuple(writes),
        writes_named=tuple(writes_named),
        tensors=tuple(tensors),
    )


def _written(operator: Operator, args: Sequence[Any], kwargs: dict[str, Any]) -> Iterator[torch.Tensor]:
    values = [args[i] for i in operator.writes if i < len(args)]
    values += [kwargs[name] for name in operator.writes_named if name in kwargs]
    for value in values:
        for item in value if isinstance(value, (list, tuple)) else (value,):
            if isinstance(item, torch.Tensor):
                yield item


def _several(result: Any) -> Sequence[Any]:
    return result if isinstance(result, (list, tuple)) else [result]


def _without_values(value: Any, operator: Operator) -> Any:
    """A result whose values mean nothing, or nothing yet."""
    if not isinstance(value, torch.Tensor):
        return None
    shape = [n if type(n) is int else str(n) for n in value.shape]
    tree: dict[str, Any] = {"type": "torch.Tensor", "dtype": str(value.dtype), "shape": shape}
    tree.update(Max=None, Min=None, Mean=None, Norm=None, requires_grad=value.requires_grad)
    if operator.late:
        tree["completed"] = False
    else:
        tree["unset"] = True
    return tree


# ---------------------------------------------------------------- two ways to watch


class _Watch:
    """How operators are brought to a recorder."""

    def attach(self, recorder: OperatorRecorder) -> None:
        """Begin, in this thread."""
        raise NotImplementedError

    def detach(self, recorder: OperatorRecorder) -> None:
        """End."""
        raise NotImplementedError

    def is_on(self) -> bool:
        """True if this thread is watched."""
        raise NotImplementedError

    def resume(self, recorder: OperatorRecorder) -> None:
        """Begin again, in this thread."""
        self.attach(recorder)

    def away(self) -> contextlib.AbstractContextManager[Any]:
        """What runs inside is not seen in this thread."""
        raise NotImplementedError


_get_included: Callable[[Any], bool] = torch._C._dispatch_tls_is_dispatch_key_included
_set_included: Callable[[Any, bool], None] = torch._C._dispatch_tls_set_dispatch_key_included


class _Away:
    """Switches the key off in this thread, and on again if it was on."""

    __slots__ = ("key", "was_on")

    def __init__(self, key: Any) -> None:
        self.key = key

    def __enter__(self) -> None:
        self.was_on = _get_included(self.key)
        _set_included(self.key, False)

    def __exit__(self, *error: object) -> None:
        if self.was_on:
            _set_included(self.key, True)


class _WatchByKey(_Watch):
    """Kernels for an unused dispatch key, registered once in a process and without effect while the key is
    off. A kernel passes each call on to where it would have gone.
    """

    def __init__(self) -> None:
        self.key = torch._C._parse_dispatch_key(_KEY_NAME)
        self.below = torch._C._dispatch_keyset_full_after(self.key)  # type: ignore[arg-type]
        self.current: OperatorRecorder | None = None
        # As long as these live, the kernels are registered.
        self._libraries: dict[str, Any] = {}
        self._registered: set[str] = set()
        self._known: tuple[int, ...] = ()
        # Operators that are made later pass by unseen until the next start.
        self._library("_").fallback_fallthrough(_KEY_NAME)
        self._register()
        atexit.register(self._libraries.clear)

    def attach(self, recorder: OperatorRecorder) -> None:
        self._register()
        self.resume(recorder)

    def resume(self, recorder: OperatorRecorder) -> None:
        self.current = recorder
        _set_included(self.key, True)

    def is_on(self) -> bool:
        return _get_included(self.key)

    def detach(self, recorder: OperatorRecorder) -> None:
        if self.current is recorder:
            self.current = None
        _set_included(self.key, False)

    def away(self) -> contextlib.AbstractContextManager[Any]:
        return _Away(self.key)

    def _library(self, space: str) -> Any:
        library = self._libraries.get(space)
        if library is None:
            library = self._libraries[space] = torch._C._dispatch_library("IMPL", space, "", __file__, 0)
        return library

    def _register(self) -> None:
        """Give operators that have none yet a kernel. New ones come with imports and definitions."""
        definitions = getattr(torch.library, "_defs", ())
        known = (len(sys.modules), len(definitions), len(torch.ops.loaded_libraries))
        if known == self._known:
            return
        self._known = known
        for name in torch._C._dispatch_get_all_op_names():
            if name in self._registered:
                continue
            self._registered.add(name)
            space, _, rest = name.partition("::")
            if space in _SKIPPED_SPACES or name in _UNSEEN:
                continue
            if torch._C._dispatch_has_kernel_for_dispatch_key(name, "CompositeImplicitAutograd"):
                continue
            self._library(space).impl(rest, _KEY_NAME, _Kernel(self, space, rest), True)


class _Kernel:
    """What one operator runs while its calls are watched."""

    __slots__ = ("_name", "_op", "_operator", "_space", "_watch")

    def __init__(self, watch: _WatchByKey, space: str, name: str) -> None:
        self._watch = watch
        self._space = space
        self._name = name
        self._op: Any = None

    def __call__(self, keys: Any, *args: Any, **kwargs: Any) -> Any:
        watch = self._watch
        if self._op is None:
            base, _, overload = self._name.partition(".")
            self._op = getattr(getattr(getattr(torch.ops, self._space), base), overload or "default")
            self._operator = describe_operator(self._op)
        recorder = watch.current
        if recorder is None or not recorder.session.recording:
            # A guard of the user's (inference mode is one) has brought the key back after it was switched
            # off.
            _set_included(watch.key, False)
            return self._pass_on(keys, args, kwargs)
        if recorder.session.thread.muted or _tracing() is not None:
            return self._pass_on(keys, args, kwargs)
        return recorder.run(self._operator, lambda: self._pass_on(keys, args, kwargs), args, kwargs)

    def _pass_on(self, keys: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        if _has_numbers(self._operator, args):
            # A number that C++ made a tensor of, to take part in type promotion as a number. Only a call
            # from the top makes it one again.
            with _quiet(), self._watch.away():
                return self._op(*args, **kwargs)
        return self._op._handle.redispatch_boxed(keys & self._watch.below, *args, **kwargs)


def _has_numbers(operator: Operator, args: Sequence[Any]) -> bool:
    count = len(args)
    return any(i < count and type(args[i]) in _NUMBERS for i in operator.tensors)


_by_key: _WatchByKey | None = None


def _watch_by_key() -> _WatchByKey | None:
    """The one watch of this process; None where torch cannot do it."""
    global _by_key
    if _by_key is None:
        try:
            _by_key = _WatchByKey()
        except Exception:
            return None
    return _by_key


class _WatchByMode(_Watch):
    """A dispatch mode, put below the user's modes and taken away from wherever it is then."""

    def __init__(self) -> None:
        self._mode: _OperatorMode | None = None

    def is_on(self) -> bool:
        return self._mode is not None

    def attach(self, recorder: OperatorRecorder) -> None:
        if self._mode is None:
            self._mode = _OperatorMode(recorder)
            above = _pop_modes()
            _python_dispatch._push_mode(self._mode)
            _push_modes(above)

    def detach(self, recorder: OperatorRecorder) -> None:
        mode, self._mode = self._mode, None
        if mode is not None:
            _push_modes([other for other in _pop_modes() if other is not mode])

    def away(self) -> contextlib.AbstractContextManager[Any]:
        # While a mode handles a call, it is off.
        return contextlib.nullcontext()


def _pop_modes() -> list[Any]:
    """Take all modes off the stack; the lowest one comes first."""
    count = torch._C._len_torch_dispatch_stack()
    modes = [_python_dispatch._pop_mode() for _ in range(count)]
    return modes[::-1]


def _push_modes(modes: Sequence[Any]) -> None:
    for mode in modes:
        _python_dispatch._push_mode(mode)


class _OperatorMode(TorchDispatchMode):  # type: ignore[no-untyped-call]
    def __init__(self, recorder: OperatorRecorder) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.recorder = recorder
        self.known: dict[Any, Operator] = {}

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        recorder = self.recorder
        operator = self.known.get(func)
        if operator is None:
            operator = self.known[func] = describe_operator(func)
        if operator.skipped or not recorder.session.recording or recorder.session.thread.muted:
            return func(*args, **kwargs)
        return recorder.run(operator, lambda: func(*args, **kwargs), args, kwargs)
