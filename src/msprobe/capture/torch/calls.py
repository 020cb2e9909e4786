"""Every call of torch, recorded as it happens, forward and backward.

A :class:`torch.overrides.TorchFunctionMode` sees each torch, Tensor and functional call of its thread, also
of APIs that no list names and of functions that the user imported long before; no function object is
replaced. Of nested calls the outermost recorded API counts; what is transparent runs with the mode in place,
so that its inside is seen.

This file is the hot path: `bench/capture` shows what each line costs.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from msprobe.capture.records import Describer
from msprobe.capture.session import Session
from msprobe.capture.stacks import CallStack
from msprobe.capture.torch.arguments import as_given, calling_frame
from msprobe.capture.torch.gradients import (
    ArgumentEdge,
    Gathering,
    NodeHooks,
    edge_of,
    find_boundary,
    has_inner_nodes,
    sequence_number,
    shares_of,
)
from msprobe.capture.torch.names import Api, ApiNames, called_as_builtin, made_by_operator
from msprobe.capture.torch.statistics import TensorStatistics
from msprobe.capture.torch.tensor_values import TensorKeeper
from msprobe.capture.torch.transparent import run_inside

_push: Callable[[Any], None] = torch._C._push_on_torch_function_stack
_pop: Callable[[], Any] = torch._C._pop_torch_function_stack
_stack_length: Callable[[], int] = torch._C._len_torch_function_stack
_quiet = torch._C.DisableTorchFunction
_grad_enabled = torch.is_grad_enabled
# While torch.jit traces, sizes are tensors and what we do would become part of the trace.
_tracing: Callable[[], Any] = torch._C._get_tracing_state

# Results of these are memory without values.
EMPTY_APIS = frozenset(("empty", "empty_like", "empty_strided", "new_empty", "new_empty_strided", "empty_permuted"))


class Call:
    """A call between its beginning and its end."""

    __slots__ = (
        "args",
        "base",
        "edges",
        "inputs",
        "keep",
        "key",
        "kwargs",
        "kwinputs",
        "name",
        "oldest",
        "order",
        "parent",
        "stack",
        "versions",
        "watched",
    )

    base: str
    name: str
    args: Sequence[Any]
    kwargs: dict[str, Any]
    edges: list[ArgumentEdge] | None
    inputs: Any
    keep: bool
    kwinputs: Any
    oldest: int
    order: int
    parent: Any
    stack: CallStack
    versions: list[tuple[Any, int]]
    watched: bool


class CallRecorder:
    """Writes the records of calls; shared by the function mode, the wrapper of custom Functions and the
    collectives.
    """

    def __init__(
        self,
        session: Session,
        describer: Describer,
        statistics: TensorStatistics,
        keeper: TensorKeeper,
        hooks: NodeHooks,
    ) -> None:
        self.session = session
        self.describer = describer
        self.statistics = statistics
        self.keeper = keeper
        self.hooks = hooks
        settings = session.settings
        self.filter = session.filter
        self.forward = settings.forward
        self.backward = settings.backward
        self.input = settings.input
        self.output = settings.output
        self.saving = session.saves_all or session.saves_some
        self.structure = settings.task == "structure"
        self.overflow = settings.task in ("overflow_check", "nan_check")
        self.tensor_types = (torch.Tensor, torch.nn.Parameter)
        self.open_watches: dict[_Watch, None] = {}

    # ------------------------------------------------------------ forward

    def begin(self, key: str, args: Sequence[Any], kwargs: dict[str, Any] | None, skip: int) -> Call | None:
        """Before the call: its name, its place, its arguments as they are now. None: not wanted, or it
        failed.
        """
        session = self.session
        call = Call()
        try:
            call.base = base = f"{key}.{session.number(key)}"
            call.name = name = base + ".forward"
            flt = self.filter
            watched = self.backward and _grad_enabled()
            if flt is not None:
                wanted = flt.wants_call(name)
                watched = watched and flt.may_want(base + ".backward")
                call.watched = watched
                call.inputs = None
                if not (wanted and self.forward):
                    if not call.watched:
                        return None
                    self._note_edges(call, args, kwargs)
                    call.keep = False
                    return call
            call.keep = self.forward
            call.order = session.next_order()
            call.stack = session.stacks.here(skip + 1)
            call.parent = session.parent() if session.with_construct else False
            call.args = args
            call.kwargs = kwargs or {}
            call.watched = watched
            edges: list[ArgumentEdge] = []
            versions: list[tuple[Any, int]] = []
            if self.saving and session.saves(name):
                inputs, kwinputs = self._kept_inputs(name, args, call.kwargs)
                for path, tensor in self._tensors(args, call.kwargs):
                    if tensor.is_inference():
                        continue
                    versions.append((tensor, tensor._version))
                    if watched and tensor.requires_grad:
                        edges.append(edge_of(tensor, path))
            else:
                describe = self.statistics.describe
                by_type = self.describer.by_type
                kinds = self.tensor_types
                inputs = []
                i = 0
                for value in args:
                    kind = type(value)
                    if kind in kinds:
                        inputs.append(describe(value, kind is not torch.Tensor))
                        if value.is_inference():
                            i += 1  # no version counter, no gradient
                            continue
                        versions.append((value, value._version))
                        if watched and value.requires_grad:
                            edges.append(edge_of(value, f"input.{i}"))
                    else:
                        leaf = by_type.get(kind)
                        if leaf is not None:
                            inputs.append(leaf(value))
                        else:
                            inputs.append(self.describer.describe(value))
                            self._nested(value, f"input.{i}", versions, edges if watched else None)
                    i += 1
                if kwargs:
                    kwinputs = {}
                    for word, value in kwargs.items():
                        kwinputs[word] = self.describer.describe(value)
                        if type(value) not in by_type or type(value) in kinds:
                            self._nested(value, f"kwargs.{word}", versions, edges if watched else None)
                else:
                    kwinputs = {}
            call.inputs = inputs
            call.kwinputs = kwinputs
            call.edges = edges
            call.versions = versions
            if watched:
                call.oldest = sequence_number()
            return call
        except Exception as error:
            session.fault(getattr(call, "name", key), error)
            return None

    def _note_edges(self, call: Call, args: Sequence[Any], kwargs: dict[str, Any] | None) -> None:
        call.args, call.kwargs, call.versions = args, kwargs or {}, []
        call.edges = [edge_of(t, path) for path, t in self._tensors(args, call.kwargs) if t.requires_grad]
        call.oldest = sequence_number()
        call.parent = self.session.parent() if self.session.with_construct else False
        call.stack = self.session.stacks.here(3)
        call.order = 0

    def end(self, call: Call, result: Any, outputs: Any = None) -> None:
        """After the call: its results, and the watch over its gradients. ``outputs``: what to record instead."""
        session = self.session
        try:
            for tensor, version in call.versions:
                if tensor._version != version:
                    self.statistics.invalidate(tensor)
            if call.keep:
                tree: dict[str, Any] = {}
                if self.input:
                    tree["input_args"] = call.inputs
                    tree["input_kwargs"] = call.kwinputs
                tree["is_recompute"] = call.stack.recompute
                if self.output:
                    tree["output"] = self._outputs(call.name, result if outputs is None else outputs)
                self._finish(call, tree)
            if call.watched:
                self._watch(call, result)
        except Exception as error:
            session.fault(call.name, error)

    def fail(self, call: Call, error: BaseException) -> None:
        """The call raised: its arguments are recorded with what it said."""
        try:
            if not call.keep:
                return
            tree: dict[str, Any] = {}
            if self.input:
                tree["input_args"] = call.inputs
                tree["input_kwargs"] = call.kwinputs
            tree["is_recompute"] = call.stack.recompute
            if self.output:
                tree["output"] = [None]
            kind = type(error).__name__
            if kind == "_StopRecomputationError":
                tree["stopped"] = "recomputation ended inside this call"
            else:
                tree["error"] = f"{kind}: {error}"[:2000]
            self._finish(call, tree)
        except Exception as problem:
            self.session.fault(call.name, problem)

    def _finish(self, call: Call, tree: dict[str, Any]) -> None:
        tree["msprobe"] = {"order": call.order}
        if call.stack.source:
            tree["msprobe"]["source"] = call.stack.source
        if self.overflow and not self.keeper.overflowed(call.name, tree):
            return
        self.session.put(call.name, tree, call.stack, call.parent)

    def _kept_inputs(self, name: str, args: Sequence[Any], kwargs: dict[str, Any]) -> tuple[Any, Any]:
        describer = self.describer
        keep = self.keeper.keep
        inputs = [describer.describe_kept(v, f"{name}.input.{i}", keep) for i, v in enumerate(args)]
        words = {k: describer.describe_kept(v, f"{name}.kwargs.{k}", keep) for k, v in kwargs.items()}
        return inputs, words

    def _outputs(self, name: str, result: Any) -> list[Any]:
        if self.saving and self.session.saves(name):
            keep = self.keeper.keep
            if type(result) is tuple or (isinstance(result, tuple) and not hasattr(result, "_asdict")):
                return [self.describer.describe_kept(v, f"{name}.output.{i}", keep) for i, v in enumerate(result)]
            return [self.describer.describe_kept(result, f"{name}.output.0", keep)]
        if type(result) in self.tensor_types:
            return [self.statistics.describe(result)]
        if isinstance(result, tuple) and type(result) is not torch.Size:
            return [self.describer.describe(v) for v in result]
        return [self.describer.describe(result)]

    def _tensors(self, args: Sequence[Any], kwargs: dict[str, Any]) -> list[tuple[str, Any]]:
        found: list[tuple[str, Any]] = []
        for i, value in enumerate(args):
            _collect(value, f"input.{i}", found, 0)
        for word, value in kwargs.items():
            _collect(value, f"kwargs.{word}", found, 0)
        return found

    def _nested(self, value: Any, path: str, versions: list[tuple[Any, int]], edges: list[ArgumentEdge] | None) -> None:
        found: list[tuple[str, Any]] = []
        _collect(value, path, found, 0)
        for where, tensor in found:
            if tensor.is_inference():
                continue
            versions.append((tensor, tensor._version))
            if edges is not None and tensor.requires_grad:
                edges.append(edge_of(tensor, where))

    # ------------------------------------------------------------ backward

    def _watch(self, call: Call, result: Any) -> None:
        node: Any = None
        others: list[Any] = []
        if isinstance(result, torch.Tensor):
            if not result.requires_grad:
                return
            node = result.grad_fn
        else:
            found: list[tuple[str, Any]] = []
            _collect(result, "", found, 0)
            for _, tensor in found:
                if tensor.requires_grad and tensor.grad_fn is not None:
                    if node is None:
                        node = tensor.grad_fn
                    elif tensor.grad_fn is not node and tensor.grad_fn not in others:
                        others.append(tensor.grad_fn)
        if node is None:
            return
        generation = self.session.generation
        edges = call.edges or []
        if not others and not has_inner_nodes(node, call.oldest):
            # One node does the whole call: what it gets and what it passes on is all there is to know.
            self.hooks.after(node, self._single, call.base, call.parent, generation)
            return
        boundary = find_boundary([node, *others], edges, call.oldest)
        watch = _Watch(call, edges, boundary, generation, len(others))
        self.hooks.after(node, self._first, watch)
        for other in others:
            self.hooks.before(other, self._other, watch)
        viewed = result._base if isinstance(result, torch.Tensor) else None
        base = None if viewed is None else viewed.grad_fn
        for place in boundary:
            if place.node is base:
                watch.base_slots = place.slots
            self.hooks.after(place.node, self._boundary, watch, place.slots)

    def _single(
        self, base: str, parent: Any, generation: int, passed_on: Sequence[Any], received: Sequence[Any]
    ) -> None:
        session = self.session
        if generation != session.generation:
            return
        with _quiet():
            name = base + ".backward"
            try:
                if self.filter is not None and not self.filter.wants_call(name):
                    return
                tree: dict[str, Any] = {}
                if self.saving and session.saves(name):
                    self._gradients(name, tree, received, passed_on)
                else:
                    describe = self.statistics.describe
                    if self.input:
                        tree["input"] = [None if g is None else describe(g) for g in received]
                    if self.output:
                        tree["output"] = [None if g is None else describe(g) for g in passed_on]
                self._put_backward(name, tree, session.next_order(), parent)
            except Exception as error:
                session.fault(name, error)

    def _opened(self, watch: _Watch) -> bool:
        """True if this pass through the call is recorded; decided when the first of its gradients arrives."""
        if watch.tree is None:
            if watch.gathering is None:
                return False
            if self.filter is not None and not self.filter.wants_call(watch.base + ".backward"):
                watch.gathering = None
                return False
            watch.tree = {}
            watch.order = self.session.next_order()
            self.open_watches[watch] = None
        return True

    def _first(self, watch: _Watch, passed_on: Sequence[Any], received: Sequence[Any]) -> None:
        session = self.session
        if watch.generation != session.generation:
            return
        with _quiet():
            name = watch.base + ".backward"
            try:
                if watch.tree:
                    # The graph is walked again before all of the last walk's gradients arrived.
                    self._close(watch)
                if not self._opened(watch):
                    return
                assert watch.tree is not None
                self._gradients(name, watch.tree, received, passed_on)
                if watch.early:
                    # The boundary may have come first.
                    self._close_if_done(watch)
                elif not watch.awaited:
                    self._close(watch)
            except Exception as error:
                session.fault(name, error)

    def _other(self, watch: _Watch, received: Sequence[Any]) -> None:
        if watch.generation != self.session.generation:
            return
        with _quiet():
            try:
                if self._opened(watch):
                    watch.extra += [None if g is None else self.statistics.describe(g) for g in received]
            except Exception as error:
                self.session.fault(watch.base + ".backward", error)

    def _boundary(
        self, watch: _Watch, slots: list[tuple[int, int]], passed_on: Sequence[Any], received: Sequence[Any]
    ) -> None:
        if watch.generation != self.session.generation:
            return
        with _quiet():
            try:
                if watch.tree is None and not watch.early:
                    # The result is a view that was written to: its own node runs no more. That of the tensor
                    # it is a view of does, and sees the gradient of what the result was.
                    if not self._opened(watch):
                        return
                    assert watch.tree is not None
                    name = watch.base + ".backward"
                    self._gradients(name, watch.tree, received if slots is watch.base_slots else [None], passed_on)
                gathering = watch.gathering
                if gathering is None:
                    return
                for position, index in slots:
                    gathering.add(index, passed_on[position], self.statistics.describe)
                gathering.arrived += 1
                self._close_if_done(watch)
            except Exception as error:
                self.session.fault(watch.base + ".backward", error)

    def _close_if_done(self, watch: _Watch) -> None:
        gathering = watch.gathering
        if watch.tree is not None and gathering is not None and gathering.arrived >= watch.awaited:
            self._close(watch)

    def _close(self, watch: _Watch) -> None:
        self.open_watches.pop(watch, None)
        tree, gathering = watch.tree, watch.gathering
        if tree is None:
            return
        if self.input and (watch.extra or not tree):
            tree["input"] = [*tree.get("input", [None]), *watch.extra]
        if self.output:
            tree.setdefault("output", [None])
        if gathering is not None and self.output:
            describe = self.statistics.describe
            shares = {
                path: gathering.result(index, describe)
                for index, path in enumerate(watch.paths)
                if gathering.count[index]
            }
            if shares:
                tree["input_grads"] = shares
        self._put_backward(watch.base + ".backward", tree, watch.order, watch.parent)
        watch.again()

    def close_open(self) -> None:
        """Write the gradients of calls whose boundary was not reached: the rest of the graph was not asked
        for.
        """
        with _quiet():
            for watch in list(self.open_watches):
                self.session.guard(self._close, watch)

    def _gradients(self, name: str, tree: dict[str, Any], received: Sequence[Any], passed_on: Sequence[Any]) -> None:
        if self.saving and self.session.saves(name):
            keep = self.keeper.keep
            describer = self.describer
            if self.input:
                tree["input"] = [describer.describe_kept(g, f"{name}.input.{i}", keep) for i, g in enumerate(received)]
            if self.output:
                tree["output"] = [
                    describer.describe_kept(g, f"{name}.output.{i}", keep) for i, g in enumerate(passed_on)
                ]
            return
        describe = self.statistics.describe
        if self.input:
            tree["input"] = [None if g is None else describe(g) for g in received]
        if self.output:
            tree["output"] = [None if g is None else describe(g) for g in passed_on]

    def _put_backward(self, name: str, tree: dict[str, Any], order: int, parent: Any, note: str = "") -> None:
        tree["msprobe"] = {"order": order}
        if note:
            tree["msprobe"]["note"] = note
        if self.overflow and not self.keeper.overflowed(name, tree):
            return
        self.session.put(name, tree, None, backward_of(parent))


class _Watch:
    """One call of several nodes, between its forward and its backward."""

    __slots__ = (
        "awaited",
        "base",
        "base_slots",
        "early",
        "extra",
        "gathering",
        "generation",
        "order",
        "parent",
        "paths",
        "shares",
        "tree",
    )

    def __init__(
        self, call: Call, edges: list[ArgumentEdge], boundary: list[Any], generation: int, others: int
    ) -> None:
        self.base = call.base
        self.parent = call.parent
        self.paths = [edge.path for edge in edges]
        self.generation = generation
        self.awaited = len(boundary)
        self.shares = shares_of(boundary, len(edges))
        self.early = others > 0
        # The edges of the node of the tensor that the result is a view of.
        self.base_slots: list[tuple[int, int]] | None = None
        self.again()

    def again(self) -> None:
        """Ready for a pass (the graph may be walked backward more than once)."""
        self.tree: dict[str, Any] | None = None
        self.extra: list[Any] = []
        self.order = 0
        self.gathering: Gathering | None = Gathering(self.shares)


def backward_of(parent: Any) -> Any:
    """The backward entry of a module's forward entry; other parents as they are."""
    if isinstance(parent, str) and ".forward." in parent:
        head, _, number = parent.rpartition(".forward.")
        return f"{head}.backward.{number}"
    return parent


def _collect(value: Any, path: str, found: list[tuple[str, Any]], depth: int) -> None:
    if isinstance(value, torch.Tensor):
        found.append((path, value))
    elif isinstance(value, (list, tuple)):
        if depth < 20:
            for i, item in enumerate(value):
                _collect(item, f"{path}.{i}", found, depth + 1)
    elif isinstance(value, dict) and depth < 20:
        for key, item in value.items():
            _collect(item, f"{path}.{key}", found, depth + 1)


class CallMode(TorchFunctionMode):
    """Sees every call of the thread it was entered in. Enter and leave with :func:`enter` and :func:`leave`."""

    def __init__(self, recorder: CallRecorder, names: ApiNames) -> None:
        super().__init__()
        self.recorder = recorder
        self.table = names.table
        self.find = names.find
        self.include_unlisted = names.include_unlisted
        self.reflected = False
        # The transparent function that is being entered, until a call inside it shows that it was.
        self.hop: Any = None
        self.session = recorder.session
        self.thread = recorder.session.thread

    def __torch_function__(
        self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        try:
            api = self.table[func]
        except KeyError:
            api = self.find(func)
        except TypeError:  # an unhashable callable
            api = None
        if api is None or not self.session.recording or self.thread.muted or _tracing() is not None:
            return func(*args, **kwargs) if kwargs else func(*args)
        if api.transparent:
            if api.unit is not None:
                return api.unit(api, func, args, kwargs)
            return self._inside(func, types, args, kwargs)
        self.hop = None
        key = api.key
        if api.operator is not None:
            key, listed = self._operator_key(api)
            if not listed and not self.include_unlisted:
                return func(*args, **kwargs) if kwargs else func(*args)
        given, words = args, kwargs
        if api.python:
            given, words = as_given(func, args, kwargs, calling_frame(func, 1), key.startswith("Tensor."))
        if _stack_length() or types:
            # Modes of the user run below ours, or tensor types with a mind of their own: our questions are
            # not calls.
            with _quiet():
                call = self.recorder.begin(key, given, words, 1)
        else:
            call = self.recorder.begin(key, given, words, 1)
        if call is None:
            return func(*args, **kwargs) if kwargs else func(*args)
        try:
            result = func(*args, **kwargs) if kwargs else func(*args)
        except BaseException as error:
            with _quiet():
                self.recorder.fail(call, error)
            raise
        if _stack_length() or types:
            with _quiet():
                self.recorder.end(call, result)
        else:
            self.recorder.end(call, result)
        return result

    def _inside(self, func: Any, types: Any, args: Sequence[Any], kwargs: dict[str, Any] | None) -> Any:
        if self.hop is func:
            # It asked a second time before it did anything: run it as one unit rather than for ever.
            self.hop = None
            return func(*args, **(kwargs or {}))
        self.hop = func
        _push(self)
        try:
            return run_inside(func, types, args, kwargs)
        finally:
            self.hop = None
            remove_mode(self)

    def _operator_key(self, api: Api) -> tuple[str, bool]:
        if self.reflected and api.reflected is not None:
            self.reflected = False
            return api.reflected
        frame = sys._getframe(2)
        code, lasti = frame.f_code, frame.f_lasti
        if made_by_operator(code, lasti) and api.operator is not None:
            return api.operator
        if api.name == "abs" and called_as_builtin(code, lasti, "abs"):
            return "Tensor.__abs__", False
        return api.key, api.listed


# ---------------------------------------------------------------- the stack of modes


def enter_mode(mode: TorchFunctionMode) -> None:
    """Put ``mode`` below the user's modes, which may be left before ours is.

    Only the default device (``torch.set_default_device``) stays below: it insists on the bottom.
    """
    above = [_pop() for _ in range(_stack_length())]
    above.reverse()
    default = getattr(getattr(torch, "_GLOBAL_DEVICE_CONTEXT", None), "device_context", None)
    place = 1 if above and above[0] is default else 0
    for other in [*above[:place], mode, *above[place:]]:
        _push(other)


def remove_mode(mode: TorchFunctionMode) -> bool:
    """Take exactly ``mode`` off the stack, wherever it is; the topmost one if it is there twice."""
    above: list[Any] = []
    found = False
    while _stack_length():
        top = _pop()
        if top is mode:
            found = True
            break
        above.append(top)
    for other in reversed(above):
        _push(other)
    return found
