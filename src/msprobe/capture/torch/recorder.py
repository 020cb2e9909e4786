"""The recorder of PyTorch trainings: puts the parts together and attaches them between start and stop.

Attached while recording: the function mode of the thread that called start, hooks on the model's modules,
hooks on graph nodes, and a few replaced attributes (:mod:`msprobe.capture.torch.patches`). Detached at stop:
everything but the hooks on graph nodes of calls that were recorded, whose backward may still come in this
step; ``step`` takes those away.
"""

from __future__ import annotations

import functools
import os
import types
import weakref
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch import nn

from msprobe.capture.bus import Bus
from msprobe.capture.collective_records import CollectiveRecords
from msprobe.capture.events import path_of
from msprobe.capture.forks import leave_to_parents
from msprobe.capture.identity import IdentitySet
from msprobe.capture.optimizer_steps import OptimizerRecords
from msprobe.capture.ranks import Ranks
from msprobe.capture.records import Describer
from msprobe.capture.relayed import RelayedCalls, RelayedPasses
from msprobe.capture.relayed_collectives import RelayedCollectives
from msprobe.capture.relayed_steps import RelayedSteps
from msprobe.capture.session import Session
from msprobe.capture.stacks import CallStacks
from msprobe.capture.targets import Passes, Targets
from msprobe.capture.torch import private
from msprobe.capture.torch.calls.call_records import CallRecorder
from msprobe.capture.torch.calls.function_mode import CallMode, enter_mode, remove_mode
from msprobe.capture.torch.compiled.compiled_regions import CompiledRegions
from msprobe.capture.torch.compiled.graph_makers import GraphMakers
from msprobe.capture.torch.context import Context, GraphHooks
from msprobe.capture.torch.gradients.graph_nodes import NodeHooks
from msprobe.capture.torch.gradients.relayed_gradients import RelayedGradients, RelayedParameterGradients
from msprobe.capture.torch.graphs.captured import CapturedGraphs
from msprobe.capture.torch.jitter import JitteredKernels
from msprobe.capture.torch.listener_support import TorchListenerSupport
from msprobe.capture.torch.modules.models import Models, roots_besides
from msprobe.capture.torch.modules.module_hooks import ModuleHooks, TargetOf
from msprobe.capture.torch.modules.module_records import ModuleRecorder
from msprobe.capture.torch.parts import NEEDS_OF_KIND, Parts, needs_of, possible
from msprobe.capture.torch.precision import settings_of_precision
from msprobe.capture.torch.tensors import values
from msprobe.capture.torch.tensors.statistics import TensorStatistics
from msprobe.capture.torch.tensors.tensor_values import TensorKeeper
from msprobe.capture.torch.threads import RecordedThread
from msprobe.capture.torch.watched_functions import is_entrance
from msprobe.config.settings import Settings
from msprobe.guard import attempt

_TORCH_FOLDER = os.path.dirname(os.path.abspath(torch.__file__)) + os.sep
_CHECKPOINT_FILE = os.path.join("torch", "utils", "checkpoint.py")


def _communication() -> tuple[int, int] | None:
    distributed = torch.distributed
    if not (distributed.is_available() and distributed.is_initialized()):
        return None
    return int(distributed.get_rank()), int(distributed.get_world_size())


RANKS = Ranks(_communication, "RANK", ("WORLD_SIZE",))


def _is_framework(file: str) -> bool:
    return file.startswith((_TORCH_FOLDER, "<frozen"))


def _is_recompute(code: types.CodeType) -> bool:
    if not code.co_filename.endswith(_CHECKPOINT_FILE):
        return False
    return code.co_name in ("recompute_fn", "backward", "unpack_hook")


def _is_way_in(code: types.CodeType) -> bool:
    # In the place of a watched function; between a Python function of torch and the mode: how the mode is called, not
    # who calls.
    if is_entrance(code):
        return True
    return code.co_name == "handle_torch_function" and code.co_filename.endswith("overrides.py")


class TorchRecorder:
    """Records what the settings ask for; one per process is active at a time."""

    def __init__(self, settings: Settings, dumps: bool = True) -> None:
        """``dumps`` False: nothing is dumped, there are listeners only."""
        self.settings = settings
        self.dumps = dumps
        stacks = CallStacks(_is_framework, _is_recompute, _is_way_in)
        self.session = session = Session(settings, "pytorch", RANKS.current, stacks)
        session.world = RANKS.world
        session.precision = functools.partial(settings_of_precision, settings.jitter)
        self.statistics = TensorStatistics(
            "structure" if settings.task == "structure" else settings.summary_mode,
            settings.precision,
            saves=settings.task == "tensor",
            # Nothing shows there that a tensor is asked for its address.
            exact=settings.level == "L2",
            names=settings.summary_kinds,
        )
        self.hooks = NodeHooks()
        self.describer = Describer(self.statistics.describe, _is_tensor, self._types(), self.statistics.text)
        self.describer.failed = functools.partial(session.fault, "a value")
        self.thread = RecordedThread()
        self.keeper = TensorKeeper(session, self.statistics)
        self.calls = CallRecorder(session, self.describer, self.statistics, self.keeper, self.hooks)
        self.modules = ModuleRecorder(self.calls)
        self.level: str = settings.level if dumps and not settings.keeps_none else "none"
        self._relayed_gradients = relayed_gradients = RelayedGradients(session)
        self.relayed_parameters = RelayedParameterGradients(session, relayed_gradients.hooks)
        forget = self.statistics.invalidate
        self.bus = Bus(session, TorchListenerSupport(relayed_gradients, self.relayed_parameters, forget))
        relayed_gradients.bus = self.relayed_parameters.bus = self.bus
        self.module_hooks = ModuleHooks(session)
        self._optimizers = OptimizerRecords(
            self.calls, in_hierarchy=settings.level == "mix", forget=self.statistics.invalidate
        )
        self._collectives = CollectiveRecords(self.calls)
        self.targets = Targets(self.calls, self.modules, self._optimizers, self._collectives)
        self.models = Models()
        # What was given to start, while recording goes on; the models are known to `models`.
        self._started: _Started | None = None
        # The modules whose passes are dumped; None: those of none.
        self._dumped: IdentitySet | None = None
        context = Context(self.level, self.calls, self.targets, self.bus, self.models, self.thread)
        self.parts = parts = Parts(context)
        parameters = self.modules.parameters
        self._graph = graph = GraphHooks((self.hooks, relayed_gradients.hooks), (parameters, self.relayed_parameters))
        self._captured = captured = CapturedGraphs(graph, session, self.statistics, (self.calls, self.modules))
        self.calls.beginning = captured.look if captured.possible else None
        self._attached = False
        session.keeps_records = dumps
        session.has_late = self.statistics.has_late
        session.late.numbers = self.statistics.late
        session.rows = self.statistics.rows
        self._choose_rows()
        session.before_publish.append(self._finish_records)
        session.at_step_end.append(self._forget_step)
        for ability in ("memory", "threads of autograd", "transforms"):
            private.has(ability)  # said here if not; what needs them has another way
        parts.make(possible(needs_of(self.level)))
        self.regions = CompiledRegions(context, parts, self.module_hooks, graph, parameters, self.stop)
        graph_makers = GraphMakers(self.regions.step_aside, self.regions.come_back)
        parts.last += [self.regions, graph_makers]
        if captured.possible:
            parts.last.append(captured)
        if settings.jitter:
            parts.last.append(JitteredKernels())
        leave_to_parents(self)

    def _choose_rows(self) -> None:
        """Whether tensors get rows in this step."""
        if self.statistics.rows is not None:
            self.statistics.rows.on = self.dumps and self.session.wants_rows()

    def _types(self) -> dict[type, Callable[[Any], Any]]:
        statistics = self.statistics
        return {
            **values.plain_types(),
            torch.Tensor: lambda t: statistics.describe(t, False),
            nn.Parameter: statistics.describe,
        }

    # ------------------------------------------------------------ life

    @property
    def mode(self) -> CallMode | None:
        """What sees the calls of the thread that records; None as long as nobody wanted any."""
        return self.parts.mode

    def start(
        self, named_modules: Sequence[tuple[str, nn.Module]], rank: int | None = None, dumps: bool = True
    ) -> bool:
        """Attach what is needed for the dump, if this step and rank are wanted, and for the listeners that are on.

        ``named_modules``: entry names and modules to watch. ``dumps`` False: this time for listeners only. True if
        anything is recorded or listened to.
        """
        try:
            return self._start(named_modules, rank, dumps)
        except Exception as error:
            self.session.fault("a step", error)
            self.detach()
            self.session.recording = False
            return False

    def _start(self, named_modules: Sequence[tuple[str, nn.Module]], rank: int | None, dumps: bool) -> bool:
        session, bus = self.session, self.bus
        if session.recording:
            return True
        self._dumped = None
        unable = private.why_nothing_is_recorded()
        if unable:
            session.outcome.reason = unable
        is_dumped = not unable and dumps and self.dumps and session.start(rank)
        if unable or not session.listen(rank, bus.begin):
            self.models.forget()
            return False
        self._choose_rows()
        self._attached = True
        self._started = _Started([(name, weakref.ref(module)) for name, module in named_modules], rank, dumps)
        self.thread.begin()
        needs = needs_of(self.level) if is_dumped else frozenset()
        for kind, parts in NEEDS_OF_KIND.items():
            if bus.wants(kind):
                needs |= parts
        needs = possible(needs)
        self.parts.make(needs)
        outside = session.guard(self.regions.outside, self.models.given, named_modules)
        named_modules = named_modules if outside is None else outside
        if is_dumped:
            session.guard(self.calls.own.watch, self.models.given, self.models.leads, self.level == "L2")
        if is_dumped and self.settings.keeps_none:
            session.begin_files()
        self._choose_targets(is_dumped)
        watches = is_dumped and self.level in ("L0", "mix")
        if (watches or bus.active) and private.has("modules"):
            self._dumped = IdentitySet(module for _, module in named_modules) if watches else None
            if bus.active:
                roots = roots_besides(self.models.given, named_modules)
                bus.roots = frozenset(name for name, _ in roots)
                named_modules = [*roots, *named_modules]
            session.guard(self.module_hooks.watch, named_modules, self._target_of())
        self.parts.attach(needs)
        if self.mode is not None and "call" in needs:
            # Stopped in another thread, it is still in this one.
            self._leave_mode(self.mode)
            enter_mode(self.mode)
        session.guard(self.regions.begun)
        return True

    def _choose_targets(self, is_dumped: bool) -> None:
        """Who is notified, also of passes that no hook reports: the dumper itself, where it is alone."""
        bus, calls, targets = self.bus, self.calls, self.targets
        relayed = None
        targets.calls, targets.passes = calls, self.modules
        targets.optimizers, targets.collectives = self._optimizers, self._collectives
        if bus.active:
            dumps_calls = is_dumped and self.level in ("L1", "mix")
            relayed = targets.calls = RelayedCalls(bus, calls if dumps_calls else None)
            targets.passes = RelayedPasses(bus, self.modules if is_dumped else None)
            targets.optimizers = RelayedSteps(bus, self._optimizers if is_dumped else None)
            targets.collectives = RelayedCollectives(bus, self._collectives if dumps_calls else None)
        if self.mode is not None:
            self.mode.serve(targets.calls, relayed)

    def watch_more(self, named_modules: Sequence[tuple[str, nn.Module]]) -> None:
        """A model joins those that are watched."""
        if self._dumped is not None:
            self._dumped.update(module for _, module in named_modules)
        if (self._dumped is not None or self.bus.active) and private.has("modules"):
            self.module_hooks.watch_more(named_modules)

    def _target_of(self) -> TargetOf:
        """Who is notified of a module's passes, decided once for each."""
        bus, modules = self.bus, self.modules
        dumped = IdentitySet() if self._dumped is None else self._dumped
        if not bus.active:
            return lambda name, module: modules
        with_dump, without = RelayedPasses(bus, modules), RelayedPasses(bus, None)

        def target(name: str, module: nn.Module) -> Passes | None:
            if bus.wants_module(name, path_of(name)):
                return with_dump if module in dumped else without
            return modules if module in dumped else None

        return target

    def stop(self) -> None:
        """Detach everything and bring the files up to date."""
        attempt(self.detach)
        attempt(self.session.stop)

    @staticmethod
    def _leave_mode(mode: CallMode) -> None:
        while remove_mode(mode):
            pass

    def detach(self) -> None:
        """Leave nothing attached but the hooks on graph nodes whose backward may still come in this step."""
        if not self._attached:
            return
        self._attached = False
        session = self.session
        self._started = None
        if self.mode is not None:
            session.guard(self._leave_mode, self.mode)
        for work in (
            self.parts.detach,
            self.module_hooks.remove,
            # The user may be done with the model, and nothing but the model itself says when its parameters are gone:
            # the nodes on which the hooks were keep them alive.
            self.modules.parameters.remove,
            self.relayed_parameters.remove,
            self.models.forget,
            self.calls.own.forget,
            self._graph.prune,
            self.bus.end,
        ):
            session.guard(work)

    def next_step(self) -> None:
        """The step is over. Where recording goes on, listeners are asked anew whether they are on."""
        session = self.session
        goes_on = session.recording and (self.bus.has_listeners or not session.is_dumping)
        if goes_on and not (self.dumps or session.is_dumping) and self.bus.stays(session.step + 1):
            # Nothing is put or taken away between steps of a training that is watched for long.
            session.next_step()
            session.listen(None, self.bus.begin)
            return
        started, models, leads = self._started, self.models.given, self.models.leads
        if goes_on:
            self.detach()
            session.recording = False
        session.next_step()
        if goes_on and started is not None:
            self.models.give(models, leads)
            modules = [(name, reference()) for name, reference in started.named]
            self.start([(name, module) for name, module in modules if module is not None], started.rank, started.dumps)

    def close(self, is_end: bool = True) -> None:
        """The program ends, or (``is_end`` False) another recorder takes over."""
        attempt(self.detach)
        attempt(self.session.close, is_end)
        closers = self._captured.forget, self.statistics.close
        for work in (self.bus.end_step, self.bus.end_listening, self._graph.remove, *closers):
            attempt(work)

    def leave_to_parent(self) -> None:
        """After fork, in the child: nothing is recorded here."""
        attempt(self.detach)
        attempt(self.session.leave_to_parent)

    # ------------------------------------------------------------ session's questions

    def _finish_records(self) -> None:
        for work in (
            self._captured.leave,
            self.calls.gradients.close_open,
            self.modules.close_open,
            self.modules.parameters.close_open,
            self._relayed_gradients.close_open,
        ):
            attempt(work)
        if self.session.has_late():
            self.statistics.flush()

    def _forget_step(self) -> None:
        for work in (
            self.bus.end_step,
            self.relayed_parameters.begin_step,
            self._relayed_gradients.open.clear,
            self._graph.remove,
            self.statistics.reset,
            self.keeper.begin_step,
            self.modules.begin_step,
            self.calls.gradients.open_watches.clear,
        ):
            attempt(work)


class _Started(NamedTuple):
    """What a step was started with. The modules are not kept alive."""

    named: list[tuple[str, weakref.ref[nn.Module]]]
    rank: int | None
    dumps: bool


def _is_tensor(value: Any) -> bool:
    return isinstance(value, torch.Tensor)
