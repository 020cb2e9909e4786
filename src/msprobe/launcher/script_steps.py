"""Recording a script that knows nothing of msprobe: where its steps begin and end, and what its model is."""

from __future__ import annotations

import functools
import sys
import threading
import types
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch
from torch import nn

from msprobe import log
from msprobe.capture.around import Around, Plan
from msprobe.capture.debugger import SWITCHED_OFF
from msprobe.capture.step_on import StepOn
from msprobe.capture.torch import private, private_compiler
from msprobe.capture.torch.compiled.compiler import COMPILER_WATCH, ImportWatch, compiler_import
from msprobe.capture.torch.debugger import PrecisionDebugger
from msprobe.capture.torch.modules.user_modules import models_of, parameters
from msprobe.capture.torch.optimizers.optimizer_cycle import all_optimizers, parameters_of
from msprobe.capture.torch.patches import Patches
from msprobe.guard import attempt, guarded
from msprobe.launcher.exchanges import Exchanges
from msprobe.launcher.function_calls import CallsWhile
from msprobe.launcher.results_kept import ReturnedResults
from msprobe.launcher.script_models import ScriptModels
from msprobe.launcher.script_optimizers import ScriptOptimizers
from msprobe.launcher.step_rules import CallRule, rule_of
from msprobe.messages import said


class ScriptSteps:
    """Starts recording at the first forward pass of a step, and ends the step where its rule says so.

    **The model** is the outermost module that is called with gradients enabled and has parameters, or whose ``forward``
    is called. Further modules that are called on their own (a discriminator, a loss) are watched as well, from their
    first call on; their entries are named ``Module.{Class}_{k}.{path}...``. Calls under ``no_grad`` (validation)
    begin no step, unless the program has no optimizer: what was recorded so is given up where a training
    follows.

    **A step** begins with the first call of a model, or where a rank sends to or receives from others before
    that. It ends as its :class:`msprobe.launcher.step_rules.StepRule` says: usually when the weights are updated.
    An optimizer inside another one's step counts as part of it; a step that a ``GradScaler`` skips counts as made.
    Gradient accumulation makes a step of several forward passes, as it should. Forward passes behind the last step
    that no backward pass follows are an evaluation, and no step.

    **Without modules.** A program that computes its gradients without the call of any module is recorded from the end
    of its first step on, all that it does between two steps included.

    ``may_begin``: asked before a step begins; someone knows where the training is. ``waits_for_end``: recording stops
    where the step ends, and :meth:`end_step` ends it. ``optimizers``: gives those that make a step, where that is
    known; without it all that the program has, and any that steps. ``step_on``: what the user says ends a step.
    """

    def __init__(
        self,
        debugger: PrecisionDebugger,
        may_begin: Callable[[], bool] | None = None,
        waits_for_end: bool = False,
        optimizers: Callable[[], Iterable[Any]] | None = None,
        step_on: StepOn | None = None,
    ) -> None:
        self.debugger = debugger
        self._allowed = may_begin
        self._waits_for_end = waits_for_end
        self._is_script = optimizers is None
        self._thread = threading.get_ident()
        self._attached = False
        self._depth = 0
        self._models = ScriptModels(lambda: self.debugger.recorder)
        advice = said("steps-end-elsewhere") if self._is_script else ""
        self.rule = rule_of(step_on, optimizers or all_optimizers, advice, self._begin_call, self._end_call)
        self._optimizers = ScriptOptimizers(self.rule, lambda: self.debugger.recorder, self._ended_by_optimizer)
        # What models have returned in this step, as long as that may be an evaluation.
        self._results = ReturnedResults()
        # Backward passes that run, one in the other.
        self._backwards = 0
        # What is being recorded began without gradients, as the program had no optimizer.
        self._is_inference = False
        # Since the last step ended: a step was to begin, wanted or not; a model was called in what is recorded.
        self._is_begun = False
        self._has_called = False
        # The step began as compiled code was entered, which runs.
        self._began_in_region = False
        # The program computes without calls of modules.
        self._without_modules = False
        # The script was ended by an exception.
        self.failed = False
        # The nearest that came to a step, if none began.
        self._met = ""
        # What compiled code must not see.
        self._calls = Patches()
        self._calls.add(nn.Module, "__call__", self._watched_call)
        self._calls.add(torch.autograd, private.RUN_BACKWARD, self._watched_backward)
        self._exchanges = Exchanges(self._begin_with_exchange)
        self._import: ImportWatch | None = None

    # ------------------------------------------------------------ life

    def attach(self) -> None:
        """Begin to follow the program."""
        self._calls.attach()
        self._attached = True
        self._optimizers.attach()
        self._watch_exchanges()
        if private_compiler.eval_frame() is not None:
            self._attach_to_compiler()
        else:
            self._import = compiler_import(self._attach_to_compiler)
            sys.meta_path.insert(0, self._import)

    def detach(self) -> None:
        """Leave nothing behind. Recording stops: what it has replaced lies over what was replaced here."""
        self._attached = False
        attempt(self._end_recording)
        attempt(self._say_why)
        if self._import is not None and self._import in sys.meta_path:
            sys.meta_path.remove(self._import)
        attempt(COMPILER_WATCH.leave, self)
        attempt(self._exchanges.detach)
        attempt(self.rule.detach)
        attempt(self._optimizers.detach)
        attempt(self._calls.detach)
        attempt(self._results.forget)

    def _end_recording(self) -> None:
        """The program ends, in the middle of a step or of what turns out to be none."""
        recorder = self.debugger.recorder
        if not recorder.session.recording or not recorder.session.is_dumping:
            if recorder.session.recording:
                self.debugger.stop()
        elif self.failed:
            # Still recording, as far as the session knows: it will be closed in the middle of a step.
            recorder.detach()
        elif attempt(self.rule.is_over):
            self.debugger.stop()
        elif self._is_no_step():
            if self._has_called:
                log.info(said("evaluation-after-training"))
            self._give_up()
        elif self.rule.is_unfinished():
            recorder.detach()
        else:
            self.debugger.stop()

    def _is_no_step(self) -> bool:
        """Whether what is recorded now, and was not published yet, lacks all that would make it a step."""
        if self.debugger.recorder.session.is_published:
            return False
        if not self._has_called and not self._without_modules:
            # A rank has sent or received, and nothing was computed.
            return not self.rule.has_backward
        return self.rule.is_evaluation()

    def _give_up(self) -> None:
        """What is recorded is no step."""
        self.debugger.recorder.detach()
        self.debugger.recorder.session.give_up_step()
        self.rule.begin_anew()
        self._results.forget()
        self._is_begun = self._has_called = False
        self._watch_exchanges()

    def _say_why(self) -> None:
        outcome, level = self.debugger.recorder.session.outcome, self.debugger.settings.level
        if level == "debug":
            outcome.reason = said("script-saves-nothing")
        else:
            outcome.reason = self._met or (said("script-calls-no-module"))
            problem = self.rule.problem()
            if problem and outcome.is_empty and not self.debugger.recorder.session.recording:
                # Where other processes have recorded, nobody asks why this one, which started them, did not.
                outcome.reason = problem
            elif problem and not self.failed:
                log.warning(said("steps-not-as-asked", problem))

    def _attach_to_compiler(self) -> None:
        if not private.has("compiled regions"):
            return  # nothing will be recorded
        COMPILER_WATCH.join(self)

    def entered(self, frame: types.FrameType) -> None:
        """Compiled code runs: it must not see that calls of modules are watched."""
        attempt(self._begin_in_region, frame)
        self._calls.detach()

    def _begin_in_region(self, frame: types.FrameType) -> None:
        recorder = self.debugger.recorder
        if self._depth:
            return
        attempt(self._end_if_over)
        if not recorder.session.recording and self._may_begin() and self._begin():
            self._has_called = True
            recorder.regions.record_region(frame)
            self._began_in_region = True

    def left(self, frame: types.FrameType | None) -> None:
        """It is back."""
        attempt(self._end_region, frame)
        if self._attached:
            self._calls.attach()

    def _end_region(self, frame: types.FrameType | None) -> None:
        began, self._began_in_region = self._began_in_region, False
        if began:
            self.debugger.recorder.regions.end_region(frame)

    # ------------------------------------------------------------ the model

    def _watched_call(self, original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def __call__(module: nn.Module, *args: Any, **kwargs: Any) -> Any:
            is_outermost = attempt(self._is_outermost)
            if not is_outermost:
                return original(module, *args, **kwargs)
            self._depth += 1
            try:
                has_begun = attempt(self._outermost, module, sys._getframe(1))
                if has_begun:
                    # The call has begun before the recorder could watch it.
                    result = self.debugger.recorder.regions.modules.around(
                        module, lambda: original(module, *args, **kwargs), args, kwargs
                    )
                else:
                    result = original(module, *args, **kwargs)
                attempt(self._returned, result)
                return result
            finally:
                self._depth -= 1

        return __call__

    def _is_outermost(self) -> bool:
        """No module runs, and this is the thread of the script."""
        if self._depth:
            return False
        is_here = threading.get_ident() == self._thread
        if not is_here and not self._met:
            self._met = said("script-modules-in-threads")
        return is_here

    def _outermost(self, module: nn.Module, frame: types.FrameType) -> bool:
        """A module is called from outside of all modules; True if recording begins here."""
        session = self.debugger.recorder.session
        if session.ended:
            return False
        gradients = torch.is_grad_enabled()
        if self._is_inference and gradients:
            self._give_up_inference()
        has_parameters = next(parameters(module), None) is not None
        if has_parameters:
            self._end_if_over(module)
        if not gradients and session.recording and not self._has_called and self._is_no_step():
            # A rank has sent or received for an evaluation.
            self._give_up()
        model = self._models.model_of(module, frame)
        if model is None:
            self.rule.call(module, gradients)
            return self._begins_with(module, has_parameters, is_new=False)
        if model is not module:
            has_parameters = True
        if gradients and session.recording and self._is_other_training(model):
            log.info(said("evaluation-between-trainings"))
            self._give_up()
        if model is not module:
            self.rule.call(model, gradients)
        self.rule.call(module, gradients)
        return self._begins_with(model, has_parameters, is_new=model not in self._models)

    def _is_other_training(self, model: nn.Module) -> bool:
        if self.debugger.recorder.session.is_published or not self._has_called:
            return False
        return self.rule.begins_other_training(model) and self._results.are_gone()

    def _returned(self, result: Any) -> None:
        """A model that was called from outside of all models has returned."""
        rule = self.rule
        if rule.trains and not rule.has_backward and self.debugger.recorder.session.recording:
            with self.debugger.recorder.session.thread.mute(), private.without_functions():
                self._results.note(result)

    def _begins_with(self, module: nn.Module, has_parameters: bool, is_new: bool) -> bool:
        recorder = self.debugger.recorder
        if recorder.session.recording:
            self._has_called = True
            if is_new:
                self._join(module)
            return False
        if is_new and not has_parameters:
            # A transformation of the data, or a loss; it begins no step.
            self._met = said("script-modules-without-parameters")
            return False
        if isinstance(self.rule, CallRule) and not self.rule.look():
            self._met = said("script-function-without-model")
            return False
        if not self._may_begin():
            self._met = said("script-modules-without-gradients")
            return False
        if is_new:
            self._models.add(module)
        self._has_called = True
        return self._begin()

    def _join(self, module: nn.Module) -> None:
        """One more model is called in a step that is being recorded."""
        recorder = self.debugger.recorder
        index = self._models.add(module)
        self._models.give()
        recorder.watch_more(recorder.regions.outside_more(module, self._models.names_of(index, module)))

    def _may_begin(self) -> bool:
        if self._allowed is not None and not self._allowed():
            return False
        return torch.is_grad_enabled() or self.rule.begins_itself or not self.rule.has_optimizers()

    def _give_up_inference(self) -> None:
        """A pass with gradients: what came before it was a step of its own only if nothing is trained here."""
        self._is_inference = False
        session = self.debugger.recorder.session
        if session.recording and self.rule.has_optimizers(look_again=True):
            log.info(said("evaluation-before-training"))
            self._give_up()
            # The model may have been called without what it is wrapped in for the training.
            self._models.forget()

    def _begin(self) -> bool:
        """A new step; False if it is not wanted."""
        debugger = self.debugger
        self._is_begun = True
        if debugger.settings.level == "debug" or not debugger.is_on():
            self._met = said(SWITCHED_OFF)
            return False
        self._exchanges.detach()
        begun = debugger.recorder.start(self._models.give())
        if begun:
            self._is_inference = not torch.is_grad_enabled() and not self.rule.begins_itself
            self._optimizers.join()
            if isinstance(self.rule, CallRule) and self.rule.is_joined:
                self._leave_out_what_follows(self.rule)
        else:
            self._watch_exchanges()
        return begun

    def _leave_out_what_follows(self, rule: CallRule) -> None:
        """The end of the call that is this step will not be seen: calls of functions behind it are not recorded."""
        mode = self.debugger.recorder.mode
        if mode is not None and mode.relayed is None:
            mode.target = CallsWhile(rule.still_runs, mode.target)

    # ------------------------------------------------------------ other beginnings

    def _watch_exchanges(self) -> None:
        session = self.debugger.recorder.session
        begins = self._attached and self._is_script and not self.rule.begins_itself and not session.ended
        if begins and self.debugger.settings.level in ("L1", "mix"):
            self._exchanges.attach()

    @guarded
    def _begin_with_exchange(self) -> None:
        """A rank sends or receives before it calls a model: a stage of a pipeline gets its input so."""
        session = self.debugger.recorder.session
        if self._depth or threading.get_ident() != self._thread or session.recording or session.ended:
            return
        if torch.is_grad_enabled() and self._may_begin():
            self._begin()

    @guarded
    def _begin_call(self) -> None:
        """The function that is a step begins."""
        if threading.get_ident() == self._thread and not self.debugger.recorder.session.recording:
            self._begin()

    @guarded
    def _end_call(self, error: BaseException | None) -> None:
        """It has returned, or raised."""
        if threading.get_ident() == self._thread and error is None:
            self.end_step()

    def _begin_without_modules(self) -> None:
        """The program computes without calls of modules: all that it does belongs to its steps."""
        held = [parameter for optimizer in self.rule.cycle.alive() for parameter in parameters_of(optimizer)]
        for model in models_of(held):
            if model not in self._models:
                self._models.add(model)
        self._begin()

    # ------------------------------------------------------------ gradients

    def _watched_backward(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def before(*args: Any, **kwargs: Any) -> Plan:
            is_followed = attempt(self._backward_begins, args, kwargs)
            return original, args, kwargs, self if is_followed else None

        return Around(before, self._after_backward)  # type: ignore[no-any-return]

    def _backward_begins(self, args: Sequence[Any], kwargs: dict[str, Any]) -> bool:
        """A backward pass is about to run; True if :meth:`_after_backward` is to be called."""
        if threading.get_ident() != self._thread:
            return False
        self._backwards += 1
        if self._backwards == 1:
            attempt(self._before_backward, kwargs.get("accumulate_grad", True), args[0] if args else ())
        return True

    @guarded
    def _after_backward(self, token: Any, result: Any, error: BaseException | None) -> None:
        self._backwards -= 1

    def _before_backward(self, accumulates: bool, roots: Sequence[Any]) -> None:
        session = self.debugger.recorder.session
        with session.thread.mute():
            self.rule.backward(bool(accumulates), roots)
        if isinstance(self.rule, CallRule):
            self.rule.look()
        if session.recording or self._is_begun or session.ended or not self._is_script or self._depth:
            return
        if self._without_modules or self.rule.begins_itself or self._allowed is not None:
            return
        if not self.rule.cycle.alive():
            self._met = said("script-gradients-without-anything")
        else:
            self._without_modules = self._models.with_roots = True
            log.info(said("gradients-without-modules"))

    # ------------------------------------------------------------ the end of a step

    def _ended_by_optimizer(self) -> None:
        if self._waits_for_end:
            self.debugger.stop()
        else:
            self.end_step()

    def _end_if_over(self, module: nn.Module | None = None) -> None:
        """A model is about to be called: maybe in a step of its own."""
        if self._waits_for_end or self._optimizers.running:
            return
        with self.debugger.recorder.session.thread.mute():
            is_over = self.rule.is_over(module, torch.is_grad_enabled())
        if is_over:
            self.end_step()

    def end_step(self) -> None:
        """The step is over, whichever optimizer has not stepped."""
        self.rule.end()
        self._results.forget()
        self._is_begun = self._has_called = False
        self._models.let_go()
        self.debugger.stop()
        self.debugger.step()
        self._watch_exchanges()
        if self._without_modules:
            self._begin_without_modules()
