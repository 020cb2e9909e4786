"""The listeners: one looks at results, one at gradients, and one puts better results in the place of the own ones."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from msprobe.capture.events import Call, Event, Failure, Gradient, OptimizerStep, Step
from msprobe.capture.listeners import Changer, Changes, Observer, Result
from msprobe.perturb.bench import Bench, Watched
from msprobe.perturb.checking import Run, is_worth_checking, results_of
from msprobe.perturb.framework import Framework, Invocation
from msprobe.perturb.second_runs import NotPerturbedError, positions_with_gradient, tensors_of
from msprobe.perturb.thresholds import wider
from msprobe.perturb.trees import Place, leaves, mapped

_VIEW = "its result is an argument or a view of one"


class _OfCalls:
    """What all of them do at the beginning of calls and steps."""

    def __init__(self, bench: Bench) -> None:
        self.bench = bench
        self.wants = bench.wants(("forward",))
        self.cadence = bench.cadence
        self._watched: dict[str, Watched] = {}
        # The step of an optimizer that is under way.
        self._optimizer: str | None = None
        self._has_closure = False

    def step_begin(self, event: Step) -> None:
        """A step begins."""
        self._forget()
        self.bench.step_begin(event)

    def step_end(self, event: Step) -> None:
        """It is over."""
        self._forget()
        self.bench.step_end(event)

    def failed(self, event: Failure) -> None:
        """A call or step has raised."""
        self._watched.pop(event.name, None)
        if isinstance(event.event, OptimizerStep):
            self._optimizer = None

    def end(self) -> None:
        """The program is over."""
        self._forget()
        self.bench.end()

    def _forget(self) -> None:
        self._watched.clear()
        self._optimizer = None

    def _begin(self, event: Event) -> None:
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
            self.bench.note(event, f"it cannot be looked into: {type(error).__name__}")
            return
        if watched is not None:
            self._watched[event.name] = watched

    def _results(self, event: Event, result: Any) -> tuple[Watched, list[Any]] | None:
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
            self.bench.note(event, f"its result cannot be looked into: {type(error).__name__}")
            return None

    def _comparable(self, event: Call, watched: Watched, result: Any) -> tuple[Watched, list[Any]] | None:
        bench = self.bench
        fw = bench.framework
        own = results_of(fw, result)
        if not is_worth_checking(fw, own) or not bench.is_unwritten(event, watched):
            return None
        tensors = [one for one in own if fw.is_tensor(one)]
        why = next((reason for reason in map(fw.why_not, tensors) if reason), "")
        if why:
            bench.note(event, why)
            return None
        arguments = [leaf for _, leaf in tensors_of(fw, watched.call)]
        if watched.copies is None and fw.shares_memory(tensors, arguments):
            bench.note(event, _VIEW)
            return None
        with_graph = watched.copies is None and any(fw.is_float(one) and fw.requires_grad(one) for one in tensors)
        return replace(watched, call=replace(watched.call, with_graph=with_graph)), own


class _Check(_OfCalls, Observer):
    """What those do alike that look and change nothing. They keep modes, graphs and random numbers of the program
    untouched by themselves, as most calls are none that they look at.
    """

    is_careful = True

    def before(self, event: Event) -> None:
        """A call is about to be made."""
        with self.bench.framework.aside():
            self._begin(event)

    def after(self, event: Event, result: Any) -> None:
        """It has been made."""
        with self.bench.framework.aside():
            found = self._results(event, result)
            if found is not None:
                assert isinstance(event, Call)
                self._look(event, *found, result)

    def _look(self, event: Call, watched: Watched, own: list[Any], result: Any) -> None:
        """Look at a call that can be made again; ``own``: what is compared of its result."""
        raise NotImplementedError

    def _compare(
        self, event: Any, call: Invocation, own: Sequence[Any], run: Run, places: Sequence[Place] | None = None
    ) -> None:
        """Make a call again in each mode; see :meth:`Bench.check`."""
        for mode in self.bench.settings.modes:
            self.bench.check(event, mode, call, own, run, event.source, places)

    def _differentiate(self, event: Any, call: Invocation, wanted: Sequence[Place], gradients: Sequence[Any]) -> None:
        """Compute the gradients at the places ``wanted`` plainly, and again in each mode."""
        bench, fw = self.bench, self.bench.framework

        def run(invocation: Invocation, widened: bool) -> Sequence[Any]:
            return fw.vjp(invocation, wanted, _rounded(fw, gradients, invocation.rounding), widened)

        try:
            own = run(_with_tensors(bench, call, fw.twin), False)
        except Exception as error:
            bench.note(event, f"its gradients cannot be computed again: {type(error).__name__}", "warning")
            return
        self._compare(event, call, own, run, wanted)


class ForwardCheck(_Check):
    """Makes calls again and compares what comes of them."""

    def _look(self, event: Call, watched: Watched, own: list[Any], result: Any) -> None:
        fw = self.bench.framework
        with fw.random_numbers_kept():
            self._compare(event, watched.first, own, lambda call, widened: results_of(fw, fw.again(call, widened)))


class BackwardAtOnce(_Check):
    """Differentiates calls twice for gradients of ones when they are over: where nobody tells of those that come."""

    def _look(self, event: Call, watched: Watched, own: list[Any], result: Any) -> None:
        fw, call = self.bench.framework, watched.first
        wanted = [place for place, leaf in tensors_of(fw, call) if fw.is_float(leaf)]
        with fw.random_numbers_kept():
            self._differentiate(event, call, wanted, fw.ones_for(result))


@dataclass
class _Held:
    """A call whose gradients are to come. ``versions``: of its tensors, when it was over."""

    call: Invocation
    key: str
    number: int
    name: str
    step: int
    source: str
    wanted: Sequence[Place]
    # Which results a gradient may arrive at, by their place in the record.
    expects: frozenset[str]
    places: Sequence[str]
    tensors: Sequence[Any]
    versions: Sequence[int]
    gradients: dict[str, Any] = field(default_factory=dict)


class BackwardCheck(_Check):
    """Computes the gradients of calls again, plainly and with changed inputs, when those of their results come."""

    def __init__(self, bench: Bench) -> None:
        super().__init__(bench)
        self.wants = bench.wants(("forward", "backward"))
        self._held: dict[tuple[str, int], _Held] = {}

    def _forget(self) -> None:
        # Gradients of a step that is over do not come any more.
        self._held.clear()
        super()._forget()

    def _look(self, event: Call, watched: Watched, own: list[Any], result: Any) -> None:
        """Keep what gradients can be computed of."""
        bench, fw = self.bench, self.bench.framework
        whole = result if isinstance(result, tuple) else (result,)
        placed = [(_path(place), leaf) for place, leaf in leaves(whole) if fw.is_tensor(leaf)]
        expects = frozenset(path for path, leaf in placed if fw.is_float(leaf) and fw.requires_grad(leaf))
        if not expects:
            return
        if watched.copies is not None:
            bench.note(event, "its gradients are not computed again, as it writes to its arguments")
            return
        wanted = positions_with_gradient(fw, watched.call)
        if not wanted:
            return
        keep = fw.on_cpu if bench.settings.offload else fw.detached
        call = _with_tensors(bench, watched.call, keep)
        tensors = [leaf for _, leaf in tensors_of(fw, call)]
        self._held[event.key, event.number] = _Held(
            call,
            event.key,
            event.number,
            event.name,
            event.step,
            event.source,
            wanted,
            expects,
            [path for path, _ in placed],
            tensors,
            fw.versions(tensors),
        )

    def gradient(self, event: Any) -> None:
        """A gradient has come back through a call."""
        assert isinstance(event, Gradient)
        held = self._held.get((event.key, event.number))
        if held is None:
            return
        try:
            with self.bench.framework.aside():
                self._take(held, event)
        except Exception as error:
            self._held.pop((event.key, event.number), None)
            self.bench.note(held, f"its gradients cannot be looked into: {type(error).__name__}")

    def _take(self, held: _Held, event: Gradient) -> None:
        if event.side == "argument":
            # Those of results that have not come will not.
            self._check(held)
            return
        if event.place in held.expects:
            is_last = len(held.expects) == 1
            fw = self.bench.framework
            why = fw.why_not(event.gradient)
            if why:
                self.bench.note(held, why)
                del self._held[held.key, held.number]
                return
            # Not held beyond this moment without a copy: the engine adds in place to what nobody else has.
            held.gradients[event.place] = event.gradient if is_last else fw.twin(event.gradient)
            if len(held.gradients) == len(held.expects):
                self._check(held)

    def _check(self, held: _Held) -> None:
        del self._held[held.key, held.number]
        bench, fw = self.bench, self.bench.framework
        if not held.gradients:
            return
        if not bench.settings.offload and fw.versions(held.tensors) != held.versions:
            bench.note(held, "its arguments were written to before its gradients came")
            return
        if any(fw.why_not(tensor) for tensor in held.tensors):
            bench.note(held, "the memory of its arguments was given back before its gradients came")
            return
        call = held.call
        if bench.settings.offload:
            like = next(iter(held.gradients.values()))
            call = _with_tensors(bench, call, lambda tensor: fw.on_device_of(tensor, like))
        gradients = [held.gradients.get(place) for place in held.places]
        with fw.random_numbers_kept():
            self._differentiate(held, call, held.wanted, gradients)


class Fix(_OfCalls, Changer):
    """Puts the result of a more precise run, or of the CPU, in the place of the own one."""

    def __init__(self, bench: Bench) -> None:
        super().__init__(bench)
        self.changes = Changes(names=bench.calls.patterns() or ("*",), results=True)

    def before(self, event: Event) -> None:
        """A call is about to be made."""
        self._begin(event)

    def after(self, event: Event, result: Any) -> Result | None:
        """It has been made: another result in the place of its own."""
        found = self._results(event, result)
        if found is None:
            return None
        assert isinstance(event, Call)
        bench = self.bench
        watched, own = found
        if watched.copies is not None:
            bench.note(event, "it writes its result into an argument, which cannot have another one")
            return None
        mode = bench.settings.modes[0]
        bench.attempt(event.name, mode)
        if bench.lacks_memory(own):
            bench.note(event, "there is too little free memory for a second run")
            return None
        try:
            value = self._better(mode, event, watched.first, result)
        except NotPerturbedError as reason:
            bench.note(event, str(reason))
            return None
        except Exception as error:
            bench.note(event, f"the second run failed: {type(error).__name__}: {str(error)[:200]}", "warning")
            return None
        bench.results.checked(event.key)
        return Result(value)

    def _better(self, mode: Any, event: Call, call: Invocation, own: Any) -> Any:
        bench = self.bench
        fw = bench.framework
        second = bench.checks.seconds.prepare(mode, event.key, call)
        if bench.settings.fix_graph:
            found = fw.with_graph(call, mode == "to_cpu")
        else:
            found = fw.again(second.call, second.widened)
        others = dict(leaves(found))
        places = [place for place, _ in leaves(own)]
        if list(others) != places:
            raise NotPerturbedError(f"its result has {len(places)} parts, and {len(others)} when it is made again")

        def put(place: Place, leaf: Any) -> Any:
            other = others[place]
            if not fw.is_tensor(leaf):
                return leaf
            if not fw.is_tensor(other) or fw.shown_shape(other) != fw.shown_shape(leaf):
                raise NotPerturbedError("its result has another shape when it is made again")
            return fw.with_dtype_of(other, leaf)

        return mapped(own, put)


def _rounded(framework: Framework, gradients: Sequence[Any], rounding: tuple[float, int] | None) -> Sequence[Any]:
    """The gradients that arrive, moved as the other inputs of a call are; in a type that can tell."""
    if rounding is None:
        return gradients
    unit, seed = rounding
    return [
        None if one is None else framework.rounded(framework.cast(one, wider(framework.dtype(one))), unit, seed)
        for one in gradients
    ]


def _with_tensors(bench: Bench, call: Invocation, change: Any) -> Invocation:
    fw = bench.framework

    def leaf(place: Place, value: Any) -> Any:
        return change(value) if fw.is_tensor(value) else value

    return replace(call, args=mapped(tuple(call.args), leaf), kwargs=mapped(dict(call.kwargs), leaf))


def _path(place: Place) -> str:
    return ".".join(["output", *map(str, place)])
