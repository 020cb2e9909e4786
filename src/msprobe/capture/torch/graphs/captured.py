"""Graphs of kernels that the program captures (as ``torch.cuda.graph`` does) while it is recorded.

What is launched then runs later, in each replay. ``"graphs": "skip"``: nothing of ours is launched or waited for, calls
and passes are recorded without numbers, and it is said how many. ``"record"``: they are recorded once more, into the
graph (:mod:`msprobe.capture.torch.graphs.graph_records`), and each replay in a recorded step writes their records.

In neither case gradients are followed: a node that adds the gradients of a parameter belongs to the stream on which it
was made, and one that we kept alive from before would break the capture.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from msprobe import log
from msprobe.capture.around import Around, Plan
from msprobe.capture.identity import IdentityMap
from msprobe.capture.session import Session
from msprobe.capture.torch.context import GraphHooks
from msprobe.capture.torch.graphs.graph_records import GraphRecords
from msprobe.capture.torch.graphs.graph_slots import GraphSlots
from msprobe.capture.torch.tensors.statistics import MEMO_LIMIT, TensorStatistics
from msprobe.capture.torch.watched_functions import Entrance, FunctionCalls
from msprobe.capture.units import Writer
from msprobe.guard import attempt
from msprobe.messages import said


class CapturedGraphs:
    """Notices where a graph begins and ends, by the calls and passes that run. As a part of the recorder it also sees
    what is done with graphs.
    """

    def __init__(
        self, hooks: GraphHooks, session: Session, statistics: TensorStatistics, writers: Sequence[Writer]
    ) -> None:
        self._hooks = hooks
        self._session = session
        self._statistics = statistics
        self._writers = writers
        self._records = session.settings.graphs == "record"
        self._device = _accelerator()
        self._asked = _question(self._device)
        self._is_inside = self._was_suspended = False
        self._calls = self._passes = 0
        # The graphs that were captured in recorded steps; and the records of the one that is captured now.
        self._known: IdentityMap[GraphRecords] = IdentityMap()
        self._filled: GraphRecords | None = None
        self._functions: FunctionCalls | None = None

    @property
    def possible(self) -> bool:
        """Whether this process has a device that captures graphs."""
        return self._asked is not None

    def look(self, is_pass: bool) -> None:
        """A call, or a pass of a module, begins."""
        asked, filled = self._asked, self._filled
        if filled is not None and not filled.is_here:
            return
        is_inside = asked is not None and asked()
        if is_inside != self._is_inside:
            self._enter() if is_inside else self.leave()
        if is_inside and is_pass:
            self._passes += 1
        elif is_inside:
            self._calls += 1

    def _enter(self) -> None:
        self._is_inside = True
        self._was_suspended = self._hooks.is_suspended
        if not self._was_suspended:
            self._hooks.suspend()

    def leave(self) -> None:
        """The graph is captured, or the step is over."""
        if not self._is_inside:
            return
        self._is_inside = False
        filled, self._filled = self._filled, None
        is_whole = False
        self._statistics.slots = None
        try:
            if filled is not None:
                filled.end()
                # What is launched behind its end is not in the graph.
                if self._asked is not None and self._asked():
                    filled.slots.finish()
                    is_whole = True
        finally:
            if filled is not None and not is_whole:
                filled.drop()
            if not self._was_suspended:
                self._hooks.resume()
            if self._calls or self._passes:
                name = "captured-graph-is-recorded" if is_whole else "inside-captured-graph"
                log.warning(said(name, self._calls, self._passes))
            self._calls = self._passes = 0

    def forget(self) -> None:
        """No replay is recorded any more."""
        for graph in self._known:
            self._known.pop(graph)

    # ---------------------------------------------------------------- what is done with graphs

    def attach(self) -> None:
        """See what is done with graphs of the device of this process."""
        if self._functions is None:
            self._functions = FunctionCalls()
            kind = getattr(getattr(torch, self._device, None), f"{self._device.upper()}Graph", None)
            hooks: dict[str, tuple[Callable[[Any], Any], Callable[[Any, Any, BaseException | None], None]]] = {
                "replay": (self._before_replay, self._after_replay)
            }
            if self._records:
                hooks["capture_begin"] = self._before_capture, self._after_beginning
                hooks["capture_end"] = self._before_end, self._after_end
                hooks["reset"] = self._before_reset, _nothing
            for name, (before, after) in hooks.items():
                self._functions.add_around(getattr(kind, name, None), _around(before, after))
        self._functions.attach()

    def detach(self) -> None:
        """Leave nothing behind."""
        if self._functions is not None:
            self._functions.detach()

    def _before_capture(self, graph: Any) -> bool:
        if not self._session.is_dumping or self._asked is None or self._asked():
            return False
        self._known.pop(graph)
        self._statistics.prepare_for_graphs(self._place())
        return True

    def _after_beginning(self, graph: Any, is_prepared: Any, error: BaseException | None) -> None:
        if not is_prepared or error is not None:
            return
        self._enter()
        slots = self._statistics.slots = GraphSlots(self._place(), MEMO_LIMIT)
        self._filled = GraphRecords(self._session, self._writers, slots, self._statistics.late)
        self._known[graph] = self._filled

    def _before_end(self, graph: Any) -> bool:
        if self._filled is not None and self._known.get(graph) is self._filled:
            self.leave()
        return True

    def _after_end(self, graph: Any, _: Any, error: BaseException | None) -> None:
        if error is not None:
            self._known.pop(graph)

    def _before_reset(self, graph: Any) -> bool:
        self._known.pop(graph)
        return True

    def _before_replay(self, graph: Any) -> bool:
        if self._asked is None or self._asked():
            return False  # it becomes part of a different graph
        known = self._known.get(graph)
        if known is not None:
            known.slots.wait_for_copies()
        return True

    def _after_replay(self, graph: Any, is_launched: Any, error: BaseException | None) -> None:
        if not is_launched:
            return
        # Torch counts no write of it.
        self._statistics.forget_all()
        if error is not None or not self._records or not self._session.is_dumping:
            return
        known = self._known.get(graph)
        if known is None:
            log.once(("graphs", "unknown"), "warning", said("graph-captured-elsewhere"))
        elif not known.is_empty:
            known.write()

    def _place(self) -> torch.device:
        module: Any = getattr(torch, self._device)
        return torch.device(self._device, module.current_device())


def _nothing(*ignored: Any) -> None:
    """Where nothing follows."""


def _around(
    before: Callable[[Any], Any], after: Callable[[Any, Any, BaseException | None], None]
) -> Callable[[Callable[..., Any]], Entrance]:
    """Makes what calls a method of a graph, and our own work before and after it."""

    def make(original: Callable[..., Any]) -> Entrance:
        def begin(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Plan:
            return original, args, kwargs, (args[0] if args else None, attempt(before, args[0]) if args else None)

        def end(token: Any, result: Any, error: BaseException | None) -> None:
            graph, answer = token
            if graph is not None:
                attempt(after, graph, answer, error)

        entrance: Entrance = Around(begin, end)
        return entrance

    return make


def _question(device: str) -> Callable[[], bool] | None:
    """Asks the accelerator of this process whether its current stream is captured; None where there is none. Nothing
    of the device is made: a program that forks later could not use it in the child.
    """
    module: Any = getattr(torch, device, None)
    asked = getattr(module, "is_current_stream_capturing", None)
    is_used = getattr(module, "is_initialized", None)
    if asked is None or is_used is None:
        return None
    return lambda: is_used() and bool(asked())


def _accelerator() -> str:
    if hasattr(torch, "accelerator"):  # since 2.6
        device = torch.accelerator.current_accelerator()
        return "" if device is None else device.type
    if torch.version.cuda is not None or torch.version.hip is not None:
        return "cuda"
    return "npu"
