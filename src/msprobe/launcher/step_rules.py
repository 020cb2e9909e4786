"""Where the steps of a script end: what the program makes of them, or what the user says.

A :class:`StepRule` is given what happens (an optimizer steps, a backward pass begins, a model is called) and answers
whether a step is over. It knows nothing of recording. There is one for each way in which a step ends:

==================  ====================================================================
``UpdateRule``      the weights are updated: by the optimizers, or by hand
``BackwardRule``    ``--step-on backward``: the next forward pass behind a backward pass
``OptimizerRule``   ``--step-on optimizer:NAME``: that optimizer has stepped
``CallRule``        ``--step-on call:FUNCTION``: the function has returned
==================  ====================================================================
"""

from __future__ import annotations

import sys
import types
import weakref
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from torch import nn

from msprobe.capture.identity import IdentityMap, IdentitySet
from msprobe.capture.step_on import StepOn
from msprobe.capture.torch import private
from msprobe.capture.torch.listener_support import aside
from msprobe.capture.torch.modules.user_modules import parameters
from msprobe.capture.torch.optimizers.optimizer_cycle import MOST_WAITED, OptimizerCycle, parameters_of
from msprobe.capture.torch.watched_functions import FunctionCalls
from msprobe.guard import attempt
from msprobe.launcher.function_calls import code_runs, functions_named
from msprobe.launcher.hand_updates import HandUpdates, LeafUpdates
from msprobe.messages import said


class StepRule:
    """What all rules have in common: which optimizers there are, and which models were called in this step."""

    #: Only this rule's own signs begin a step, not the call of a model.
    begins_itself = False

    def __init__(self, all_optimizers: Callable[[], Iterable[Any]], advice: str = "") -> None:
        self.cycle = OptimizerCycle(all_optimizers, self._is_used, advice)
        # Called on their own in this step.
        self.called = IdentitySet()
        # A backward pass has run in this step, and one since an optimizer stepped last.
        self.has_backward = False
        self.has_unused_backward = False
        # With which others each model was called in a step that is complete.
        self._together: IdentityMap[IdentitySet] = IdentityMap()

    @property
    def trains(self) -> bool:
        """Whether steps of a training have ended: what follows without a backward pass is an evaluation."""
        return self.cycle.has_stepped

    def has_optimizers(self, look_again: bool = False) -> bool:
        """Whether the program updates weights, as far as that is known."""
        return self.cycle.has_optimizers(look_again)

    def made(self, optimizer: Any) -> None:
        """The program has made an optimizer."""
        self.cycle.made(optimizer)

    def before_step(self, optimizer: Any) -> None:
        """``optimizer`` is about to step."""

    def stepped(self, optimizer: Any, is_inside: bool = False) -> bool:
        """``optimizer`` has stepped; True if the step is over by that. ``is_inside``: in the step of others."""
        self.has_unused_backward = False
        self.cycle.has_stepped = True
        return False

    def call(self, model: nn.Module, gradients: bool) -> None:
        """A model is called from outside of all models, with ``gradients`` on or off."""
        self.called.add(model)

    def backward(self, accumulates: bool, roots: Sequence[Any] = ()) -> None:
        """A backward pass from ``roots`` begins, which is in no other. ``accumulates``: into ``grad``."""
        self.has_backward = True
        self.has_unused_backward |= accumulates

    def is_over(self, model: nn.Module | None = None, gradients: bool = False) -> bool:
        """Asked before ``model`` is called (None: what it is, is not known), and at the end of the program: whether the
        step has ended before.
        """
        return False

    def begins_other_training(self, model: nn.Module) -> bool:
        """Asked before ``model`` is called with gradients: whether all that was done in this step so far may be an
        evaluation of models that are trained apart from it, in steps that are over.
        """
        return False

    def is_unfinished(self) -> bool:
        """Asked at the end of the program: whether the step lacks what ends one."""
        return self.trains and self.has_unused_backward

    def is_evaluation(self) -> bool:
        """Asked at the end of the program: whether the step has nothing of a training, behind steps that had."""
        return self.trains and not self.has_unused_backward and not self.cycle.is_begun

    def end(self) -> None:
        """The step is over, whatever is missing."""
        self.cycle.end()
        for model in self.called:
            self._together.setdefault(model, IdentitySet()).update(self.called)
        self.begin_anew()

    def begin_anew(self) -> None:
        """What was done so far in this step does not count."""
        self.called.clear()
        self.has_backward = self.has_unused_backward = False

    def detach(self) -> None:
        """Leave nothing behind."""

    def problem(self) -> str:
        """What to say at the end of the program if it is not as the user said; empty if all is well."""
        return ""

    def _is_used(self, optimizer: Any) -> bool:
        """True if a module with a parameter of ``optimizer`` was called in this step."""
        updated = {id(parameter) for parameter in parameters_of(optimizer)}
        return any(id(p) in updated for module in self.called for p in parameters(module))


class UpdateRule(StepRule):
    """A step ends when the optimizers of the program have stepped
    (``OptimizerCycle``). In a program whose optimizers never step it ends
    before the first forward pass with other weights than those of the backward pass before
    (:class:`msprobe.launcher.hand_updates.HandUpdates`).
    """

    def __init__(self, all_optimizers: Callable[[], Iterable[Any]], advice: str = "") -> None:
        super().__init__(all_optimizers, advice)
        self._hands: dict[int, tuple[weakref.ref[nn.Module], HandUpdates]] = {}
        # Where no model was seen to be called in this step.
        self._leaves: LeafUpdates | None = None
        self._by_hand = True

    def before_step(self, optimizer: Any) -> None:
        with aside():
            self.cycle.before(optimizer)

    def stepped(self, optimizer: Any, is_inside: bool = False) -> bool:
        self.has_unused_backward = False
        if self._by_hand:
            self._by_hand = False
            self._leaves = None
            self._hands.clear()
        self.cycle.note(optimizer)
        return not is_inside and self.cycle.end_if_complete(may_wait=len(self.called) > 0)

    def call(self, model: nn.Module, gradients: bool) -> None:
        super().call(model, gradients)
        if not (self._by_hand and gradients):
            return
        hand = self._hand_of(model)
        # A model that comes up behind a backward pass may be a copy, for an inner loop.
        if hand is None and not self.has_backward and next(parameters(model), None) is not None:
            hand = HandUpdates(model)
            self._hands[id(model)] = weakref.ref(model), hand
            if not self._has_optimizer(hand):
                self.cycle.expect(hand)
        if hand is not None:
            hand.forward()

    def _hand_of(self, model: nn.Module) -> HandUpdates | None:
        reference, hand = self._hands.get(id(model), (None, None))
        return hand if reference is not None and reference() is model else None

    def backward(self, accumulates: bool, roots: Sequence[Any] = ()) -> None:
        super().backward(accumulates)
        for _, hand in self._hands.values():
            hand.backward(exact=not self._has_optimizer(hand))
        can_look = not private.in_transform()
        if can_look and self._by_hand and self._leaves is None and not self._hands and not self.cycle.alive():
            self._leaves = LeafUpdates(roots)

    def is_over(self, model: nn.Module | None = None, gradients: bool = False) -> bool:
        if self.cycle.is_waiting:
            return model is None or not gradients or not self.cycle.goes_on_with(model)
        if not (self._by_hand and self.has_backward):
            return False
        watched = [hand for _, hand in self._hands.values()] + ([self._leaves] if self._leaves is not None else [])
        updated = [hand for hand in watched if hand.is_updated()]
        counted = []
        for hand in updated:
            hand.end()
            hand.updates += 1
            # As long as an optimizer may be about to step for the first time: it is perturbed for that (SAM).
            if hand.updates > MOST_WAITED or not self._has_optimizer(hand):
                self.has_unused_backward = False
                self.cycle.note(hand)
                counted.append(hand)
        return bool(counted) and self.cycle.end_if_complete()

    def begins_other_training(self, model: nn.Module) -> bool:
        if not self.trains or self.has_backward or self.cycle.is_begun:
            return False
        with private.without_functions():
            before = [
                called
                for called in self.called
                if called is not model and any(p.requires_grad for p in parameters(called))
            ]
        if not before or any(called not in self._together for called in before):
            return False
        known = self._together.get(model)
        if known is not None:
            return not any(called in known for called in before)
        own = {id(parameter) for parameter in parameters(model)}
        makers = [optimizer for optimizer in self.cycle.alive() if any(id(p) in own for p in parameters_of(optimizer))]
        updated = {id(parameter) for optimizer in makers for parameter in parameters_of(optimizer)}
        is_apart = not any(id(p) in updated for called in before for p in parameters(called))
        return bool(makers) and is_apart and not any(map(self.cycle.has_ever_stepped, makers))

    def _has_optimizer(self, hand: HandUpdates) -> bool:
        own = {id(parameter) for parameter in parameters_of(hand)}
        return any(id(p) in own for optimizer in self.cycle.alive() for p in parameters_of(optimizer))

    def is_evaluation(self) -> bool:
        return super().is_evaluation() and not (self._by_hand and self.has_backward)

    def begin_anew(self) -> None:
        super().begin_anew()
        self._leaves = None
        for key, (reference, hand) in list(self._hands.items()):
            hand.end()
            if reference() is None:
                del self._hands[key]


class BackwardRule(StepRule):
    """A step ends before the first forward pass behind a backward pass (one that accumulates gradients), so that an
    update behind it belongs to the step.
    """

    def __init__(self, all_optimizers: Callable[[], Iterable[Any]]) -> None:
        super().__init__(all_optimizers)
        self._is_over = False
        self._ever = False

    @property
    def trains(self) -> bool:
        return self._ever

    def has_optimizers(self, look_again: bool = False) -> bool:
        return self._ever or super().has_optimizers(look_again)

    def backward(self, accumulates: bool, roots: Sequence[Any] = ()) -> None:
        super().backward(accumulates)
        self._is_over |= accumulates
        self._ever |= accumulates

    def is_over(self, model: nn.Module | None = None, gradients: bool = False) -> bool:
        return self._is_over

    def begin_anew(self) -> None:
        super().begin_anew()
        self._is_over = False

    def problem(self) -> str:
        return "" if self._ever else said("step-on-backward-unmet")


class OptimizerRule(StepRule):
    """A step ends when one optimizer has stepped: known by its class, a variable of the script, or its place in the
    order in which optimizers were made.
    """

    def __init__(self, all_optimizers: Callable[[], Iterable[Any]], name: str) -> None:
        super().__init__(all_optimizers)
        self._name = name
        self._ever = False
        self._others: dict[str, None] = {}

    @property
    def trains(self) -> bool:
        return self._ever

    def stepped(self, optimizer: Any, is_inside: bool = False) -> bool:
        super().stepped(optimizer)
        if not self._is_named(optimizer):
            if len(self._others) < 8:
                self._others[f"{type(optimizer).__name__} (number {self.cycle.number_of(optimizer)})"] = None
            return False
        self._ever = True
        return True

    def _is_named(self, optimizer: Any) -> bool:
        name, kind = self._name, type(optimizer)
        if name.isdecimal():
            return self.cycle.number_of(optimizer) == int(name)
        if name in (kind.__name__, kind.__qualname__, f"{kind.__module__}.{kind.__qualname__}"):
            return True
        if (
            f"{kind.__module__}.{kind.__qualname__}".startswith("torch.optim.")
            and name == f"torch.optim.{kind.__name__}"
        ):
            return True
        value: Any = sys.modules.get("__main__")
        for word in name.split("."):
            value = getattr(value, word, None)
        return value is optimizer

    def is_unfinished(self) -> bool:
        return self._ever and self.has_unused_backward

    def problem(self) -> str:
        if self._ever:
            return ""
        if not self._others:
            return said("step-on-optimizer-unmet", self._name)
        return said("step-on-other-optimizers", self._name, ", ".join(self._others))


class CallRule(StepRule):
    """A step is one call of a function, from its beginning to its return.

    The function is looked for by its name when optimizers are made and models are called; if it is first met while it
    runs, that call ends where a model is called outside of it.
    """

    begins_itself = True

    def __init__(
        self,
        all_optimizers: Callable[[], Iterable[Any]],
        name: str,
        begin: Callable[[], None],
        end: Callable[[BaseException | None], None],
    ) -> None:
        super().__init__(all_optimizers)
        self._name = name
        self._begin = begin
        self._end = end
        self._calls = FunctionCalls()
        self._codes: set[types.CodeType] = set()
        # So many calls of the function run, one in the other; one that was not seen to begin runs.
        self._depth = 0
        self._joined = False
        self._ever = False

    @property
    def trains(self) -> bool:
        return self._ever

    def made(self, optimizer: Any) -> None:
        super().made(optimizer)
        self.look()

    def look(self) -> bool:
        """Look for the function, if it is not known yet. True if a call of it runs."""
        if self._depth:
            return True
        frame = sys._getframe(1)
        if not self._codes:
            functions = functions_named(self._name, frame)
            self._codes = {function.__code__ for function in functions}
            for function in functions:
                self._calls.add(function, self._run)
            self._calls.attach()
        runs = bool(self._codes) and code_runs(self._codes, frame)
        if runs and not self._joined:
            self._joined = self._ever = True
        return runs

    def _run(self, original: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        is_step = attempt(self._call_begins)
        if not is_step:
            return original(*args, **kwargs)
        try:
            result = original(*args, **kwargs)
        except BaseException as error:
            attempt(self._call_ends, error)
            raise
        attempt(self._call_ends, None)
        return result

    def _call_begins(self) -> bool:
        """The function is called; True if that is a step."""
        if self._depth:
            return False
        if self._joined:
            self._joined = False
            attempt(self._end, None)
        self._depth += 1
        self._ever = True
        attempt(self._begin)
        return True

    def _call_ends(self, error: BaseException | None) -> None:
        self._depth -= 1
        self._end(error)

    def is_over(self, model: nn.Module | None = None, gradients: bool = False) -> bool:
        if self._joined and not self.still_runs(sys._getframe(1)):
            self._joined = False
            return True
        return False

    @property
    def is_joined(self) -> bool:
        """True if a call that was not seen to begin is a step, or was: its end is not seen either."""
        return self._joined

    def still_runs(self, frame: types.FrameType) -> bool:
        """Whether a call of the function runs in ``frame`` or its callers."""
        return code_runs(self._codes, frame)

    def is_unfinished(self) -> bool:
        return False

    def detach(self) -> None:
        self._calls.detach()

    def problem(self) -> str:
        if self._ever:
            return ""
        return said("step-on-call-unmet", self._name)


def rule_of(
    step_on: StepOn | None,
    all_optimizers: Callable[[], Iterable[Any]],
    advice: str,
    begin: Callable[[], None],
    end: Callable[[BaseException | None], None],
) -> StepRule:
    """The rule that the user asked for; ``begin`` and ``end`` a step, where a rule does that itself."""
    if step_on is None:
        return UpdateRule(all_optimizers, advice)
    if step_on.kind == "backward":
        return BackwardRule(all_optimizers)
    if step_on.kind == "optimizer":
        return OptimizerRule(all_optimizers, step_on.name)
    return CallRule(all_optimizers, step_on.name, begin, end)
