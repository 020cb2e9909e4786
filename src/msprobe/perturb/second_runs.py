"""A call with other inputs: what of its arguments is changed, in which way, and what comes of it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from msprobe.config.settings import FreeBenchmark, PerturbationMode
from msprobe.messages import said
from msprobe.perturb.framework import Framework, Invocation
from msprobe.perturb.operators import ElementExchange, exchange_of, seeks_equals
from msprobe.perturb.thresholds import is_low, wider
from msprobe.perturb.trees import LeafPath, leaves, mapped


class NotPerturbedError(Exception):
    """A call that is not made again, with the reason."""


@dataclass(frozen=True)
class Second:
    """A call to make in place of another one.

    ``widened``: autocast is off in it. ``changed``: the argument that is another one, and what it is now; None where no
    value changed. ``exchange``: what to expect of its result.
    """

    call: Invocation
    widened: bool = False
    changed: tuple[Any, Any] | None = None
    exchange: ElementExchange | None = None


class SecondRuns:
    """Makes second calls of first ones."""

    def __init__(self, framework: Framework, settings: FreeBenchmark) -> None:
        self.framework = framework
        self.settings = settings

    def prepare(self, mode: PerturbationMode, key: str, call: Invocation) -> Second:
        """The call to make in this mode. Raises NotPerturbedError."""
        fw = self.framework
        if mode == "no_change":
            return Second(self._with(call, lambda place, tensor: fw.twin(tensor)))
        if mode == "to_cpu":
            return Second(self._with(call, self._to_cpu), widened=True)
        if mode == "improve_precision":
            return self._improved(call)
        if mode == "change_value":
            return self._exchanged(key, call)
        if seeks_equals(key):
            raise NotPerturbedError(said("seeks-equal-elements"))
        return self._noisy(mode, call)

    def widened(self, call: Invocation, own: str) -> Invocation:
        """The same call, its tensors in a type wider than ``own``."""
        fw = self.framework

        def change(place: LeafPath, tensor: Any) -> Any:
            return fw.cast(tensor, wider(own)) if fw.is_float(tensor) else fw.twin(tensor)

        return self._with(call, change)

    def rounded(self, call: Invocation, unit: float, seed: int) -> Invocation:
        """The same call, each element of its float tensors moved by ``unit``, relative."""
        fw = self.framework

        def change(place: LeafPath, tensor: Any) -> Any:
            return fw.rounded(tensor, unit, seed) if fw.is_float(tensor) else fw.twin(tensor)

        return replace(self._with(call, change), rounding=(unit, seed))

    def moved(self, call: Invocation, unit: float, seed: int) -> Invocation:
        """The same call in its own types, each element of its float tensors moved by a rounding of its type; gradients
        that arrive by ``unit``, relative.
        """
        fw = self.framework

        def change(place: LeafPath, tensor: Any) -> Any:
            return fw.moved(tensor, seed) if fw.is_float(tensor) else fw.twin(tensor)

        return replace(self._with(call, change), rounding=(unit, seed))

    # ---------------------------------------------------------------- modes

    def _to_cpu(self, place: LeafPath, tensor: Any) -> Any:
        fw = self.framework
        on_cpu = fw.on_cpu(tensor)
        return fw.cast(on_cpu, "float32") if is_low(fw.dtype(tensor)) else on_cpu

    def _improved(self, call: Invocation) -> Second:
        fw = self.framework
        low = [place for place, tensor in tensors_of(fw, call) if is_low(fw.dtype(tensor))]
        if not low and not fw.precision(call.context):
            raise NotPerturbedError(said("no-half-precision-argument"))

        def change(place: LeafPath, tensor: Any) -> Any:
            return fw.cast(tensor, "float32") if is_low(fw.dtype(tensor)) else fw.twin(tensor)

        return Second(self._with(call, change), widened=True)

    def _noisy(self, mode: PerturbationMode, call: Invocation) -> Second:
        fw = self.framework
        reason, chosen, changed = "", None, None
        for _, tensor in tensors_of(fw, call):
            if not fw.is_float(tensor):
                continue
            perturbed = fw.perturbed(mode, tensor, self.settings)
            if not isinstance(perturbed, str):
                chosen, changed = tensor, perturbed
                break
            reason = reason or perturbed
        if chosen is None:
            raise NotPerturbedError(reason or said("no-float-argument"))

        def change(place: LeafPath, tensor: Any) -> Any:
            return changed if tensor is chosen else fw.twin(tensor)

        return Second(self._with(call, change), changed=(chosen, changed))

    def _exchanged(self, key: str, call: Invocation) -> Second:
        fw = self.framework
        ranks = [fw.rank(value) if fw.is_tensor(value) else -1 for value in call.args]
        exchange = exchange_of(key, call.args, call.kwargs, ranks)
        if exchange is None:
            raise NotPerturbedError(said("exchange-result-unknown"))
        changed: dict[LeafPath, Any] = {}
        for position, axis in exchange.places:
            tensor = call.args[position]
            if not fw.is_tensor(tensor) or not fw.is_float(tensor):
                raise NotPerturbedError("dtype unsupported")
            exchanged = fw.exchanged(tensor, axis)
            if isinstance(exchanged, str):
                raise NotPerturbedError(exchanged)
            changed["args", position] = exchanged

        def change(place: LeafPath, tensor: Any) -> Any:
            return changed[place] if place in changed else fw.twin(tensor)

        return Second(self._with(call, change, changed), exchange=exchange)

    # ---------------------------------------------------------------- arguments

    def _with(
        self, call: Invocation, change: Callable[[LeafPath, Any], Any], apart: Collection[LeafPath] = ()
    ) -> Invocation:
        """The same call with other tensors. ``apart``: places whose tensor is changed in its own way there."""
        fw = self.framework
        made: dict[tuple[int, LeafPath | None], Any] = {}

        def leaf(place: LeafPath, value: Any) -> Any:
            if not fw.is_tensor(value):
                return value
            if place[1:] == ("out",):
                # Written to, and read by nobody: the kernel makes its own.
                return None
            # Some kernels are chosen by whether two arguments are one, and by whether a gradient is wanted of them.
            known = (id(value), place if place in apart else None)
            if known not in made:
                made[known] = fw.as_required(change(place, value), value)
            return made[known]

        args = mapped(tuple(call.args), leaf, ("args",))
        kwargs: Mapping[str, Any] = mapped(dict(call.kwargs), leaf, ("kwargs",))
        kwargs = {word: value for word, value in kwargs.items() if word != "out"}
        if kwargs.get("inplace") is True:
            kwargs = {**kwargs, "inplace": False}
        return replace(call, args=args, kwargs=kwargs)


def expected(framework: Framework, exchange: ElementExchange | None, own: Any) -> Any:
    """What a result has to be when its inputs were exchanged. Raises NotPerturbedError if it is not known."""
    if exchange is None or exchange.result == "same":
        return own
    axis = exchange.axis
    assert axis is not None
    if exchange.result == "last":
        return framework.last(own, axis)
    exchanged = framework.exchanged(own, axis)
    if isinstance(exchanged, str):
        raise NotPerturbedError(exchanged)
    return exchanged


def tensors_of(framework: Framework, call: Invocation) -> list[tuple[LeafPath, Any]]:
    """The tensors among the arguments of a call, with their places."""
    whole = {"args": tuple(call.args), "kwargs": dict(call.kwargs)}
    return [(place, leaf) for place, leaf in leaves(whole) if framework.is_tensor(leaf)]


def positions_with_gradient(framework: Framework, call: Invocation) -> Sequence[LeafPath]:
    """The places of the tensors that a gradient is wanted of."""
    return [
        place
        for place, leaf in tensors_of(framework, call)
        if framework.is_float(leaf) and framework.requires_grad(leaf)
    ]
