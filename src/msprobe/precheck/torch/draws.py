"""What a call has drawn, noted and given again: the reference computes with the numbers that the candidate drew.

Operators that draw are those that PyTorch tags ``nondeterministic_seeded``. What they give, or write, is noted while
the candidate runs; when the reference runs, they give the same numbers in its type and draw nothing. So whatever stands
around a draw (the division of a dropout, a logarithm, a backward) is judged exactly, on any device.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch

from msprobe.capture.torch.private import DispatchMode
from msprobe.messages import said
from msprobe.precheck.generate import generator_for
from msprobe.precheck.side.places import are_labels
from msprobe.precheck.side.trees import leaves_of


class OtherDrawsError(RuntimeError):
    """A call draws otherwise than the one whose draws it is to be given."""


@dataclass(frozen=True)
class Draw:
    """One operator that drew: its name, what it returned and the arguments that it wrote to."""

    name: str
    results: list[Any]
    written: list[torch.Tensor]


@dataclass
class Draws:
    """The draws of one call, in their order."""

    all: list[Draw] = field(default_factory=list)

    def noting(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """The function, whose draws are noted here when it is called, those of its last call alone."""

        def call(*args: Any, **kwargs: Any) -> Any:
            self.all.clear()
            with _Noting(self.all):
                return function(*args, **kwargs)

        return call

    def given_to(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """The function with these draws in place of its own. Raises OtherDrawsError where it draws otherwise."""

        def call(*args: Any, **kwargs: Any) -> Any:
            giving = _Giving(self.all)
            with giving:
                result = function(*args, **kwargs)
            if giving.count != len(self.all):
                raise OtherDrawsError(said("draws-differ", giving.count, len(self.all)))
            return result

        return call

    def off(self, eps: float, seed: int) -> Draws:
        """The same with floats that are smaller by ``eps`` of their size at random places; zeros and ones stay."""
        random = torch.Generator().manual_seed(seed)

        def less(value: Any) -> Any:
            if not isinstance(value, torch.Tensor) or not value.is_floating_point() or are_labels(value):
                return value
            return value.double() * (1 - eps * torch.randint(0, 2, value.shape, generator=random))

        return Draws([Draw(draw.name, [*map(less, draw.results)], [*map(less, draw.written)]) for draw in self.all])


def seed_draws(key: str, side: str, seed: int) -> None:
    """Seed what a side of a check draws in a call: the same in every check, whoever runs it and in whatever order."""
    torch.manual_seed(int(generator_for(key, f"draws of {side}", seed).integers(1 << 62)))


def is_drawing(function: Any) -> bool:
    """Whether an operator draws random numbers."""
    return torch.Tag.nondeterministic_seeded in function.tags


def _written(function: Any, args: Any, kwargs: Any) -> list[torch.Tensor]:
    """The tensors among the arguments that an operator writes to."""
    tensors = []
    for place, argument in enumerate(function._schema.arguments):
        if argument.alias_info is not None and argument.alias_info.is_write:
            value = args[place] if place < len(args) else kwargs.get(argument.name)
            tensors += [value] if isinstance(value, torch.Tensor) else []
    return tensors


class _Noting(DispatchMode):  # type: ignore[misc]
    """Notes what operators draw."""

    def __init__(self, draws: list[Draw]) -> None:
        super().__init__()
        self._noted = draws

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        result = func(*args, **kwargs)
        if is_drawing(func):
            results = [_copy(leaf) for leaf in leaves_of(result)]
            self._noted.append(Draw(str(func), results, [_copy(tensor) for tensor in _written(func, args, kwargs)]))
        return result


class _Giving(DispatchMode):  # type: ignore[misc]
    """Gives what was drawn before."""

    def __init__(self, draws: list[Draw]) -> None:
        super().__init__()
        self._draws = draws
        self.count = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if not is_drawing(func):
            return func(*args, **kwargs)
        if self.count >= len(self._draws) or self._draws[self.count].name != str(func):
            raise OtherDrawsError(said("draws-by-different-function", func))
        draw = self._draws[self.count]
        self.count += 1
        written = _written(func, args, kwargs)
        for target, drawn in zip(written, draw.written, strict=True):
            if target.shape != drawn.shape:
                raise OtherDrawsError(said("draws-into-different-shape", func, tuple(target.shape), tuple(drawn.shape)))
            target.copy_(drawn)
        if func._schema.returns and func._schema.returns[0].alias_info is not None and written:
            return written[0]
        wide = _type_of(args, kwargs)
        results = [_as(result, wide) for result in draw.results]
        return results[0] if len(results) == 1 else tuple(results)


def _copy(value: Any) -> Any:
    return value.detach().cpu().clone() if isinstance(value, torch.Tensor) else value


def _type_of(args: Any, kwargs: Any) -> torch.dtype | None:
    """The float type that an operator is asked for, by a word or by its arguments."""
    given = kwargs.get("dtype")
    if given is not None:
        return given  # type: ignore[no-any-return]
    for leaf in leaves_of([*args, *kwargs.values()]):
        if isinstance(leaf, torch.Tensor) and leaf.is_floating_point():
            return leaf.dtype
    return None


def _as(value: Any, wide: torch.dtype | None) -> Any:
    if not isinstance(value, torch.Tensor):
        return value
    floats = value.is_floating_point() and wide is not None and wide.is_floating_point
    return value.to(wide) if floats else value.clone()
