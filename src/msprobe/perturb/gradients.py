"""The listeners of the backward stage: the gradients of a call, computed plainly and again with other inputs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from msprobe.capture.events import Call, Gradient
from msprobe.guard import pass_on
from msprobe.messages import said
from msprobe.perturb.bench import Bench, WatchedCall
from msprobe.perturb.calls import PerturbationCheck
from msprobe.perturb.checking import Question
from msprobe.perturb.framework import Framework, Invocation
from msprobe.perturb.second_runs import positions_with_gradient, tensors_of
from msprobe.perturb.thresholds import wider
from msprobe.perturb.trees import LeafPath, leaves, mapped


class _Differentiating(PerturbationCheck):
    """Asks for the gradients of calls."""

    def differentiated(
        self, event: Any, call: Invocation, wanted: Sequence[LeafPath], gradients: Sequence[Any]
    ) -> Question | None:
        """Are the gradients at the places ``wanted`` the same again? None if they cannot be computed once."""
        bench, fw = self.bench, self.bench.framework

        def run(invocation: Invocation, widened: bool) -> Sequence[Any]:
            return fw.vjp(invocation, wanted, _rounded(fw, gradients, invocation.rounding), widened)

        try:
            own = run(_with_tensors(bench, call, fw.twin), False)
        except Exception as error:
            pass_on(error)
            bench.note(event, said("gradients-not-computable", type(error).__name__), "warning")
            return None
        return Question(event, call, own, run, wanted)


class BackwardOfOnes(_Differentiating):
    """Differentiates calls twice for gradients of ones: where nobody hands on those that come."""

    def question_of(self, event: Call, watched: WatchedCall, own: list[Any], result: Any) -> Question | None:
        """Are the gradients for ones the same again?"""
        fw, call = self.bench.framework, watched.first
        wanted = [place for place, leaf in tensors_of(fw, call) if fw.is_float(leaf)]
        return self.differentiated(event, call, wanted, fw.ones_for(result))


@dataclass
class _Held:
    """A call whose gradients are to come. ``versions``: of its tensors, when it was over."""

    call: Invocation
    key: str
    number: int
    name: str
    step: int
    source: str
    wanted: Sequence[LeafPath]
    # Which results a gradient may arrive at, by their place in the record.
    expects: frozenset[str]
    places: Sequence[str]
    tensors: Sequence[Any]
    versions: Sequence[int]
    gradients: dict[str, Any] = field(default_factory=dict)


class BackwardCheck(_Differentiating):
    """Computes the gradients of calls again, plainly and with changed inputs, when those of their results come."""

    def __init__(self, bench: Bench) -> None:
        super().__init__(bench)
        self.wants = bench.wants(("forward", "backward"))
        self._held: dict[tuple[str, int], _Held] = {}

    def forget(self) -> None:
        # Gradients of a step that is over do not come any more.
        self._held.clear()
        super().forget()

    def look(self, event: Call, watched: WatchedCall, own: list[Any], result: Any) -> None:
        """Keep what gradients can be computed of."""
        bench, fw = self.bench, self.bench.framework
        whole = result if isinstance(result, tuple) else (result,)
        placed = [(_path(place), leaf) for place, leaf in leaves(whole) if fw.is_tensor(leaf)]
        expects = frozenset(path for path, leaf in placed if fw.is_float(leaf) and fw.requires_grad(leaf))
        if not expects:
            return
        if watched.copies is not None:
            bench.note(event, said("gradients-of-written-arguments"))
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
            pass_on(error)
            self._held.pop((event.key, event.number), None)
            self.bench.note(held, said("gradients-cannot-be-read", type(error).__name__))

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
            bench.note(held, said("arguments-written-before-gradients"))
            return
        if any(fw.why_not(tensor) for tensor in held.tensors):
            bench.note(held, said("arguments-freed-before-gradients"))
            return
        call = held.call
        if bench.settings.offload:
            like = next(iter(held.gradients.values()))
            call = _with_tensors(bench, call, lambda tensor: fw.on_device_of(tensor, like))
        gradients = [held.gradients.get(place) for place in held.places]
        with fw.random_numbers_kept():
            self.ask(self.differentiated(held, call, held.wanted, gradients))


def _rounded(framework: Framework, gradients: Sequence[Any], rounding: tuple[float, int] | None) -> Sequence[Any]:
    """The gradients that arrive, moved as the other inputs of a call are; in a type that has enough digits."""
    if rounding is None:
        return gradients
    unit, seed = rounding
    return [
        None
        if gradient is None
        else framework.rounded(framework.cast(gradient, wider(framework.dtype(gradient))), unit, seed)
        for gradient in gradients
    ]


def _with_tensors(bench: Bench, call: Invocation, change: Any) -> Invocation:
    fw = bench.framework

    def leaf(place: LeafPath, value: Any) -> Any:
        return change(value) if fw.is_tensor(value) else value

    return replace(call, args=mapped(tuple(call.args), leaf), kwargs=mapped(dict(call.kwargs), leaf))


def _path(place: LeafPath) -> str:
    return ".".join(["output", *map(str, place)])
