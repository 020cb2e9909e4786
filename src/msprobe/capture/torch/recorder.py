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
from collections.abc import Callable, Collection, Sequence
from typing import Any

import torch
from torch import nn

from msprobe import log
from msprobe.capture.bus import Bus
from msprobe.capture.events import path_of
from msprobe.capture.heard import HeardCalls, HeardPasses, Passes
from msprobe.capture.records import Describer
from msprobe.capture.session import Session
from msprobe.capture.stacks import CallStacks
from msprobe.capture.torch import private, values
from msprobe.capture.torch.calls import CallRecorder
from msprobe.capture.torch.function_mode import CallMode, enter_mode, remove_mode
from msprobe.capture.torch.gradients import NodeHooks
from msprobe.capture.torch.heard_gradients import HeardGradients, HeardParameterGradients
from msprobe.capture.torch.module_hooks import ModuleHooks, TargetOf
from msprobe.capture.torch.modules import ModuleRecorder
from msprobe.capture.torch.names import ApiNames
from msprobe.capture.torch.parts import NEEDS_OF_KIND, Parts, needs_of, possible
from msprobe.capture.torch.precision import settings_of_precision
from msprobe.capture.torch.statistics import TensorStatistics
from msprobe.capture.torch.surroundings import TorchSurroundings
from msprobe.capture.torch.tensor_values import TensorKeeper
from msprobe.capture.torch.threads import RecordedThread
from msprobe.config.settings import Settings

_TORCH_FOLDER = os.path.dirname(os.path.abspath(torch.__file__)) + os.sep
_CHECKPOINT_FILE = os.path.join("torch", "utils", "checkpoint.py")


def current_rank() -> int | None:
    """The rank of this process: of the process group, else of the launcher's environment; None for a single
    process.
    """
    distributed = torch.distributed
    if distributed.is_available() and distributed.is_initialized():
        return int(distributed.get_rank())
    text = os.environ.get("RANK", "")
    if text.isdecimal() and os.environ.get("WORLD_SIZE", "1") not in ("", "1"):
        return int(text)
    return None


def _world_size() -> int:
    """How many ranks there are, as far as this process can know; see :func:`current_rank`."""
    distributed = torch.distributed
    if distributed.is_available() and distributed.is_initialized():
        return int(distributed.get_world_size())
    text = os.environ.get("WORLD_SIZE", "")
    return int(text) if text.isdecimal() and current_rank() is not None else 1


def _is_framework(file: str) -> bool:
    return file.startswith((_TORCH_FOLDER, "<frozen"))


def _is_recompute(code: types.CodeType) -> bool:
    if not code.co_filename.endswith(_CHECKPOINT_FILE):
        return False
    return code.co_name in ("recompute_fn", "backward", "unpack_hook")


def _is_way_in(code: types.CodeType) -> bool:
    # Between a Python function of torch and the mode: how the mode is called, not who calls.
    return code.co_name == "handle_torch_function" and code.co_filename.endswith("overrides.py")


_live: weakref.WeakSet[TorchRecorder] = weakref.WeakSet()


class TorchRecorder:
    """Records what the settings ask for; one per process is active at a time."""

    def __init__(self, settings: Settings, dumps: bool = True) -> None:
        """``dumps`` False: nothing is dumped, there are listeners only."""
        self.settings = settings
        self.dumps = dumps
        stacks = CallStacks(_is_framework, _is_recompute, _is_way_in)
        self.session = session = Session(settings, "pytorch", current_rank, stacks)
        session.world = _world_size
        session.precision = settings_of_precision
        self.statistics = TensorStatistics(
            "structure" if settings.task == "structure" else settings.summary_mode,
            settings.precision,
            saves=settings.task == "tensor",
            # Nothing tells there that a tensor is asked for its address.
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
        self.level: str = settings.level if dumps else "none"
        self._heard_gradients = heard_gradients = HeardGradients(session)
        self.heard_parameters = HeardParameterGradients(session, heard_gradients.hooks)
        self.bus = Bus(session, TorchSurroundings(heard_gradients, self.heard_parameters))
        heard_gradients.bus = self.heard_parameters.bus = self.bus
        self.module_hooks = ModuleHooks(session)
        # Who is told of passes that no hook tells of, as those of compiled modules.
        self.passes: Passes = self.modules
        # What was given to start: a Module, several, or None. Let go of when recording stops.
        self.models: Any = None
        # What the names of the parameters of each model begin with, if it is not the model's index.
        self.leads: list[str] | None = None
        # What was given to start, while recording goes on.
        self._started: Any = None
        self.parts = Parts(self)
        self._mode: CallMode | None = None
        self._attached = False
        session.keeps_records = dumps
        session.has_late = self.statistics.has_late
        session.before_publish.append(self._finish_records)
        session.at_step_end.append(self._forget_step)
        for ability in ("memory", "threads of autograd", "transforms"):
            private.has(ability)  # said here if not; what needs them has another way
        from msprobe.capture.torch.compiled import CompiledRegions

        self.parts.make(possible(needs_of(self.level)))
        self.regions = CompiledRegions(self)
        self.parts.last.append(self.regions)
        _live.add(self)

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
        return self._mode

    @property
    def all_node_hooks(self) -> tuple[NodeHooks, NodeHooks]:
        """The hooks on nodes of the graph: for the dump, and for listeners."""
        return self.hooks, self._heard_gradients.hooks

    @functools.cached_property
    def names(self) -> ApiNames:
        """Which calls are recorded, and under which names."""
        settings = self.settings
        return ApiNames(settings.api_scope != "listed" and settings.risk_level is None, settings.api_list_file)

    def make_mode(self) -> CallMode:
        """The mode that sees calls, made when somebody wants them."""
        if self._mode is None:
            self._mode = CallMode(self.calls, self.names)
        return self._mode

    def start(
        self, named_modules: Sequence[tuple[str, nn.Module]], rank: int | None = None, dumps: bool = True
    ) -> bool:
        """Attach what is needed for the dump, if this step and rank are wanted, and for the listeners that are on.

        ``named_modules``: entry names and modules to watch. ``dumps`` False: this time for listeners only. True if
        anything is recorded or listened to.
        """
        session, bus = self.session, self.bus
        if session.recording:
            return True
        unable = private.why_nothing_is_recorded()
        if unable:
            session.outcome.reason = unable
        is_dumped = not unable and dumps and self.dumps and session.start(rank)
        if unable or not session.listen(rank, bus.begin):
            self.models = None
            return False
        self._attached = True
        self._started = (named_modules, self.models, self.leads, rank, dumps)
        self.thread.begin()
        needs = needs_of(self.level) if is_dumped else frozenset()
        for kind, parts in NEEDS_OF_KIND.items():
            if bus.wants(kind):
                needs |= parts
        needs = possible(needs)
        self.parts.make(needs)
        outside = session.guard(self.regions.outside, self.models, named_modules)
        named_modules = named_modules if outside is None else outside
        if is_dumped:
            session.guard(self.calls.own.watch, self.models, self.leads)
        self._choose_targets(is_dumped)
        watches = is_dumped and self.level in ("L0", "mix")
        if (watches or bus.active) and private.has("modules"):
            dumped = frozenset(id(module) for _, module in named_modules) if watches else frozenset()
            if bus.active:
                roots = roots_besides(self.models, named_modules)
                bus.roots = frozenset(name for name, _ in roots)
                named_modules = [*roots, *named_modules]
            session.guard(self.module_hooks.watch, named_modules, self._target_of(dumped))
        self.parts.attach(needs)
        if self._mode is not None and "call" in needs:
            # Stopped in another thread, it is still in this one.
            self._leave_mode(self._mode)
            enter_mode(self._mode)
        session.guard(self.regions.begun)
        return True

    def _choose_targets(self, is_dumped: bool) -> None:
        """Who is told of calls, and of passes that no hook tells of: the dumper itself, where it is alone."""
        bus, calls = self.bus, self.calls
        heard = None
        calls.target, self.passes = calls, self.modules
        if bus.active:
            heard = calls.target = HeardCalls(bus, calls if is_dumped and self.level in ("L1", "mix") else None)
            self.passes = HeardPasses(bus, self.modules if is_dumped else None)
        if self._mode is not None:
            self._mode.serve(calls.target, heard)

    def _target_of(self, dumped: Collection[int]) -> TargetOf:
        """Who is told of a module's passes, decided once for each. ``dumped``: the ids of modules that are dumped."""
        bus, modules = self.bus, self.modules
        if not bus.active:
            return lambda name, module: modules
        with_dump, without = HeardPasses(bus, modules), HeardPasses(bus, None)

        def target(name: str, module: nn.Module) -> Passes | None:
            if bus.wants_module(name, path_of(name)):
                return with_dump if id(module) in dumped else without
            return modules if id(module) in dumped else None

        return target

    def stop(self) -> None:
        """Detach everything and bring the files up to date."""
        self.detach()
        self.session.stop()

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
        if self._mode is not None:
            self._leave_mode(self._mode)
        self.parts.detach()
        session.guard(self.module_hooks.remove)
        # The user may be done with the model, and nothing but the model itself tells when its parameters are gone:
        # the nodes on which the hooks were keep them alive.
        session.guard(self.module_hooks.forget)
        session.guard(self.modules.parameters.forget)
        session.guard(self.heard_parameters.forget)
        self.models = self._started = None
        self.calls.own.forget()
        for hooks in self.all_node_hooks:
            hooks.prune()
        self.bus.end()

    def next_step(self) -> None:
        """The step is over. Where recording goes on, listeners are asked anew whether they are on."""
        session = self.session
        goes_on = session.recording and (self.bus.has_listeners or not session.is_dumping)
        started = self._started
        if goes_on:
            self.detach()
            session.recording = False
        session.next_step()
        if goes_on:
            named, self.models, self.leads, rank, dumps = started
            self.start(named, rank, dumps)

    def close(self, is_end: bool = True) -> None:
        """The program ends, or (``is_end`` False) another recorder takes over."""
        self.detach()
        self.session.close(is_end)
        self.bus.end_step()
        for hooks in self.all_node_hooks:
            hooks.remove()
        self.statistics.close()

    def leave_to_parent(self) -> None:
        """After fork, in the child: nothing is recorded here."""
        self.detach()
        self.session.leave_to_parent()

    # ------------------------------------------------------------ session's questions

    def _finish_records(self) -> None:
        self.calls.gradients.close_open()
        self.modules.close_open()
        self.modules.parameters.close_open()
        self._heard_gradients.close_open()
        if self.session.has_late():
            self.statistics.flush()

    def _forget_step(self) -> None:
        self.bus.end_step()
        self.heard_parameters.begin_step()
        self._heard_gradients.open.clear()
        for hooks in self.all_node_hooks:
            hooks.remove()
        self.statistics.reset()
        self.keeper.begin_step()
        self.modules.begin_step()
        self.calls.gradients.open_watches.clear()


def _is_tensor(value: Any) -> bool:
    return isinstance(value, torch.Tensor)


def _after_fork() -> None:
    for recorder in list(_live):
        recorder.leave_to_parent()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


def name_modules(model: Any, record_root: bool) -> list[tuple[str, nn.Module]]:
    """The modules to watch and their entry names: ``Module.{[index.]path}.{Class}``."""
    several = isinstance(model, (list, tuple))
    named: list[tuple[str, nn.Module]] = []
    for index, root in enumerate(model if several else [model]):
        lead = f"{index}." if several else ""
        children = _modules_inside(root)
        if record_root or not children:
            if not children and not record_root:
                log.once(
                    ("leaf", type(root).__name__),
                    "warning",
                    f"The model is a single {type(root).__name__} without modules inside; it is recorded itself.",
                )
            named.append((f"Module.{lead}root.{type(root).__name__}", root))
        named += [(f"Module.{lead}{path}.{type(module).__name__}", module) for path, module in children]
    return named


def roots_besides(model: Any, named: Sequence[tuple[str, nn.Module]]) -> list[tuple[str, nn.Module]]:
    """The models themselves and their names, as far as they are not among ``named``: listeners may want them."""
    several = isinstance(model, (list, tuple))
    known = {id(module) for _, module in named}
    return [
        (f"Module.{f'{index}.' if several else ''}root.{type(root).__name__}", root)
        for index, root in enumerate(model if several else [model])
        if isinstance(root, nn.Module) and id(root) not in known
    ]


def _modules_inside(root: nn.Module) -> list[tuple[str, nn.Module]]:
    """What ``named_modules()`` tells but the root itself; of usual modules in a third of the time."""
    found: list[tuple[str, nn.Module]] = []
    if not private.has("modules") or not _add_modules(root, "", found, {root}):
        return [(path, module) for path, module in root.named_modules() if path]
    return found


_usual_named_modules = nn.Module.named_modules


def _add_modules(module: nn.Module, lead: str, found: list[tuple[str, nn.Module]], seen: set[nn.Module]) -> bool:
    # No inner function: one that calls itself is a cycle, and keeps the model until the collector comes.
    if type(module).named_modules is not _usual_named_modules:
        return False
    for key, child in module._modules.items():
        if child is not None and child not in seen:
            seen.add(child)
            found.append((lead + key, child))
            if child._modules and not _add_modules(child, f"{lead}{key}.", found, seen):
                return False
    return True
