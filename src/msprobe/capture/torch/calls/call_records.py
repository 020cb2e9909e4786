"""Calls of torch, recorded as they happen: arguments before, results after, the watch over their gradients.

Shared by all that notice calls: the function mode, the wrapper of custom Functions, the collectives. Of nested
calls the outermost recorded API counts. This file is the hot path: `bench/capture` shows what it costs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from msprobe.capture.records import Describer
from msprobe.capture.session import Session
from msprobe.capture.torch.gradients.call_gradients import CallGradients, OpenCall
from msprobe.capture.torch.gradients.graph_nodes import (
    ArgumentEdge,
    NodeHooks,
    collect_tensors,
    edge_of,
    sequence_number,
)
from msprobe.capture.torch.tensors.own_tensors import OwnTensors
from msprobe.capture.torch.tensors.statistics import TensorStatistics
from msprobe.capture.torch.tensors.tensor_values import TensorKeeper
from msprobe.capture.torch.tensors.unwritten import part_written, unwritten_result
from msprobe.capture.units import CallWriter, Writer
from msprobe.store.handed_through import HANDED_THROUGH

_grad_enabled = torch.is_grad_enabled

# The error by which torch ends a recomputation when it has what it needs.
STOPPED = "_StopRecomputationError"
_SEVERAL = (tuple, list)
#: They write running averages to arguments that have no gradient, and torch counts no write.
_AVERAGING = frozenset("batch_norm instance_norm native_batch_norm cudnn_batch_norm miopen_batch_norm".split())


class TensorWriter(Writer):
    """What the writers of calls and of passes have in common: how arguments and results are described."""

    def __init__(
        self,
        session: Session,
        describer: Describer,
        statistics: TensorStatistics,
        keeper: TensorKeeper,
        hooks: NodeHooks,
    ) -> None:
        super().__init__(session, describer, keeper.keep)
        self.statistics = statistics
        self.keeper = keeper
        self.hooks = hooks
        self.overflow = session.settings.task in ("overflow_check", "nan_check")
        self.tensor_types = (torch.Tensor, torch.nn.Parameter)

    def is_kept(self, entry: str, tree: dict[str, Any]) -> bool:
        return self.keeper.overflowed(entry, tree)

    def described(self, value: Any, path: str, entry: str) -> Any:
        """See :class:`Writer`; of a gradient, which torch made: what is said of it may be said again."""
        if self.saving and self.session.saves(entry):
            return self.describer.describe_kept(value, path, self.keep)
        return self.statistics.describe(value)

    def kept_inputs(self, name: str, args: Sequence[Any], kwargs: dict[str, Any]) -> tuple[Any, Any]:
        """The arguments of the entry ``name``, their tensors saved to files."""
        describer = self.describer
        keep = self.keep
        inputs = [describer.describe_kept(v, f"{name}.input.{i}", keep) for i, v in enumerate(args)]
        words = {k: describer.describe_kept(v, f"{name}.kwargs.{k}", keep) for k, v in kwargs.items()}
        return inputs, words

    def outputs_of(self, entry: str, result: Any) -> list[Any]:
        """See :class:`Writer`; a tuple is several results, a list is one."""
        several = isinstance(result, tuple) and type(result) is not torch.Size
        if self.saving and self.session.saves(entry):
            keep = self.keep
            if several:
                return [self.describer.describe_kept(v, f"{entry}.output.{i}", keep) for i, v in enumerate(result)]
            return [self.describer.describe_kept(result, f"{entry}.output.0", keep)]
        if type(result) in self.tensor_types:
            return [self.statistics.describe(result)]
        if several:
            return [self.describer.describe(v) for v in result]
        return [self.describer.describe(result)]

    def tensors_in(self, args: Sequence[Any], kwargs: dict[str, Any]) -> list[tuple[str, Any]]:
        """The tensors among the arguments, nested ones too, each with its index path."""
        tensors: list[tuple[str, Any]] = []
        for i, value in enumerate(args):
            collect_tensors(value, f"input.{i}", tensors, 0)
        for word, value in kwargs.items():
            collect_tensors(value, f"kwargs.{word}", tensors, 0)
        return tensors


class CallRecorder(TensorWriter, CallWriter):
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
        super().__init__(session, describer, statistics, keeper, hooks)
        self.gradients = CallGradients(self, statistics, hooks)
        self.own = OwnTensors()
        # Notified of each call and pass that begins, whether it is the latter; None where no device captures graphs.
        self.beginning: Callable[[bool], None] | None = None

    # ------------------------------------------------------------ forward

    def begin_call(
        self, key: str, args: Sequence[Any], kwargs: dict[str, Any] | None, number: int | None = None
    ) -> OpenCall | None:
        """Before the call: its name, its place, its arguments as they are now. None: not wanted, or it
        failed. ``number``: the one that it has already.
        """
        session = self.session
        name = key
        try:
            if self.beginning is not None:
                self.beginning(False)
            call = OpenCall(key, session.number(key) if number is None else number)
            name = call.entry
            flt = self.filter
            watched = self.backward and _grad_enabled()
            if flt is not None:
                wanted = flt.wants_call(name)
                watched = watched and flt.may_want(call.base + ".backward")
                if not (wanted and self.forward):
                    if not watched:
                        return None
                    call.watched = True
                    self._note_edges(call, args, kwargs)
                    return call
            call.recorded = self.forward
            call.order = session.next_order()
            call.stack = session.stacks.here()
            call.parent = session.parent() if session.with_construct else False
            call.args = args
            call.kwargs = kwargs or {}
            call.watched = watched
            edges, versions = call.edges, call.versions
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
            if watched:
                call.oldest = sequence_number()
            return call
        except Exception as error:
            session.fault(name, error)
            return None

    def _note_edges(self, call: OpenCall, args: Sequence[Any], kwargs: dict[str, Any] | None) -> None:
        call.args, call.kwargs = args, kwargs or {}
        call.edges = [edge_of(t, path) for path, t in self.tensors_in(args, call.kwargs) if t.requires_grad]
        call.oldest = sequence_number()
        call.parent = self.session.parent() if self.session.with_construct else False
        call.stack = self.session.stacks.here()

    def returned(self, unit: OpenCall, result: Any) -> None:
        """See :class:`CallWriter`: what the call wrote to is not what it was."""
        key = unit.base.rpartition(".")[0]
        several = type(result) in _SEVERAL
        for tensor, version in unit.versions:
            if tensor is result or several:
                self._note_handed(unit, tensor, version, result if several else (result,))
            if tensor._version != version:
                first = bool(unit.args) and tensor is unit.args[0]
                self.statistics.invalidate(tensor, part_written(key, unit.args) if first else None)
        if key.rpartition(".")[2] in _AVERAGING:
            for tensor in (*unit.args, *unit.kwargs.values()):
                if isinstance(tensor, torch.Tensor) and not tensor.requires_grad:
                    self.statistics.invalidate(tensor)
        unwritten = unwritten_result(key, result)
        if unwritten is not None:
            self.statistics.leave_unwritten(*unwritten)

    def _note_handed(self, unit: OpenCall, tensor: Any, version: int, results: Sequence[Any]) -> None:
        """Note it where an argument that was not written to is among the results."""
        if tensor._version != version:
            return
        places = [place for place, result in enumerate(results) if result is tensor]
        if places:
            paths = [path for path, given in self.tensors_in(unit.args, unit.kwargs) if given is tensor]
            unit.handed |= {path: f"output.{place}" for path, place in zip(paths, places, strict=False)}

    def how_it_failed(self, error: BaseException) -> dict[str, str]:
        if type(error).__name__ == STOPPED:
            return {"stopped": "recomputation ended inside this call"}
        return super().how_it_failed(error)

    def facts_of(self, unit: Any) -> dict[str, Any]:
        """See :class:`Writer`; and which tensors of the model it was given."""
        facts = super().facts_of(unit)
        if self.own and (held := self.own.among(unit.args, unit.kwargs)):
            facts["held"] = held
        if unit.handed:
            facts[HANDED_THROUGH] = unit.handed
        return facts

    def watch(self, unit: OpenCall, result: Any) -> None:
        self.gradients.watch(unit, result)

    def _nested(self, value: Any, path: str, versions: list[tuple[Any, int]], edges: list[ArgumentEdge] | None) -> None:
        tensors: list[tuple[str, Any]] = []
        collect_tensors(value, path, tensors, 0)
        for where, tensor in tensors:
            if tensor.is_inference():
                continue
            versions.append((tensor, tensor._version))
            if edges is not None and tensor.requires_grad:
                edges.append(edge_of(tensor, where))
