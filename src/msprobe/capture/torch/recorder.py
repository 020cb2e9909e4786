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
from typing import Any, Protocol

import torch
from torch import nn

from msprobe import log
from msprobe.capture import native
from msprobe.capture.records import Describer
from msprobe.capture.session import CLIP_GRAD, Session
from msprobe.capture.stacks import CallStacks
from msprobe.capture.torch import private, values
from msprobe.capture.torch.calls import CallRecorder
from msprobe.capture.torch.function_mode import CallMode, enter_mode, remove_mode
from msprobe.capture.torch.functions import CustomFunctions
from msprobe.capture.torch.gradients import NodeHooks
from msprobe.capture.torch.modules import ModuleRecorder
from msprobe.capture.torch.names import ApiNames
from msprobe.capture.torch.patches import Patches
from msprobe.capture.torch.precision import settings_of_precision
from msprobe.capture.torch.statistics import TensorStatistics
from msprobe.capture.torch.tensor_values import TensorKeeper
from msprobe.capture.torch.threads import RecordedThread
from msprobe.config.settings import Settings

_TORCH_FOLDER = os.path.dirname(os.path.abspath(torch.__file__)) + os.sep
_CHECKPOINT_FILE = os.path.join("torch", "utils", "checkpoint.py")


class Part(Protocol):
    """Something that is attached while recording.

    While compiled code runs it is detached and attached again. A part that would lose something by that has
    ``pause`` and ``resume`` as well, which are called instead.
    """

    def attach(self) -> None:
        """Begin to watch."""

    def detach(self) -> None:
        """Leave nothing behind."""


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

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        stacks = CallStacks(native.frame_key, _is_framework, _is_recompute, _is_way_in)
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
        self.level = settings.level
        # What was given to start: a Module, several, or None. Let go of when recording stops.
        self.models: Any = None
        # What the names of the parameters of each model begin with, if it is not the model's index.
        self.leads: list[str] | None = None
        self.parts: list[Part] = []
        self._mode: CallMode | None = None
        self._attached = False
        session.has_late = self.statistics.has_late
        session.before_publish.append(self._finish_records)
        session.at_step_end.append(self._forget_step)
        for ability in ("memory", "threads of autograd", "transforms"):
            private.has(ability)  # said here if not; what needs them has another way
        if self.level in ("L1", "mix"):
            self.names = ApiNames(
                settings.api_scope != "listed" and settings.risk_level is None, settings.api_list_file
            )
        if self.level in ("L1", "mix") and private.has("calls"):
            self._mode = CallMode(self.calls, self.names)
            self._add_call_patches()
        else:
            self.parts.append(CustomFunctions(self.calls, self.thread, records=False))
        from msprobe.capture.torch.compiled import CompiledRegions
        from msprobe.capture.torch.parts import make_parts

        self.parts += make_parts(self)
        self.regions = CompiledRegions(self)
        self.parts.append(self.regions)
        _live.add(self)

    def _types(self) -> dict[type, Callable[[Any], Any]]:
        statistics = self.statistics
        return {
            **values.plain_types(),
            torch.Tensor: lambda t: statistics.describe(t, False),
            nn.Parameter: statistics.describe,
        }

    def _add_call_patches(self) -> None:
        patches = Patches()
        mode = self._mode
        assert mode is not None
        functions = CustomFunctions(self.calls, self.thread)
        self.parts.append(functions)
        functions.foreign.watch(self.names)

        def reflected(original: Any) -> Any:
            def replacement(tensor: Any, other: Any) -> Any:
                # Of this thread: another one may add, too.
                entering = mode.entering
                entering.reflected = True
                try:
                    return original(tensor, other)
                finally:
                    entering.reflected = False

            replacement.__name__ = original.__name__
            return replacement

        for name in ("__radd__", "__rmul__"):
            patches.add(torch.Tensor, name, reflected)
        # These modules ask "does somebody override torch functions?" to choose their fused path. Recording is
        # no reason to take the other one, whose results differ in the last bits.
        patches.add(torch.overrides, "has_torch_function", self._without_mode)
        self.parts.append(patches)
        if self.level == "mix":
            self.parts.append(self._clip_patches())

    def _without_mode(self, original: Any) -> Any:
        mode = self._mode
        assert mode is not None

        def has_torch_function(relevant_args: Any) -> Any:
            if remove_mode(mode):
                try:
                    return original(relevant_args)
                finally:
                    enter_mode(mode)
            return original(relevant_args)

        return has_torch_function

    def _clip_patches(self) -> Patches:
        patches = Patches()
        session = self.session

        def region(original: Any) -> Any:
            @functools.wraps(original)
            def replacement(*args: Any, **kwargs: Any) -> Any:
                thread = session.thread
                before, thread.region = thread.region, CLIP_GRAD
                try:
                    return original(*args, **kwargs)
                finally:
                    thread.region = before

            return replacement

        from torch.nn import utils
        from torch.nn.utils import clip_grad

        for name in ("clip_grad_norm_", "clip_grad_norm", "clip_grad_value_"):
            patches.add(utils, name, region)
            patches.add(clip_grad, name, region)
        return patches

    # ------------------------------------------------------------ life

    @property
    def mode(self) -> CallMode | None:
        """What sees the calls of the thread that records; None at levels that record none."""
        return self._mode

    def start(self, named_modules: Sequence[tuple[str, nn.Module]], rank: int | None = None) -> bool:
        """Attach everything, if this step and rank are wanted. ``named_modules``: entry names and modules to
        watch.
        """
        session = self.session
        if session.recording:
            return True
        unable = private.why_nothing_is_recorded()
        if unable:
            session.outcome.reason = unable
        if unable or not session.start(rank):
            self.models = None
            return False
        self._attached = True
        self.thread.begin()
        outside = session.guard(self.regions.outside, self.models, named_modules)
        named_modules = named_modules if outside is None else outside
        session.guard(self.calls.own.watch, self.models, self.leads)
        if self.level in ("L0", "mix") and private.has("modules"):
            session.guard(self.modules.watch, named_modules)
        for part in self.parts:
            session.guard(part.attach)
        if self._mode is not None:
            # Stopped in another thread, it is still in this one.
            self._leave_mode(self._mode)
            enter_mode(self._mode)
        session.guard(self.regions.begun)
        return True

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
        for part in reversed(self.parts):
            session.guard(part.detach)
        session.guard(self.modules.remove)
        # The user may be done with the model, and nothing but the model itself tells when its parameters are gone:
        # the nodes on which the hooks were keep them alive.
        session.guard(self.modules.forget)
        self.models = None
        self.calls.own.forget()
        self.hooks.prune()

    def next_step(self) -> None:
        """The step is over."""
        self.session.next_step()

    def close(self, is_end: bool = True) -> None:
        """The program ends, or (``is_end`` False) another recorder takes over."""
        self.detach()
        self.session.close(is_end)
        self.hooks.remove()
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
        if self.session.has_late():
            self.statistics.flush()

    def _forget_step(self) -> None:
        self.hooks.remove()
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
