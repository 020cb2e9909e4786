"""Recording a script that knows nothing of msprobe: where its steps begin and end, and what its model is."""

from __future__ import annotations

import functools
import sys
import threading
import types
import weakref
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import nn
from torch.autograd import profiler
from torch.optim import optimizer as optimizers

from msprobe import log
from msprobe.capture.debugger import SWITCHED_OFF
from msprobe.capture.identity import IdentitySet
from msprobe.capture.torch import private
from msprobe.capture.torch.compiler import CompilerImport, RegionWatch
from msprobe.capture.torch.debugger import PrecisionDebugger
from msprobe.capture.torch.models import name_modules
from msprobe.capture.torch.optimizer_cycle import OptimizerCycle, all_optimizers, parameters_of
from msprobe.capture.torch.optimizers import OptimizerRecorder
from msprobe.capture.torch.patches import Patches
from msprobe.capture.torch.user_modules import parameters
from msprobe.guard import attempt, guarded


class ScriptSteps:
    """Starts recording at the first forward pass of a step, and ends the step with the optimizer's.

    **The model** is the outermost module that is called with gradients enabled and has parameters. Further
    modules that are called on their own (a discriminator, a loss) are watched as well, from their first
    call on; their entries are named ``Module.{Class}_{k}.{path}...``. Calls under ``no_grad`` (validation)
    begin no step, unless the program has no optimizer: what was recorded so is given up where a training
    follows.

    **A step** ends when the optimizers of the program have stepped
    (:class:`msprobe.capture.torch.optimizer_cycle.OptimizerCycle`). An optimizer inside another one's step
    counts as part of it; a step that a ``GradScaler`` skips counts as made. Gradient accumulation makes a
    step of several forward passes, as it should.

    ``may_begin``: asked before a step begins; someone knows where the training is. ``waits_for_end``: recording stops
    where the step ends, and :meth:`end_step` ends it. ``optimizers``: gives those that make a step, where that is
    known; without it all that the program has, and any that steps.
    """

    def __init__(
        self,
        debugger: PrecisionDebugger,
        may_begin: Callable[[], bool] | None = None,
        waits_for_end: bool = False,
        optimizers: Callable[[], Iterable[Any]] | None = None,
    ) -> None:
        self.debugger = debugger
        self._allowed = may_begin
        self._waits_for_end = waits_for_end
        self._thread = threading.get_ident()
        self._attached = False
        self._depth = 0
        self._models: list[weakref.ref[nn.Module]] = []
        self._known = IdentitySet()
        # Called on their own in this step.
        self._called = IdentitySet()
        self._cycle = OptimizerCycle(optimizers or all_optimizers, self._is_used)
        # Optimizers whose steps run, with their stacks where there is a closure.
        self._stepping: list[tuple[Any, Any]] = []
        # What is being recorded began without gradients, as the program had no optimizer.
        self._is_inference = False
        # The script was ended by an exception.
        self.failed = False
        # The nearest that came to a step, if none began.
        self._met = ""
        self._handles: list[Any] = []
        self._calls = Patches()
        self._calls.add(nn.Module, "__call__", self._watched_call)
        self._patches: list[Patches] = []
        self._watch = RegionWatch(self)
        self._import: CompilerImport | None = None

    # ------------------------------------------------------------ life

    def attach(self) -> None:
        """Begin to follow the program."""
        self._calls.attach()
        self._attached = True
        self._handles = [optimizers.register_optimizer_step_pre_hook(self._before_step)]
        patches = Patches()
        patches.add(profiler.record_function, "__exit__", self._leaving)
        scaler = getattr(getattr(torch, "amp", None), "GradScaler", None) or torch.cuda.amp.GradScaler
        patches.add(scaler, "step", self._scaled_step)
        patches.attach()
        self._patches.append(patches)
        if private.eval_frame() is not None:
            self._attach_to_compiler()
        else:
            self._import = CompilerImport(self._attach_to_compiler)
            sys.meta_path.insert(0, self._import)

    def detach(self) -> None:
        """Leave nothing behind. Recording stops: what it has replaced lies over what was replaced here.

        A step is finished by its optimizers. Only where there are none the end of the script finishes it.
        """
        self._attached = False
        attempt(self._say_why)
        recorder = self.debugger.recorder
        if self.failed or self._cycle.has_stepped:
            # Still recording, as far as the session knows: it will be closed in the middle of a step.
            attempt(recorder.detach)
        elif recorder.session.recording:
            attempt(self.debugger.stop)
        if self._import is not None and self._import in sys.meta_path:
            sys.meta_path.remove(self._import)
        for one in reversed(self._patches):
            attempt(one.detach)
        self._patches.clear()
        attempt(self._calls.detach)
        for handle in self._handles:
            handle.remove()
        self._handles.clear()

    def _say_why(self) -> None:
        outcome, level = self.debugger.recorder.session.outcome, self.debugger.settings.level
        if level == "debug":
            outcome.reason = (
                "level debug records what the script gives to PrecisionDebugger.save(), which it did not call; choose"
                " another level, for example --level L1"
            )
        else:
            outcome.reason = self._met or (
                "the script called no torch.nn.Module, and the first call of one is where recording begins"
            )

    def _attach_to_compiler(self) -> None:
        if not private.has("compiled regions"):
            return  # nothing will be recorded
        patches = Patches()
        for name in private.switches():
            patches.add(private.eval_frame(), name, self._watch.replacement)
        patches.attach()
        self._patches.append(patches)

    def entered(self, frame: types.FrameType) -> None:
        """Compiled code runs: it must not see that calls of modules are watched."""
        attempt(self._begin_in_region, frame)
        self._calls.detach()

    def _begin_in_region(self, frame: types.FrameType) -> None:
        recorder = self.debugger.recorder
        if self._depth == 0 and not recorder.session.recording and self._may_begin() and self._begin():
            recorder.regions.record_region(frame)

    def left(self, frame: types.FrameType | None) -> None:
        """It is back."""
        if self._attached:
            self._calls.attach()

    # ------------------------------------------------------------ the model

    def _watched_call(self, original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def __call__(module: nn.Module, *args: Any, **kwargs: Any) -> Any:
            is_outermost = attempt(self._is_outermost)
            if not is_outermost:
                return original(module, *args, **kwargs)
            self._depth += 1
            try:
                has_begun = attempt(self._outermost, module)
                if has_begun:
                    # The call has begun before the recorder could watch it.
                    return self.debugger.recorder.regions.modules.around(
                        module, lambda: original(module, *args, **kwargs), args, kwargs
                    )
                return original(module, *args, **kwargs)
            finally:
                self._depth -= 1

        return __call__

    def _is_outermost(self) -> bool:
        """No module runs, and this is the thread of the script."""
        if self._depth:
            return False
        is_here = threading.get_ident() == self._thread
        if not is_here and not self._met:
            self._met = "modules were called in other threads than the script's main thread only"
        return is_here

    def _outermost(self, module: nn.Module) -> bool:
        """A module is called from outside of all modules; True if recording begins here."""
        recorder = self.debugger.recorder
        if recorder.session.ended:
            return False
        if self._is_inference and torch.is_grad_enabled():
            self._give_up_inference()
        self._called.add(module)
        known = module in self._known
        if not known and not recorder.session.recording and next(parameters(module), None) is None:
            # A transformation of the data, or a loss; it begins no step.
            self._met = "only modules without parameters were called, which begin no step"
            return False
        if recorder.session.recording:
            if not known:
                self._add(module)
                self._tell_models()
                named = self._names_of(len(self._models) - 1, module)
                outside = recorder.regions.outside_more(module, named)
                recorder.watch_more(outside)
        elif self._may_begin():
            if not known:
                self._add(module)
            return self._begin()
        else:
            self._met = "the modules were called without gradients only (no_grad), which begins no step"
        return False

    def _may_begin(self) -> bool:
        if self._allowed is not None and not self._allowed():
            return False
        return torch.is_grad_enabled() or not self._cycle.has_optimizers()

    def _give_up_inference(self) -> None:
        """A pass with gradients: what came before it was a step of its own only if nothing is trained here."""
        self._is_inference = False
        session = self.debugger.recorder.session
        if session.recording and self._cycle.has_optimizers(look_again=True):
            log.info("What was recorded before the training (an evaluation) is left out; the training begins here.")
            self.debugger.recorder.detach()
            session.give_up_step()
            # The model may have been called without what it is wrapped in for the training.
            self._models.clear()
            self._known.clear()

    def _add(self, module: nn.Module) -> None:
        self._models.append(weakref.ref(module))
        self._known.add(module)

    def _names_of(self, index: int, module: nn.Module) -> list[tuple[str, nn.Module]]:
        recorder = self.debugger.recorder
        named = name_modules(module, recorder.settings.record_root or index > 0)
        lead = f"Module.{_lead(index, module)}"
        return [(lead + name.removeprefix("Module."), inner) for name, inner in named]

    def _tell_models(self) -> list[tuple[int, nn.Module]]:
        """Let the recorder know all models that there are, and what their parameters are called: as their modules are,
        so that neither changes when another model comes.
        """
        recorder = self.debugger.recorder
        alive = [(i, found) for i, found in enumerate(reference() for reference in self._models) if found is not None]
        models = [found for _, found in alive]
        leads = [_lead(i, found) for i, found in alive]
        recorder.models.give(models if len(models) != 1 else models[0], leads)
        for part in recorder.parts:
            if isinstance(part, OptimizerRecorder):
                part.learn()
        return alive

    def _begin(self) -> bool:
        """A new step; False if it is not wanted."""
        debugger = self.debugger
        if debugger.settings.level == "debug" or not debugger.is_on():
            self._met = SWITCHED_OFF
            return False
        named = [pair for i, found in self._tell_models() for pair in self._names_of(i, found)]
        begun = debugger.recorder.start(named)
        if begun:
            self._is_inference = not torch.is_grad_enabled()
            if self._stepping:
                for part in self._optimizer_parts():
                    part.join(*self._stepping[-1])
        return begun

    # ------------------------------------------------------------ the optimizers

    def _optimizer_parts(self) -> list[OptimizerRecorder]:
        return [part for part in self.debugger.recorder.parts if isinstance(part, OptimizerRecorder)]

    def _is_used(self, optimizer: Any) -> bool:
        """True if a module with a parameter of ``optimizer`` was called in this step."""
        updated = {id(parameter) for parameter in parameters_of(optimizer)}
        return any(id(p) in updated for module in self._called for p in parameters(module))

    @guarded
    def _before_step(self, optimizer: Any, args: Any, kwargs: Any) -> tuple[Any, Any] | None:
        if threading.get_ident() != self._thread:
            return None
        session = self.debugger.recorder.session
        closure = kwargs.get("closure") if len(args) < 2 else args[1]
        if session.recording or session.ended or not callable(closure):
            self._stepping.append((optimizer, None))
            return None
        # The step begins inside of this one.
        self._stepping.append((optimizer, session.guard(session.stacks.here, 2)))

        @functools.wraps(closure, updated=())
        def watched(*given: Any, **named: Any) -> Any:
            try:
                return closure(*given, **named)
            finally:
                attempt(self._closure_ended, optimizer)

        if len(args) < 2:
            return args, {**kwargs, "closure": watched}
        return (args[0], watched, *args[2:]), kwargs

    def _closure_ended(self, optimizer: Any) -> None:
        for part in self._optimizer_parts():
            part.closure_ended(optimizer)

    def _leaving(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """The block that an optimizer's step runs in ends behind all hooks, those of the recorder included."""

        @functools.wraps(original)
        def __exit__(block: Any, *error: Any) -> Any:
            result = original(block, *error)
            attempt(self._left, block, error)
            return result

        return __exit__

    def _left(self, block: Any, error: tuple[Any, ...]) -> None:
        """A range of the profiler has ended; that of an optimizer's step is its end."""
        if not self._stepping or threading.get_ident() != self._thread:
            return
        optimizer, _ = self._stepping[-1]
        if getattr(block, "name", "") != f"Optimizer.step#{type(optimizer).__name__}.step":
            return
        self._stepping.pop()
        for part in self._optimizer_parts():
            part.leave(optimizer, error[1] if len(error) > 1 else None)
        if not error or error[0] is None:
            self._cycle.note(optimizer)
            if not self._stepping:
                self._end_if_complete()

    def _scaled_step(self, original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def step(scaler: Any, optimizer: Any, *args: Any, **kwargs: Any) -> Any:
            noted = attempt(self._noted, optimizer)
            result = original(scaler, optimizer, *args, **kwargs)
            attempt(self._scaled, optimizer, noted)
            return result

        return step

    def _noted(self, optimizer: Any) -> tuple[bool, int]:
        """Whether ``optimizer`` has stepped in this training step, and the number of that step."""
        return self._cycle.has_noted(optimizer), self.debugger.recorder.session.step

    def _scaled(self, optimizer: Any, before: tuple[bool, int] | None) -> None:
        """A scaler has let ``optimizer`` step, or has skipped its step."""
        if before == (False, self.debugger.recorder.session.step) and not self._cycle.has_noted(optimizer):
            self._cycle.note(optimizer)
            self._end_if_complete()

    def _end_if_complete(self) -> None:
        if self._cycle.end_if_complete():
            if self._waits_for_end:
                self.debugger.stop()
            else:
                self.end_step()

    def end_step(self) -> None:
        """The step is over, whichever optimizer has not stepped."""
        self._cycle.end()
        self._called.clear()
        self.debugger.stop()
        self.debugger.step()


def _lead(index: int, module: nn.Module) -> str:
    """What the names of a model's modules and parameters begin with; nothing for the first."""
    return f"{type(module).__name__}_{index}." if index else ""
