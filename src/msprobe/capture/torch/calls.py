"""Calls of torch, recorded as they happen: arguments before, results after, the watch over their gradients.

Shared by all that notice calls: the function mode, the wrapper of custom Functions, the collectives. Of nested
calls the outermost recorded API counts. This file is the hot path: `bench/capture` shows what it costs.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from msprobe.capture.records import Describer
from msprobe.capture.session import Session
from msprobe.capture.stacks import CallStack
from msprobe.capture.torch.call_gradients import CallGradients
from msprobe.capture.torch.gradients import (
    ArgumentEdge,
    NodeHooks,
    collect_tensors,
    edge_of,
    sequence_number,
)
from msprobe.capture.torch.own_tensors import OwnTensors
from msprobe.capture.torch.statistics import TensorStatistics
from msprobe.capture.torch.tensor_values import TensorKeeper
from msprobe.capture.torch.unwritten import part_written, unwritten_result

_grad_enabled = torch.is_grad_enabled


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
        "quiet",
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
    # Modes or tensor types of the user see what is called, also by us.
    quiet: bool
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
        self.gradients = CallGradients(self)
        self.own = OwnTensors()

    # ------------------------------------------------------------ forward

    def begin_call(
        self, key: str, args: Sequence[Any], kwargs: dict[str, Any] | None, skip: int, number: int | None = None
    ) -> Call | None:
        """Before the call: its name, its place, its arguments as they are now. None: not wanted, or it
        failed. ``number``: the one that it has already.
        """
        session = self.session
        call = Call()
        try:
            call.base = base = f"{key}.{session.number(key) if number is None else number}"
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
                inputs, kwinputs = self.kept_inputs(name, args, call.kwargs)
                for path, tensor in self.tensors_in(args, call.kwargs):
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
        call.edges = [edge_of(t, path) for path, t in self.tensors_in(args, call.kwargs) if t.requires_grad]
        call.oldest = sequence_number()
        call.parent = self.session.parent() if self.session.with_construct else False
        call.stack = self.session.stacks.here(3)
        call.order = 0

    def end_call(self, call: Call, result: Any, outputs: Any = None) -> None:
        """After the call: its results, and the watch over its gradients. ``outputs``: what to record instead."""
        session = self.session
        key = call.base.rpartition(".")[0]
        try:
            for tensor, version in call.versions:
                if tensor._version != version:
                    first = bool(call.args) and tensor is call.args[0]
                    self.statistics.invalidate(tensor, part_written(key, call.args) if first else None)
            unwritten = unwritten_result(key, result)
            if unwritten is not None:
                self.statistics.leave_unwritten(*unwritten)
            if call.keep:
                tree: dict[str, Any] = {}
                if self.input:
                    tree["input_args"] = call.inputs
                    tree["input_kwargs"] = call.kwinputs
                tree["is_recompute"] = call.stack.recompute
                if self.output:
                    tree["output"] = self.outputs_of(call.name, result if outputs is None else outputs)
                self.finish(call, tree)
            if call.watched:
                self.gradients.watch(call, result)
        except Exception as error:
            session.fault(call.name, error)

    def fail_call(self, call: Call, error: BaseException) -> None:
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
            self.finish(call, tree)
        except Exception as problem:
            self.session.fault(call.name, problem)

    def finish(self, call: Call, tree: dict[str, Any]) -> None:
        """Write the record of a call: what all records share, and the check for overflow."""
        tree["msprobe"] = {"order": call.order}
        if call.stack.source:
            tree["msprobe"]["source"] = call.stack.source
        if self.own and (held := self.own.among(call.args, call.kwargs)):
            tree["msprobe"]["held"] = held
        if self.overflow and not self.keeper.overflowed(call.name, tree):
            return
        self.session.put(call.name, tree, call.stack, call.parent)

    def kept_inputs(self, name: str, args: Sequence[Any], kwargs: dict[str, Any]) -> tuple[Any, Any]:
        """The arguments of the entry ``name``, their tensors saved to files."""
        describer = self.describer
        keep = self.keeper.keep
        inputs = [describer.describe_kept(v, f"{name}.input.{i}", keep) for i, v in enumerate(args)]
        words = {k: describer.describe_kept(v, f"{name}.kwargs.{k}", keep) for k, v in kwargs.items()}
        return inputs, words

    def outputs_of(self, name: str, result: Any) -> list[Any]:
        """The results of the entry ``name``; a tuple is several results, a list is one."""
        several = isinstance(result, tuple) and type(result) is not torch.Size
        if self.saving and self.session.saves(name):
            keep = self.keeper.keep
            if several:
                return [self.describer.describe_kept(v, f"{name}.output.{i}", keep) for i, v in enumerate(result)]
            return [self.describer.describe_kept(result, f"{name}.output.0", keep)]
        if type(result) in self.tensor_types:
            return [self.statistics.describe(result)]
        if several:
            return [self.describer.describe(v) for v in result]
        return [self.describer.describe(result)]

    def tensors_in(self, args: Sequence[Any], kwargs: dict[str, Any]) -> list[tuple[str, Any]]:
        """The tensors among the arguments, nested ones too, each with its index path."""
        found: list[tuple[str, Any]] = []
        for i, value in enumerate(args):
            collect_tensors(value, f"input.{i}", found, 0)
        for word, value in kwargs.items():
            collect_tensors(value, f"kwargs.{word}", found, 0)
        return found

    def _nested(self, value: Any, path: str, versions: list[tuple[Any, int]], edges: list[ArgumentEdge] | None) -> None:
        found: list[tuple[str, Any]] = []
        collect_tensors(value, path, found, 0)
        for where, tensor in found:
            if tensor.is_inference():
                continue
            versions.append((tensor, tensor._version))
            if edges is not None and tensor.requires_grad:
                edges.append(edge_of(tensor, where))
