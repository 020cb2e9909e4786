"""Which parts a recorder consists of, besides calls and modules, and which of them are attached in a step."""

from __future__ import annotations

import functools
from collections.abc import Collection, Iterator
from typing import Any, Protocol

import torch

from msprobe.capture.events import EventKind
from msprobe.capture.session import CLIP_GRAD, Session
from msprobe.capture.torch import private
from msprobe.capture.torch.calls.function_mode import CallMode, enter_mode, remove_mode
from msprobe.capture.torch.calls.functions import CustomFunctions
from msprobe.capture.torch.context import Context
from msprobe.capture.torch.patches import Patches
from msprobe.guard import attempt


class Attached(Protocol):
    """Something that is attached while recording.

    While compiled code runs, or a module of torch is imported, it is detached and attached again. A part that would
    lose something by that has ``pause`` and ``resume`` as well, which are called instead; one with
    ``stays_for_imports`` stays where it is while a module is imported.
    """

    def attach(self) -> None:
        """Begin to watch."""

    def detach(self) -> None:
        """Leave nothing behind."""


# What there are parts for, in the order in which they are attached.
_NEEDS = (
    "functions",
    "call",
    "clipping",
    "warnings",
    "collective",
    "planning",
    "optimizer",
    "operators",
    "accumulated",
)
_OF_LEVELS: dict[str, frozenset[str]] = {
    "L0": frozenset(("functions", "warnings", "planning", "optimizer")),
    "L1": frozenset(("functions", "call", "warnings", "collective", "planning", "optimizer")),
    "mix": frozenset(("functions", "call", "clipping", "warnings", "collective", "planning", "optimizer")),
    "L2": frozenset(("functions", "warnings", "planning", "operators")),
    "debug": frozenset(("functions", "warnings")),
}


# The same for each kind of event that listeners want.
NEEDS_OF_KIND: dict[EventKind, frozenset[str]] = {
    # What a collective calls to do its work is part of it, and takes no number.
    "call": frozenset(("functions", "call", "warnings", "collective", "planning")),
    "collective": frozenset(("collective",)),
    "optimizer": frozenset(("optimizer",)),
    "accumulated_gradient": frozenset(("accumulated",)),
}


def needs_of(level: str) -> frozenset[str]:
    """What a dump of this level needs; nothing, where nothing is dumped."""
    return _OF_LEVELS.get(level, frozenset())


def possible(needs: frozenset[str]) -> frozenset[str]:
    """Those of ``needs`` that this torch has what it takes for."""
    return needs - {"call"} if "call" in needs and not private.has("calls") else needs


class Parts:
    """The parts of one recorder, made when they are needed first."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._session = context.session
        # What sees the calls of the thread that records; None as long as nobody wanted any.
        self.mode: CallMode | None = None
        self._made: dict[str, list[Attached]] = {}
        # Attached in every step, behind all others.
        self.last: list[Attached] = []
        self.attached: list[Attached] = []
        self._stayed: list[Attached] = []

    def __iter__(self) -> Iterator[Attached]:
        for need in _NEEDS:
            yield from self._made.get(need, ())
        yield from self.last

    def add(self, need: str, part: Attached) -> None:
        """A part that comes later."""
        self._made.setdefault(need, []).append(part)
        if self._session.recording:
            self.attached.append(part)

    def make(self, needs: Collection[str]) -> None:
        """Make what is needed and not there yet."""
        for need in _NEEDS:
            if need in needs and need not in self._made:
                self._made[need] = []
                self._made[need] = self._new(need)

    def attach(self, needs: Collection[str]) -> None:
        """Attach what is needed."""
        self.attached = [part for need in _NEEDS if need in needs for part in self._made.get(need, ())]
        for part in self._made.get("functions", ()):
            if isinstance(part, CustomFunctions):
                part.records = "call" in needs
        self.attached += self.last
        for part in self.attached:
            self._session.guard(part.attach)

    def detach(self) -> None:
        """Detach all that is attached."""
        attached, self.attached = self.attached, []
        for part in reversed(attached):
            self._session.guard(part.detach)

    def pause(self, is_import: bool = False) -> None:
        """Compiled code is about to run, or a module to be imported: see :class:`Attached`."""
        self._stayed = [part for part in self.attached if is_import and getattr(part, "stays_for_imports", False)]
        for part in reversed(self.attached):
            if part not in self._stayed:
                self._session.guard(getattr(part, "pause", part.detach))

    def resume(self) -> None:
        """It has run."""
        stayed, self._stayed = self._stayed, []
        for part in self.attached:
            if part not in stayed:
                self._session.guard(getattr(part, "resume", part.attach))

    def _new(self, need: str) -> list[Attached]:
        context, session = self._context, self._session
        if need == "functions":
            return [CustomFunctions(context.calls, context.targets, context.thread)]
        if need == "call":
            for part in self._made["functions"]:
                if isinstance(part, CustomFunctions):
                    part.foreign.watch(context.names)
            self.mode = CallMode(context.calls, context.names)
            return [_call_patches(self.mode)]
        if need == "clipping":
            return [_clip_patches(session)]
        if need == "warnings":
            from msprobe.capture.torch.calls.user_warnings import UserWarnings

            return [UserWarnings()]
        if need == "collective":
            from msprobe.capture.torch.collectives.collective_calls import CollectiveRecorder
            from msprobe.capture.torch.collectives.functional_collectives import FunctionalCollectives

            return [CollectiveRecorder(context), FunctionalCollectives(context)]
        if need == "planning":
            from msprobe.capture.torch.collectives.planning import Planning

            return [Planning(session)]
        if need == "optimizer":
            from msprobe.capture.torch.optimizers.optimizer_hooks import OptimizerRecorder

            return [OptimizerRecorder(context)]
        if need == "accumulated":
            from msprobe.capture.torch.gradients.accumulated import AccumulatedGradients

            return [AccumulatedGradients(context)]
        from msprobe.capture.torch.operators.call_operators import CallOperators, named_calls
        from msprobe.capture.torch.operators.dispatch import OperatorRecorder
        from msprobe.capture.torch.operators.kernel_dump import KernelDump, npu_module

        npu = npu_module()
        if npu is not None:
            return [KernelDump(context.calls, npu)]
        if private.has("operators by key") or private.has("operators by mode"):
            names = named_calls(session.settings.api_list)
            if not names:
                return [OperatorRecorder(context.calls)]
            call_operators = CallOperators(context.calls, names)
            return [call_operators, OperatorRecorder(context.calls, call_operators)]
        return []


def _call_patches(mode: CallMode) -> Patches:
    patches = Patches()

    def reflected(original: Any) -> Any:
        def replacement(tensor: Any, other: Any) -> Any:
            # Of this thread: another one may add, too.
            attempt(setattr, mode.entering, "reflected", True)
            try:
                return original(tensor, other)
            finally:
                attempt(setattr, mode.entering, "reflected", False)

        replacement.__name__ = original.__name__
        return replacement

    for name in ("__radd__", "__rmul__"):
        patches.add(torch.Tensor, name, reflected)

    def without_mode(original: Any) -> Any:
        def has_torch_function(relevant_args: Any) -> Any:
            was_on = attempt(remove_mode, mode)
            try:
                return original(relevant_args)
            finally:
                if was_on:
                    attempt(enter_mode, mode)

        return has_torch_function

    # These modules ask "does somebody override torch functions?" to choose their fused path. Recording is
    # no reason to take the other one, whose results differ in the last bits.
    patches.add(torch.overrides, "has_torch_function", without_mode)
    return patches


def _clip_patches(session: Session) -> Patches:
    patches = Patches()

    def region(original: Any) -> Any:
        @functools.wraps(original)
        def replacement(*args: Any, **kwargs: Any) -> Any:
            before = attempt(session.thread.enter_region, CLIP_GRAD)
            try:
                return original(*args, **kwargs)
            finally:
                attempt(session.thread.enter_region, before)

        return replacement

    from torch.nn import utils
    from torch.nn.utils import clip_grad

    for name in ("clip_grad_norm_", "clip_grad_norm", "clip_grad_value_"):
        patches.add(utils, name, region)
        patches.add(clip_grad, name, region)
    return patches
