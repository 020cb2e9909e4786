"""Cells inside of a cell whose ``construct`` is under ``mindspore.jit``, in a dynamic-graph program (L0 and mix).

They run in a compiled graph, of which hooks see nothing. So they are recorded as those of a static graph are
(``graph_cells``), in a dump of their own: ``dump_path/graph/step{n}``; what runs step by
step goes to ``dump_path/pynative/step{n}``. Without such a cell there is one dump, in ``dump_path``.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from mindspore import nn

from msprobe import log
from msprobe.capture.array_files import ArrayKeeper, array_file_writer
from msprobe.capture.array_statistics import ArrayStatistics
from msprobe.capture.mindspore.calls.surface import MINDSPORE, Surface
from msprobe.capture.mindspore.graphs.executor import jit_executor_class, wait_for_all
from msprobe.capture.mindspore.graphs.graph_cells import GraphCells
from msprobe.capture.mindspore.graphs.jit import Pausable, compiled_apart
from msprobe.capture.mindspore.patches import Replacement
from msprobe.capture.mindspore.tensors import host_array
from msprobe.capture.session import Session
from msprobe.messages import said
from msprobe.store import layout

_TASKS = ("statistics", "tensor", "structure")


def compiled_inside(model: Any, named: Sequence[tuple[str, nn.Cell]], names: Surface) -> list[tuple[str, nn.Cell]]:
    """Of the named cells those that run inside of a compiled one."""
    inside: set[int] = set()
    for root in model if isinstance(model, (list, tuple)) else [model]:
        for _, cell in names.modules_of(root):
            if _is_compiled(cell):
                inside.update(id(inner) for path, inner in names.modules_of(cell) if path)
    return [(name, cell) for name, cell in named if id(cell) in inside]


def _is_compiled(cell: Any) -> bool:
    # What is compiled from bytecode keeps its calls; it has no name of a graph.
    construct = getattr(cell, "construct", None)
    return hasattr(construct, "__wrapped_by_jit__") and hasattr(construct, "__jit_graph_name__")


def _session_beside(main: Session) -> Session:
    """The session of the second dump."""
    settings = main.settings
    # Entries are chosen among what runs step by step.
    folder = os.path.join(settings.dump_path, layout.COMPILED)
    chosen = replace(settings, dump_path=folder, level="L0", scope=(), api_list=())
    session = Session(chosen, main.framework, main.rank, main.stacks)
    session.world = main.world
    session.folder.file_writer = array_file_writer
    return session


class CompiledCells:
    """The second dump of a recording, and the cells that it is of.

    ``watches_cells``: the model has compiled cells; the first dump has a folder of its own, too. Otherwise a function
    under ``jit`` was compiled while recording, which may call cells: the second dump is there when one reports itself.
    """

    def __init__(self, main: Session, statistics: ArrayStatistics, recorder: Pausable, watches_cells: bool) -> None:
        """``main``: the session of the first dump."""
        self.watches_cells = watches_cells
        self._handles: list[Any] = []
        self._names: list[str] = []
        # The parameters of cells that run inside of compiled ones.
        self._inside: set[int] = set()
        self._rank: int | None = None
        self._is_known = True
        self._release: Callable[[], None] = lambda: None
        self.main = main
        self.session = _session_beside(main)
        self.graph = GraphCells(self.session, statistics, ArrayKeeper(self.session))
        self._begin(recorder)

    @staticmethod
    def is_for(task: str) -> bool:
        """True for the tasks that can be done with compiled cells."""
        return task in _TASKS

    def serve(self, main: Session, statistics: ArrayStatistics, recorder: Pausable) -> None:
        """Go on for this recorder: its settings and its steps count from here on."""
        self.main = main
        outcome = self.session.outcome
        self.session = _session_beside(main)
        self.session.outcome = outcome
        self.graph.serve(self.session, statistics, ArrayKeeper(self.session))
        self._begin(recorder)

    def _begin(self, recorder: Pausable) -> None:
        self.session.at_step_end.append(self.graph.begin_step)
        self.graph.wake = self._wake
        self.graph.reports_missing = self.watches_cells
        if not self.watches_cells:
            return
        main, settings = self.main, self.main.settings
        main.settings = replace(main.settings, dump_path=os.path.join(settings.dump_path, layout.STEP_BY_STEP))
        log.once(
            "two dumps",
            "info",
            said("cells-in-two-dumps", main.settings.dump_path, self.session.settings.dump_path),
        )
        if settings.scope or settings.api_list:
            log.once("two dumps, filters", "warning", said("filters-and-compiled-cells"))
        self._watch_compiler(recorder)

    def _watch_compiler(self, recorder: Pausable) -> None:
        """Between steps, too: each function is compiled once."""
        executor: Any = jit_executor_class()
        original: Callable[..., Any] | None = vars(executor).get("compile") if executor is not None else None
        if original is not None:
            replacement = Replacement(executor, "compile", compiled_apart(recorder, original))
            replacement.put()
            self._release = replacement.take_off

    # ------------------------------------------------------------ life

    def start(self, inside: Sequence[tuple[str, nn.Cell]]) -> None:
        """A start of the recorder, in a step that is wanted or not. ``inside``: cells inside of compiled ones."""
        self.graph.know(inside)
        self._names = [name for name, _ in inside]
        self._inside = {id(parameter) for _, cell in inside for _, parameter in MINDSPORE.own_parameters(cell)}

    def record(self, rank: int | None) -> None:
        """The recorder records this step."""
        self._rank = rank
        if self.watches_cells or self.graph.has_reported:
            self._is_known = True
            self.graph.begin()
        self._watch_parameters()

    def _wake(self) -> bool:
        """A cell reports itself; True if that is recorded."""
        with self.main.lock:
            if self.main.recording and not self.session.recording:
                if not self.session.records_in_step:
                    self.session.number_steps_from(self.main.step)
                    self.session.first_step = self.main.first_step
                self.session.start(self._rank)
                if not self.watches_cells:
                    log.once(
                        "compiled functions",
                        "info",
                        said("cells-in-compiled-functions", self.session.settings.dump_path),
                    )
        return self.session.recording

    def pause(self, named: Sequence[tuple[str, nn.Cell]], owner: Any) -> None:
        """Something is compiled: see to it that its cells report themselves, ``named`` and those known already.

        ``owner``: the cell whose own method it is, which runs step by step.
        """
        self._forget_parameters()
        self._is_known &= not self.graph.know(named, certain=False)
        self.graph.put(owner)
        self.graph.put_hooks()

    def give_up(self, error: Exception) -> bool:
        """It could not be compiled; False if what reports cells had no part in it."""
        return self.graph.give_up(error)

    def resume(self) -> None:
        """It is compiled."""
        self.graph.take_off()
        if self.main.recording:
            if not self._is_known:
                self._is_known = True
                self.graph.begin()
            self._watch_parameters()

    def stop(self) -> None:
        """Bring the files up to date."""
        self.session.guard(wait_for_all)
        if self.watches_cells and not self.graph.has_reported:
            log.once(
                "compiled before",
                "warning",
                said("compiled-cells-without-records", ", ".join(self._names[:3])),
            )
        if self.graph.has_reported:
            # A cell that has not run step by step has run in what was compiled, or not at all.
            for name in self.graph.rounded:
                if name not in self.main.counters:
                    self.graph.warn_of_rounded(name)
        self.detach()
        self.session.stop()

    def detach(self) -> None:
        """Leave nothing attached to the model."""
        self.session.recording = False
        self._forget_parameters()

    def next_step(self) -> None:
        """The step is over."""
        self.session.next_step()

    def close(self, is_end: bool) -> None:
        """The program ends, or another recorder goes on."""
        self.detach()
        self._release()
        self.session.close(is_end and self.graph.has_reported)
        if is_end:
            self.graph.close()

    # ------------------------------------------------------------ parameters

    def _watch_parameters(self) -> None:
        """A compiled cell is one node of the dynamic graph: gradients of parameters come as everywhere there."""
        if self._handles or not self.session.settings.backward:
            return
        for number, parameter in self.graph.parameters():
            if id(parameter) in self._inside:
                self._handles.append(parameter.register_hook(self._hook(number)))

    def _forget_parameters(self) -> None:
        handles, self._handles = self._handles, []
        for handle in handles:
            self.session.guard(handle.remove)

    def _hook(self, number: int) -> Callable[[Any], None]:
        # MindSpore 2.7 takes functions as hooks, and no other objects.
        def arrived(gradient: Any) -> None:
            if self.session.recording:
                self.session.guard(self._take, number, gradient)

        return arrived

    def _take(self, number: int, gradient: Any) -> None:
        self.graph.take_gradient(number, str(gradient.dtype), host_array(gradient))
