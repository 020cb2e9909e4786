"""Level L2 on CPU and CUDA: every operator that reaches the dispatcher, forward and backward:
``Aten.{op}.{n}.forward``.

A ``TorchDispatchMode`` would see these operators too, but while one is active torch takes other ways
through its own composite functions and derivative formulas (it must, for the modes' sake), and does not run
compiled code: what is measured would change. So operators are watched one floor higher: each gets a kernel
for a dispatch key that nothing else uses, and the key is switched on for the thread that records. The
autograd engine hands it on to its own threads. Tensors and modes of the user's own making are met below, as
ever. Composite functions have no such kernel, so that the operators they are made of are seen instead.

Only where torch cannot register such kernels (before 2.5), a dispatch mode does the work.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.optim.optimizer import register_optimizer_step_post_hook

from msprobe.capture.stacks import CallStack
from msprobe.capture.torch import private
from msprobe.capture.torch.calls.call_records import CallRecorder
from msprobe.capture.torch.operators.call_operators import CallOperators
from msprobe.capture.torch.operators.dispatch_operators import Operator, several, without_values, written
from msprobe.capture.torch.operators.dispatch_watch import Watch, find_watch
from msprobe.capture.torch.patches import Patches
from msprobe.guard import attempt

_without_functions = private.without_functions


class OperatorRecorder:
    """Records the operators of a thread and of the backward passes it starts: a part of the recorder."""

    def __init__(self, calls: CallRecorder, call_operators: CallOperators | None = None) -> None:
        self.calls = calls
        self.session = calls.session
        # Where the settings name calls, operators of others are not recorded.
        self._call_operators = call_operators
        self._watch: Watch = find_watch()
        self._was_on = threading.local()
        self._step_hook: Any = None
        self._patches = Patches()
        # Not of `torch.inference_mode` itself: a block that has begun knows how it ends already.
        self._patches.add(private.InferenceMode, "__exit__", self._leaving)

    def attach(self) -> None:
        """Begin to watch this thread."""
        self._watch.attach(self)
        self._patches.attach()
        self._step_hook = register_optimizer_step_post_hook(self._after_step)

    def detach(self) -> None:
        """Leave nothing behind."""
        self._patches.detach()
        self._watch.detach(self)
        if self._step_hook is not None:
            self._step_hook.remove()
            self._step_hook = None

    def _after_step(self, *step: Any) -> None:
        """Kernels of an optimizer of somebody else are no operators of torch, and no version shows what they wrote."""
        attempt(self.calls.statistics.forget_all)

    def _leaving(self, original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def __exit__(block: Any, *error: Any) -> Any:
            # The end of such a block restores what the dispatcher was at its beginning, when nobody watched yet.
            was_on = attempt(self._watch.is_on)
            result = original(block, *error)
            if was_on:
                attempt(self._watch_again)
            return result

        return __exit__

    def _watch_again(self) -> None:
        if not self.over and not self._watch.is_on():
            self._watch.resume(self)

    def pause(self) -> None:
        """A compiled region is entered: as :meth:`detach`, until :meth:`resume` in the same thread."""
        self._was_on.yes = self._watch.is_on()
        self._patches.detach()
        self._watch.detach(self)

    def resume(self) -> None:
        """It was left."""
        self._patches.attach()
        if getattr(self._was_on, "yes", False):
            self._watch.resume(self)

    @property
    def over(self) -> bool:
        """True once recording has ended."""
        return not self.session.recording

    @property
    def wants(self) -> bool:
        """False while this thread's recording is muted."""
        return not self.session.thread.muted

    # ------------------------------------------------------------ one operator

    def run(self, operator: Operator, go: Callable[[], Any], args: Sequence[Any], kwargs: Any) -> Any:
        """Run the operator by ``go`` and record it."""
        record = attempt(self._begin_unseen, operator, args, kwargs)
        # What an operator calls to do its work is part of it, also where it is not wanted itself.
        was_on = attempt(self._watch.leave)
        try:
            result = go()
        except BaseException as error:
            if was_on:
                attempt(self._watch.come_back)
            attempt(self._end_unseen, record, operator, args, kwargs, None, error)
            raise
        if was_on:
            attempt(self._watch.come_back)
        attempt(self._end_unseen, record, operator, args, kwargs, result, None)
        return result

    def _begin_unseen(self, operator: Operator, args: Sequence[Any], kwargs: Any) -> _Record | None:
        with _without_functions(), self._watch.away():
            return self._begin(operator, args, kwargs)

    def _end_unseen(
        self,
        record: _Record | None,
        operator: Operator,
        args: Sequence[Any],
        kwargs: dict[str, Any],
        result: Any,
        error: BaseException | None,
    ) -> None:
        if operator.foreign and error is None:
            self.calls.statistics.forget_all()
        if record is not None:
            with _without_functions(), self._watch.away():
                self._end(record, operator, args, kwargs, result, error)

    def _begin(self, operator: Operator, args: Sequence[Any], kwargs: Any) -> _Record | None:
        session, calls = self.session, self.calls
        try:
            if calls.beginning is not None:
                calls.beginning(False)
            backward = private.in_backward()
            name = f"{operator.key}.{session.number(operator.key)}.forward"
            call = self._call_operators.place(backward) if self._call_operators is not None else None
            if call is None and calls.filter is not None and not calls.filter.wants_call(name):
                return None
            if not (calls.backward if backward else calls.forward):
                return None
            record = _Record(name, session.next_order(), session.stacks.here(), backward, call)
            if calls.own:
                record.held = calls.own.among(args, kwargs)
            if calls.input:
                record.inputs, record.kwinputs = self._inputs(name, operator, args, kwargs)
            return record
        except Exception as error:
            session.fault(operator.key, error)
            return None

    def _inputs(self, name: str, operator: Operator, args: Sequence[Any], kwargs: dict[str, Any]) -> tuple[Any, Any]:
        calls = self.calls
        given, given_named = args, kwargs
        if operator.unset:
            args = [None if i in operator.unset else value for i, value in enumerate(args)]
        if operator.unset_named and kwargs:
            kwargs = {word: None if word in operator.unset_named else value for word, value in kwargs.items()}
        if calls.saving and self.session.saves(name):
            inputs, named = calls.kept_inputs(name, args, kwargs)
        else:
            describe = calls.describer.describe
            inputs, named = [describe(v) for v in args], {k: describe(v) for k, v in kwargs.items()}
        # What is only written over has a shape, and no numbers.
        for position in operator.unset:
            if position < len(given):
                inputs[position] = without_values(given[position], operator)
        for word in operator.unset_named & given_named.keys():
            named[word] = without_values(given_named[word], operator)
        return inputs, named

    def _end(
        self,
        record: _Record,
        operator: Operator,
        args: Sequence[Any],
        kwargs: dict[str, Any],
        result: Any,
        error: BaseException | None,
    ) -> None:
        session, calls = self.session, self.calls
        try:
            for tensor in written(operator, args, kwargs):
                calls.statistics.invalidate(tensor)
            tree: dict[str, Any] = {}
            if calls.input:
                tree["input_args"] = record.inputs
                tree["input_kwargs"] = record.kwinputs
            tree["is_recompute"] = record.stack.recompute
            if calls.output:
                if error is not None:
                    tree["output"] = [None]
                elif operator.late or operator.unset_result:
                    for value in several(result):
                        if isinstance(value, torch.Tensor):
                            if operator.late:
                                calls.statistics.distrust(value, for_good=False)
                            else:
                                calls.statistics.leave_unwritten(value)
                    tree["output"] = [without_values(value, operator) for value in several(result)]
                else:
                    tree["output"] = calls.outputs_of(record.name, result)
            if error is not None:
                tree["error"] = f"{type(error).__name__}: {error}"[:2000]
            about: dict[str, Any] = {"order": record.order, "operator": operator.text}
            if record.backward:
                about["in_backward"] = True
            if record.call is not None:
                about["call"] = record.call
            if record.held:
                about["held"] = record.held
            if record.stack.source:
                about["source"] = record.stack.source
            tree["msprobe"] = about
            if calls.overflow:
                session.put_checked(record.name, tree, calls.keeper.overflowed, record.stack)
            else:
                session.put(record.name, tree, record.stack)
        except Exception as problem:
            session.fault(record.name, problem)


class _Record:
    """An operator between its beginning and its end."""

    __slots__ = ("backward", "call", "held", "inputs", "kwinputs", "name", "order", "stack")

    def __init__(self, name: str, order: int, stack: CallStack, backward: bool, call: str | None) -> None:
        self.name = name
        self.call = call
        self.order = order
        self.stack = stack
        self.backward = backward
        self.held: dict[str, str] = {}
        self.inputs: Any = []
        self.kwinputs: Any = {}
