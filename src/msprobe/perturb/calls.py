"""What the listeners of the free benchmark do alike: which calls can be made again, and what they gave."""

from __future__ import annotations

import contextlib
from dataclasses import replace
from typing import Any

from msprobe.capture.events import Call, Event, Failure, OptimizerStep, Step
from msprobe.capture.listeners import Observer
from msprobe.guard import pass_on
from msprobe.messages import said
from msprobe.perturb.bench import Bench, WatchedCall
from msprobe.perturb.checking import Question, is_worth_checking, results_of
from msprobe.perturb.second_runs import tensors_of


class OfCalls:
    """What all listeners do: follow steps and calls, and choose the calls that can be made again."""

    def __init__(self, bench: Bench) -> None:
        self.bench = bench
        self.wants = bench.wants(("forward",))
        self.cadence = bench.cadence
        self.names_met: set[str] | None = bench.calls.met
        self._watched: dict[str, WatchedCall] = {}
        # The step of an optimizer that is under way.
        self._optimizer: str | None = None
        self._has_closure = False

    def step_begin(self, event: Step) -> None:
        """A step begins."""
        self.forget()
        self.bench.step_begin(event)

    def step_end(self, event: Step) -> None:
        """It is over."""
        self.forget()
        self.bench.step_end(event)

    def failed(self, event: Failure) -> None:
        """A call or step has raised."""
        self._watched.pop(event.name, None)
        if isinstance(event.event, OptimizerStep):
            self._optimizer = None

    def end(self) -> None:
        """The program is over."""
        self.forget()
        self.bench.end()

    def forget(self) -> None:
        """Nothing of a step that is over is waited for."""
        self._watched.clear()
        self._optimizer = None

    def begin(self, event: Event) -> None:
        """A call, or the step of an optimizer, is about to be made."""
        if isinstance(event, OptimizerStep):
            self._optimizer = None if event.is_skipped else event.name
            self._has_closure = event.has_closure
            return
        assert isinstance(event, Call)
        # With a closure the program's own calls are in it, too.
        if self._optimizer is not None and (not self._has_closure or self.bench.framework.is_in_optimizer()):
            return
        try:
            watched = self.bench.begin(event)
        except Exception as error:
            pass_on(error)
            self.bench.note(event, said("call-cannot-be-read", type(error).__name__))
            return
        if watched is not None:
            self._watched[event.name] = watched

    def results(self, event: Event, result: Any) -> tuple[WatchedCall, list[Any]] | None:
        """What is compared of the result of a call that is looked at and can be made again."""
        if isinstance(event, OptimizerStep):
            self._optimizer = None
            return None
        watched = self._watched.pop(event.name, None)
        if watched is None:
            return None
        assert isinstance(event, Call)
        try:
            return self._comparable(event, watched, result)
        except Exception as error:
            pass_on(error)
            self.bench.note(event, said("result-cannot-be-read", type(error).__name__))
            return None

    def _comparable(self, event: Call, watched: WatchedCall, result: Any) -> tuple[WatchedCall, list[Any]] | None:
        bench = self.bench
        fw = bench.framework
        own = results_of(fw, result)
        if not is_worth_checking(fw, own) or not bench.is_unwritten(event, watched):
            return None
        tensors = [argument for argument in own if fw.is_tensor(argument)]
        why = next((reason for reason in map(fw.why_not, tensors) if reason), "")
        if why:
            bench.note(event, why)
            return None
        arguments = [leaf for _, leaf in tensors_of(fw, watched.call)]
        if watched.copies is None and fw.shares_memory(tensors, arguments):
            bench.note(event, said("result-is-view-of-argument"))
            return None
        with_graph = watched.copies is None and any(
            fw.is_float(argument) and fw.requires_grad(argument) for argument in tensors
        )
        return replace(watched, call=replace(watched.call, with_graph=with_graph)), own


class PerturbationCheck(OfCalls, Observer):
    """Looks and changes nothing. It keeps modes, graphs and random numbers of the program untouched by itself, as most
    calls are none that it looks at.

    What is asked of a call is all that the checks differ in: ``question_of``, and when it can be asked.
    """

    is_careful = True

    def __init__(self, bench: Bench) -> None:
        super().__init__(bench)
        # What is looked at when the step is over.
        self._later: list[tuple[Call, WatchedCall, list[Any], Any]] = []

    def forget(self) -> None:
        self._later.clear()
        super().forget()

    def step_end(self, event: Step) -> None:
        later, self._later = self._later, []
        for check_later in later:
            with self.bench.framework.aside(), contextlib.suppress(Exception):
                try:
                    self.look(*check_later)
                finally:
                    self.bench.framework.settle()
        super().step_end(event)

    def before(self, event: Event) -> None:
        """A call is about to be made."""
        with self.bench.framework.aside():
            self.begin(event)

    def after(self, event: Event, result: Any) -> None:
        """It has been made."""
        with self.bench.framework.aside():
            results = self.results(event, result)
            if results is not None:
                assert isinstance(event, Call)
                if self.bench.framework.asks_later:
                    self._later.append(self._kept(event, *results, result))
                else:
                    self.look(event, *results, result)

    def _kept(
        self, event: Call, watched: WatchedCall, own: list[Any], result: Any
    ) -> tuple[Call, WatchedCall, list[Any], Any]:
        """A call as it is now: the program may write to its tensors until the step is over."""
        fw = self.bench.framework
        copies = self.bench.checks.seconds.prepare("no_change", event.key, watched.first).call
        own = [fw.twin(argument) if fw.is_tensor(argument) else argument for argument in own]
        return replace(event, args=(), kwargs={}), replace(watched, call=copies, copies=None), own, result

    def look(self, event: Call, watched: WatchedCall, own: list[Any], result: Any) -> None:
        """Look at a call that can be made again. ``own``: what is compared of ``result``, which it gave."""
        with self.bench.framework.random_numbers_kept():
            self.ask(self.question_of(event, watched, own, result))

    def question_of(self, event: Call, watched: WatchedCall, own: list[Any], result: Any) -> Question | None:
        """What is asked when the call is over; None if nothing can be. Random numbers are the program's again later."""
        raise NotImplementedError

    def ask(self, question: Question | None) -> None:
        """Make the call again in each mode."""
        if question is not None:
            self.bench.check(question)
