"""The recorder of MindSpore trainings in the dynamic graph: puts the parts together and attaches them between start
and stop. Nothing of it is attached at any other time.
"""

from __future__ import annotations

import functools
import os
import types
from collections.abc import Sequence
from typing import Any

import mindspore
from mindspore import nn

from msprobe import log
from msprobe.capture.array_files import ArrayKeeper, array_file_writer
from msprobe.capture.array_statistics import ArrayStatistics
from msprobe.capture.bus import Bus
from msprobe.capture.collective_records import CollectiveRecords
from msprobe.capture.events import path_of
from msprobe.capture.forks import leave_to_parents
from msprobe.capture.mindspore.calls.apis import ApiRecorder
from msprobe.capture.mindspore.calls.in_place import InPlaceWatch
from msprobe.capture.mindspore.calls.primitives import PrimitiveRecorder
from msprobe.capture.mindspore.calls.surface import surface
from msprobe.capture.mindspore.cells import CellHooks, cells_of
from msprobe.capture.mindspore.gradients.backward_graph import NodeHooks
from msprobe.capture.mindspore.gradients.parameter_gradients import CellFacts
from msprobe.capture.mindspore.gradients.relayed_gradients import RelayedGradients, RelayedParameterGradients
from msprobe.capture.mindspore.gradients.result_gradients import gradients_for
from msprobe.capture.mindspore.graphs.execution import calls_python, device
from msprobe.capture.mindspore.graphs.executor import wait_for_all
from msprobe.capture.mindspore.graphs.jit import JitRecorder
from msprobe.capture.mindspore.kernels import KernelRecorder
from msprobe.capture.mindspore.listener_support import MindSporeListenerSupport
from msprobe.capture.mindspore.mixed_precision import MixedPrecision
from msprobe.capture.mindspore.optimizers.optimizer_hooks import OptimizerRecorder
from msprobe.capture.mindspore.precision import settings_of_precision
from msprobe.capture.mindspore.program_errors import forget_missed, is_of_program, note_missed, raise_missed
from msprobe.capture.mindspore.ranks import RANKS
from msprobe.capture.mindspore.tensors import MindSporeTensors, plain_types
from msprobe.capture.optimizer_steps import OptimizerRecords
from msprobe.capture.records import Describer
from msprobe.capture.relayed import RelayedCalls, RelayedPasses
from msprobe.capture.relayed_collectives import RelayedCollectives
from msprobe.capture.relayed_steps import RelayedSteps
from msprobe.capture.session import Session
from msprobe.capture.stacks import CallStacks
from msprobe.capture.targets import Passes, Targets
from msprobe.capture.tensor_rows import TensorRows
from msprobe.capture.units import UnitRecorder
from msprobe.config.settings import Settings
from msprobe.messages import said

_MINDSPORE_FOLDER = os.path.dirname(os.path.abspath(mindspore.__file__)) + os.sep
_RECOMPUTE_FILE = os.path.join("mindspore", "common", "recompute.py")


def _is_framework(file: str) -> bool:
    return file.startswith((_MINDSPORE_FOLDER, "<frozen"))


def _is_recompute(code: types.CodeType) -> bool:
    return code.co_name in ("bprop", "backward", "unpack") and code.co_filename.endswith(_RECOMPUTE_FILE)


def _is_way_in(code: types.CodeType) -> bool:
    return False


class MindSporeRecorder:
    """Records what the settings ask for; one per process is active at a time."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        stacks = CallStacks(_is_framework, _is_recompute, _is_way_in)
        self.names = names = surface()
        self.session = session = Session(settings, names.framework, RANKS.current, stacks)
        session.world = RANKS.world
        session.precision = settings_of_precision
        session.is_of_program = is_of_program
        session.folder.file_writer = array_file_writer
        summary = "structure" if settings.task == "structure" else settings.summary_mode
        self.statistics = ArrayStatistics(summary, settings.precision == "high", settings.summary_kinds)
        self.keeper = ArrayKeeper(session)
        self.tensors = tensors = MindSporeTensors(session, self.statistics, self.keeper)
        self.describer = Describer(tensors.describe, tensors.is_tensor, plain_types(), self.statistics.text)
        self.describer.failed = functools.partial(session.fault, "a value")
        self.hooks = NodeHooks()
        self.gradients = gradients_for(session, self.hooks)
        self.units = UnitRecorder(session, self.describer, tensors, self.gradients, self._overflowed)
        self.gradients.units = self.units
        if settings.task in ("exception_dump", "overflow_check"):
            # MindSpore reports an error at some later call; an overflow check reads each result where it is made, and
            # would be notified of it in the place of the program.
            self.units.wait = wait_for_all
        self.facts = CellFacts(self.units, names)
        self.units.modules = self.facts
        level = settings.level
        self._watches_cells = level in ("L0", "mix")
        self.cells = CellHooks(self.units)
        self._optimizer_records = OptimizerRecords(
            self.units, session.with_construct, needs_forward=True, end_backward=self.gradients.close_begun
        )
        self._collective_records = CollectiveRecords(self.units)
        self.targets = Targets(self.units, self.cells, self._optimizer_records, self._collective_records)
        # The level asks for calls; and in this step they are watched, for the dump or for listeners.
        self._dumps_calls = self._watches_calls = self._watches_collectives = level in ("L1", "mix")
        self.apis = ApiRecorder(self.units, self.targets, tensors.flush)
        if self._dumps_calls:
            self.apis.find(self._find_functions)
        self.writers = InPlaceWatch(tensors)
        self.primitives = PrimitiveRecorder(self.units, tensors)
        self.kernels = KernelRecorder(self.units, tensors)
        self.optimizers = OptimizerRecorder(session, self.targets, names, tensors.flush)
        self.jit = JitRecorder(self.units, self, self._watches_calls)
        self._mixed = MixedPrecision(tensors)
        self._named: Sequence[tuple[str, nn.Cell]] = ()
        # What was given to start, while recording goes on.
        self._started: Any = None
        # Made when a static graph is to be recorded.
        self.graph: Any = None
        self.graph_kernels: Any = None
        # Made when compiled cells run in the dynamic graph; and the cells inside of them.
        self.compiled: Any = None
        self._compiled_cells: set[int] = set()
        self._relayed_gradients = relayed_gradients = RelayedGradients(session, self.gradients.asked)
        self._relayed_parameters = RelayedParameterGradients(session, names)
        support = MindSporeListenerSupport(self.units, relayed_gradients, self._relayed_parameters)
        self.bus = relayed_gradients.bus = self._relayed_parameters.bus = Bus(session, support)
        self._attached = False
        self._paused = 0
        session.has_late = tensors.has_late
        session.rows = self.statistics.rows = self._rows = TensorRows()
        self._rows.on = session.wants_rows()
        session.before_publish.append(self._finish_records)
        session.at_step_end.append(self._forget_step)
        leave_to_parents(self)

    def _find_functions(self) -> tuple[list[tuple[Any, str, str]], list[tuple[Any, str, str]]]:
        """The functions that are recorded as calls, and those whose inner calls are recorded, too."""
        settings, names = self.settings, self.names
        functions = list(names.apis(settings.api_scope == "all", settings.api_list_file))
        beside = list(names.apis_beside()) if functions and settings.api_list_file is None else []
        return functions, beside

    # ------------------------------------------------------------ life

    def start(
        self, model: Any, named: Sequence[tuple[str, nn.Cell]], rank: int | None = None, dumps: bool = True
    ) -> bool:
        """Attach what is needed for the dump, if this step and rank are wanted, and for the listeners that are on.

        ``named``: entry names and cells to watch. ``dumps`` False: this time for listeners only. True if anything is
        recorded or listened to.
        """
        session, bus = self.session, self.bus
        if not session.recording and model is not None and dumps:
            session.guard(self.prepare_compiled, model, named)
        if session.recording:
            return True
        is_dumped = dumps and session.start(rank)
        self._rows.on = session.wants_rows()
        if not session.listen(rank, bus.begin):
            return False
        self._started = model, named, rank
        self._choose_targets(is_dumped)
        self._watches_calls = (is_dumped and self._dumps_calls) or bus.wants("call")
        self._watches_collectives = self._watches_calls or bus.wants("collective")
        if is_dumped and self.compiled is not None:
            session.guard(self.compiled.record, rank)
        self._attached = True
        self._named = named
        if self._watches_collectives:
            self.apis.find(self._find_functions)
        if self._watches_calls:
            self.primitives.watch(cells_of(model, self.names) if model is not None else ())
        session.guard(self.optimizers.learn, model)
        session.guard(self.jit.attach)
        session.guard(self._mixed.attach)
        session.guard(self.gradients.asked.attach)
        self._put()
        return True

    def _choose_targets(self, is_dumped: bool) -> None:
        """Who is notified: the dumper itself, where it is alone. Passes are decided cell by cell."""
        bus, targets, units = self.bus, self.targets, self.units
        units.relayed = None
        targets.calls = units
        targets.optimizers, targets.collectives = self._optimizer_records, self._collective_records
        if bus.active:
            dumps_calls = is_dumped and self._dumps_calls
            targets.calls = units.relayed = RelayedCalls(bus, units if dumps_calls else None)
            targets.optimizers = RelayedSteps(bus, self._optimizer_records if is_dumped else None)
            targets.collectives = RelayedCollectives(bus, self._collective_records if dumps_calls else None)

    def prepare_compiled(self, model: Any, named: Sequence[tuple[str, nn.Cell]]) -> None:
        """Cells inside of compiled ones have a dump of their own, whatever step they are compiled in."""
        from msprobe.capture.mindspore.graphs.compiled_cells import CompiledCells, compiled_inside

        if not self._watches_cells or not CompiledCells.is_for(self.settings.task):
            return
        inside = compiled_inside(model, named, self.names)
        if inside and not calls_python():
            log.once(
                "compiled cells",
                "warning",
                said("compiled-cells-not-recorded", len(inside), device()),
            )
            return
        if inside and self.compiled is None:
            self.compiled = CompiledCells(self.session, self.statistics, self, watches_cells=True)
        if self.compiled is not None:
            self.compiled.start(inside)
        self._compiled_cells = {id(cell) for _, cell in inside}

    def start_graph(self, named: Sequence[tuple[str, nn.Cell]], rank: int | None = None) -> bool:
        """Record a static graph, if this step and rank are wanted: its cells, or its kernels at level L2."""
        self.prepare_graph(named)
        if self.settings.level == "L2":
            if not self.session.recording and self.session.start(rank):
                self.session.guard(self.graph_kernels.start)
            return self.session.recording
        if self.session.recording or self.session.start(rank):
            self.session.guard(self.graph.begin)
        return self.session.recording

    def prepare_graph(self, named: Sequence[tuple[str, nn.Cell]]) -> None:
        """See to it that what is compiled next can be recorded, in this step or another: it is compiled once."""
        if self.settings.level == "L2":
            if self.graph_kernels is None:
                from msprobe.capture.mindspore.graphs.graph_kernels import GraphKernels

                self.graph_kernels = GraphKernels(self.settings)
            self.session.keeps_records = False
            return
        if self.graph is None:
            from msprobe.capture.mindspore.graphs.graph_cells import GraphCells

            self.graph = GraphCells(self.session, self.statistics, self.keeper)
        self.session.guard(self.graph.watch, named)

    def take_over(self, older: MindSporeRecorder) -> None:
        """Go on in place of a recorder that was closed: with what was compiled for it, and what users registered."""
        for holder, name, key in older.apis.registered:
            self.apis.add(holder, name, key)
        self.graph, older.graph = older.graph, None
        self.graph_kernels, older.graph_kernels = older.graph_kernels, None
        self.compiled, older.compiled = older.compiled, None
        if self.compiled is not None:
            self.compiled.serve(self.session, self.statistics, self)
        if self.graph is not None:
            self.graph.serve(self.session, self.statistics, self.keeper)

    def stop(self) -> None:
        """Detach everything and bring the files up to date."""
        if self.graph is not None and self.session.recording:
            # What the graph still has to say belongs to this step.
            self._wait()
        if self.graph_kernels is not None and self.session.recording:
            self.session.guard(self.graph_kernels.stop)
        if self.compiled is not None:
            self.session.guard(self.compiled.stop)
        self.detach()
        self.session.stop()
        raise_missed()

    def _wait(self) -> None:
        try:
            wait_for_all()
        except Exception as error:
            note_missed(error)

    def detach(self) -> None:
        """Leave nothing attached."""
        if not self._attached:
            return
        self._attached = False
        if self.settings.task == "exception_dump":
            self.session.guard(self.units.fail_all)
        self._take_off()
        self._named = ()
        self._started = None
        if self.compiled is not None:
            self.compiled.detach()
        self.session.guard(self.jit.detach)
        self.session.guard(self._mixed.detach)
        self.session.guard(self.gradients.asked.detach)
        self.session.guard(self.gradients.close_open)
        self.session.guard(self._relayed_gradients.close_open)
        self.session.guard(self.hooks.remove)
        self.session.guard(self._relayed_gradients.hooks.remove)
        self._relayed_parameters.remove()
        self.bus.end()
        self.primitives.forget()
        self.optimizers.forget()

    def _put(self) -> None:
        guard = self.session.guard
        is_dumped = self.session.is_dumping
        if is_dumped and self._watches_cells and not self.bus.active:
            guard(self.cells.watch, self._named)
        elif self.bus.active:
            guard(self.cells.watch, self._named, self._target_of_cell)
        if is_dumped and self._watches_cells:
            guard(self.facts.watch, [pair for pair in self._named if id(pair[1]) not in self._compiled_cells])
        if self._watches_collectives:
            guard(self.apis.attach, self._watches_calls)
        if self._watches_calls:
            guard(self.primitives.attach)
        if (is_dumped and self._optimizer_records.is_wanted) or self.bus.wants("optimizer"):
            guard(self.optimizers.attach)
        if is_dumped and self.settings.level == "L2":
            guard(self.kernels.attach)
        if is_dumped and not self.tensors.waits:
            guard(self.writers.attach, self.apis.replaced)

    def _target_of_cell(self, name: str, cell: nn.Cell) -> Passes | None:
        """Who is notified of a cell's passes, decided when its hooks are put."""
        dumper = self.cells if self._watches_cells and self.session.is_dumping else None
        if self.bus.wants_module(name, path_of(name)):
            return RelayedPasses(self.bus, dumper)
        return dumper

    def _take_off(self) -> None:
        guard = self.session.guard
        guard(self.kernels.detach)
        guard(self.writers.detach)
        guard(self.optimizers.detach)
        guard(self.primitives.detach)
        guard(self.apis.detach)
        guard(self.facts.remove)
        guard(self.cells.remove)

    def pause(self, executor: Any) -> None:
        """Something is compiled: see :mod:`msprobe.capture.mindspore.graphs.jit`."""
        self._paused += 1
        if self._paused == 1 and self._attached:
            running = list(self.session.thread.modules)
            self._take_off()
            self.session.thread.modules.extend(running)
        # The functions of optimizers call no cells.
        owner = getattr(executor, "obj", None)
        if self._paused == 1 and not isinstance(owner, nn.Optimizer):
            self.session.guard(self._compile_cells, owner)

    def _compile_cells(self, owner: Any) -> None:
        """A function is compiled that may call cells."""
        from msprobe.capture.mindspore.graphs.compiled_cells import CompiledCells

        named = self._named if self._watches_cells and self.session.recording else ()
        if self.compiled is None and named and CompiledCells.is_for(self.settings.task) and calls_python():
            self.compiled = CompiledCells(self.session, self.statistics, self, watches_cells=False)
            self.compiled.record(self.session.rank())
        if self.compiled is not None:
            self.compiled.pause(named, owner)

    def give_up(self, error: Exception) -> bool:
        """It cannot be compiled with what reports its cells; False if there is nothing of that."""
        return self.compiled is not None and bool(self.session.guard(self.compiled.give_up, error))

    def resume(self) -> None:
        """It is compiled."""
        self._paused -= 1
        if self._paused == 0 and self.compiled is not None:
            self.session.guard(self.compiled.resume)
        if self._paused == 0 and self._attached:
            self._put()

    def next_step(self) -> None:
        """The step is over. Where listeners alone go on, they are asked anew whether they are on."""
        session, started = self.session, self._started
        goes_on = session.recording and not session.is_dumping and self.bus.has_listeners
        stays = goes_on and self.bus.stays(session.step + 1)
        if goes_on and not stays:
            self.detach()
            session.recording = False
        session.next_step()
        if self.compiled is not None:
            self.compiled.next_step()
        if stays:
            # Nothing is put or taken away between steps of a training that is watched for long.
            session.listen(None, self.bus.begin)
        elif goes_on:
            model, named, rank = started
            self.start(model, named, rank, dumps=False)

    def close(self, is_end: bool = True) -> None:
        """The program ends; or (``is_end`` False) another recorder goes on in its place."""
        if self.graph is not None and self.session.recording:
            self.session.guard(wait_for_all)
        forget_missed()
        for graph in (self.graph, self.graph_kernels) if is_end else ():
            if graph is not None:
                self.session.guard(graph.close)
        if self.compiled is not None:
            self.session.guard(self.compiled.stop)
            self.session.guard(self.compiled.close, is_end)
        self.detach()
        self.session.close(is_end)
        self.bus.end_step()
        self.bus.end_listening()

    def leave_to_parent(self) -> None:
        """After fork, in the child: nothing is recorded here. Hooks that MindSpore keeps stay, and do nothing: its
        threads are not in the child, and taking a hook away would wait for them.
        """
        if self._attached:
            self._attached = False
            for part in (
                self.writers,
                self.optimizers,
                self.primitives,
                self.apis,
                self.jit,
                self._mixed,
                self.gradients.asked,
            ):
                self.session.guard(part.detach)
        self.session.leave_to_parent()
        if self.compiled is not None:
            self.compiled.session.leave_to_parent()

    # ------------------------------------------------------------ questions of the core

    def _overflowed(self, entry: str, tree: dict[str, Any]) -> bool:
        return self.keeper.overflowed(entry, tree)

    def _finish_records(self) -> None:
        self.gradients.close_open()
        self.facts.close_open()
        self.tensors.flush()

    def _forget_step(self) -> None:
        self._rows.clear()
        self.bus.end_step()
        self._relayed_gradients.forget_step()
        self._relayed_parameters.begin_step()
        self.gradients.forget_step()
        self.facts.begin_step()
        self.keeper.overflowed.begin_step()
        if self.graph is not None:
            self.graph.begin_step()
        if self.graph_kernels is not None:
            self.graph_kernels.step()
