"""The listeners of the forward stage: one looks at results, and one puts better ones in their place."""

from __future__ import annotations

from typing import Any

from msprobe.capture.events import Call, Event
from msprobe.capture.listeners import Changer, Changes, Result
from msprobe.guard import pass_on
from msprobe.messages import said, text_of
from msprobe.perturb.bench import Bench, WatchedCall
from msprobe.perturb.calls import OfCalls, PerturbationCheck
from msprobe.perturb.checking import Question, results_of
from msprobe.perturb.framework import Invocation
from msprobe.perturb.second_runs import NotPerturbedError
from msprobe.perturb.trees import LeafPath, leaves, mapped


class ForwardCheck(PerturbationCheck):
    """Makes calls again and compares what comes of them."""

    def question_of(self, event: Call, watched: WatchedCall, own: list[Any], result: Any) -> Question:
        """Does it give the same again?"""
        fw = self.bench.framework
        return Question(event, watched.first, own, lambda call, widened: results_of(fw, fw.again(call, widened)))


class Fix(OfCalls, Changer):
    """Puts the result of a more precise run, or of the CPU, in the place of the own one."""

    def __init__(self, bench: Bench) -> None:
        super().__init__(bench)
        self.changes = Changes(names=bench.calls.patterns() or ("*",), results=True)

    def before(self, event: Event) -> None:
        """A call is about to be made."""
        self.begin(event)

    def after(self, event: Event, result: Any) -> Result | None:
        """It has been made: another result in the place of its own."""
        results = self.results(event, result)
        if results is None:
            return None
        assert isinstance(event, Call)
        bench = self.bench
        watched, own = results
        if watched.copies is not None:
            bench.note(event, said("writes-result-into-argument"))
            return None
        mode = bench.settings.modes[0]
        bench.attempt(event, mode)
        if bench.lacks_memory(own):
            bench.note(event, said("too-little-memory"))
            return None
        try:
            value = self._better(mode, event, watched.first, result)
        except NotPerturbedError as reason:
            bench.note(event, text_of(reason))
            return None
        except Exception as error:
            pass_on(error)
            bench.note(event, said("second-run-failed", type(error).__name__, str(error)[:200]), "warning")
            return None
        bench.results.checked(event.key)
        return Result(value)

    def _better(self, mode: Any, event: Call, call: Invocation, own: Any) -> Any:
        bench = self.bench
        fw = bench.framework
        second = bench.checks.seconds.prepare(mode, event.key, call)
        if bench.settings.fix_graph:
            rerun = fw.with_graph(call, mode == "to_cpu")
        else:
            rerun = fw.again(second.call, second.widened)
        others = dict(leaves(rerun))
        places = [place for place, _ in leaves(own)]
        if list(others) != places:
            raise NotPerturbedError(said("repeated-parts-differ", len(places), len(others)))

        def put(place: LeafPath, leaf: Any) -> Any:
            other = others[place]
            if not fw.is_tensor(leaf):
                return leaf
            if not fw.is_tensor(other) or fw.shown_shape(other) != fw.shown_shape(leaf):
                raise NotPerturbedError(said("repeated-shape-other"))
            return fw.with_dtype_of(other, leaf)

        return mapped(own, put)
