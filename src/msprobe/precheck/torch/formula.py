"""Is the backward the derivative of the forward? In double precision on the CPU, whatever the candidate.

For one random direction ``v`` of the results the backward gives the gradient of ``<v, f>`` to every element of the
arguments at once. Its parts are compared with differences of ``<v, f>``: each element's where they are few, and where
they are many those along random directions, each of a part of one argument. No Jacobian is made, so memory is that of
a few calls. What cannot be computed is a SKIP: it is no fault of the operator.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from msprobe.messages import said
from msprobe.precheck.columns import JudgedResult
from msprobe.precheck.generate import generator_for
from msprobe.precheck.side.trees import leaves_of
from msprobe.precheck.torch.draws import seed_draws
from msprobe.precheck.torch.inputs import Inputs

#: Each element of so many is asked for by itself; of more, so many groups of them.
_MOST_ELEMENTS = 512
_GROUPS = 64
_STEP = 1e-6
_RTOL, _ATOL = 1e-4, 1e-6
#: By so much, relative, the slopes on both sides differ where a function has an edge, as that of relu.
_EDGE = 1e-2
#: Nobody waits longer for one call; what has been asked until then counts.
_SECONDS = 20.0


def check_formula(name: str, function: Callable[..., Any], inputs: Inputs, seed: int = 1234) -> JudgedResult:
    """Compare the backward with finite differences."""
    try:
        return _checked(name, function, inputs, seed)
    except _UnknownError as problem:
        return JudgedResult(name, "SKIP", said("formula-not-checked", problem))
    except (Exception, MemoryError) as problem:
        text = (str(problem).strip().splitlines() or [""])[0]
        return JudgedResult(name, "SKIP", said("formula-not-checked", f"{type(problem).__name__}: {text[:200]}"))


class _UnknownError(Exception):
    """Why nothing can be said."""


@dataclass
class _Sum:
    """``<v, f>`` as a function of the arguments that gradients are wanted of."""

    function: Callable[..., Any]
    inputs: Inputs
    paths: Sequence[str]
    name: str
    seed: int
    directions: list[torch.Tensor] | None = None

    def at(self, given: Sequence[torch.Tensor]) -> torch.Tensor:
        """The sum, for these arguments."""
        by_path = dict(zip(self.paths, given, strict=True))
        args, kwargs = self.inputs.map(
            lambda tensor, path: by_path[path].clone() if path in by_path else tensor.detach().clone()
        )
        seed_draws(self.name, "formula", self.seed)
        result = self.function(*args, **kwargs)
        if result is None and args and isinstance(args[0], torch.Tensor):
            result = args[0]
        results = [leaf for leaf in leaves_of(result) if isinstance(leaf, torch.Tensor)]
        if self.directions is None:
            self.directions = [self._direction(number, result) for number, result in enumerate(results)]
        total = torch.zeros((), dtype=torch.float64)
        for value, direction in zip(results, self.directions, strict=True):
            if direction.numel():
                total = total + (value.to_dense() * direction.conj()).sum().real
        return total

    def _direction(self, number: int, result: torch.Tensor) -> torch.Tensor:
        if not result.requires_grad or not (result.is_floating_point() or result.is_complex()):
            return torch.zeros(0, dtype=torch.float64)
        if result.dtype not in (torch.float64, torch.complex128):
            raise _UnknownError(said("type-too-narrow"))
        random = generator_for(self.name, f"direction {number}", self.seed)
        generator = torch.Generator().manual_seed(int(random.integers(1 << 62)))
        return torch.randn(result.shape, dtype=result.dtype, generator=generator)


def _checked(name: str, function: Callable[..., Any], inputs: Inputs, seed: int) -> JudgedResult:
    paths, leaves = _leaves(inputs)
    if not leaves:
        return JudgedResult(name, "SKIP", said("no-gradient-required"))
    total = _Sum(function, inputs, paths, name, seed)
    value = total.at(leaves)
    if not value.requires_grad:
        raise _UnknownError(said("no-result-depends"))
    gradients = torch.autograd.grad(value, leaves, allow_unused=True)
    with torch.no_grad():
        if total.at(leaves) != total.at(leaves):
            raise _UnknownError(said("two-runs-differ"))
        return _compared(name, total, paths, leaves, gradients)


def _leaves(inputs: Inputs) -> tuple[list[str], list[torch.Tensor]]:
    paths: list[str] = []
    leaves: list[torch.Tensor] = []

    def note(tensor: torch.Tensor, path: str) -> torch.Tensor:
        if path in inputs.wanted:
            paths.append(path)
            leaves.append(tensor.detach().clone().requires_grad_())
        return tensor

    inputs.map(note)
    return paths, leaves


def _compared(
    name: str, total: _Sum, paths: Sequence[str], leaves: list[torch.Tensor], gradients: Sequence[torch.Tensor | None]
) -> JudgedResult:
    count = sum(leaf.numel() for leaf in leaves)
    start, asked, unsure = time.monotonic(), 0, 0
    largest = max(
        (float(gradient.abs().max()) for gradient in gradients if gradient is not None and gradient.numel()),
        default=0.0,
    )
    for path, leaf, gradient in zip(paths, leaves, gradients, strict=True):
        for place, direction in _directions(f"{name} {path}", leaf, count <= _MOST_ELEMENTS, total.seed):
            if time.monotonic() - start > _SECONDS:
                break
            expected = 0.0 if gradient is None else float((gradient * direction.conj()).sum().real)
            slope, error = _difference(total, leaves, leaf, direction)
            asked += 1
            size = max(abs(expected), largest * float(direction.abs().max()) if gradient is not None else 0.0)
            if error > max(_ATOL, _RTOL * size):
                unsure += 1  # an edge of the function lies within the step
                continue
            if abs(slope - expected) > max(_ATOL, _RTOL * max(abs(expected), abs(slope))) + 4 * error:
                return JudgedResult(
                    name,
                    "error",
                    said("backward-is-no-derivative", expected, place, path, slope),
                )
    if asked == unsure:
        raise _UnknownError(said("no-derivative"))
    return JudgedResult(name, "pass", said("backward-is-derivative"))


def _directions(name: str, leaf: torch.Tensor, each: bool, seed: int) -> list[tuple[str, torch.Tensor]]:
    """Directions in which an argument is moved: one for each element, or for each of some groups of elements."""
    directions: list[tuple[str, torch.Tensor]] = []
    units = [torch.tensor(1.0, dtype=leaf.dtype)]
    if leaf.is_complex():
        units.append(torch.tensor(1j, dtype=leaf.dtype))
    if each:
        for number in range(leaf.numel()):
            for unit in units:
                direction = torch.zeros(leaf.numel(), dtype=leaf.dtype)
                direction[number] = unit
                directions.append((said("element-number", number), direction.reshape(leaf.shape)))
        return directions
    generator = torch.Generator().manual_seed(int(generator_for(name, "groups", seed).integers(1 << 62)))
    groups = min(_GROUPS, leaf.numel())
    order = torch.randperm(leaf.numel(), generator=generator)
    for number in range(groups):
        chosen = order[number::groups]
        direction = torch.zeros(leaf.numel(), dtype=leaf.dtype)
        direction[chosen] = torch.randn(chosen.numel(), dtype=leaf.dtype, generator=generator)
        directions.append((said("elements-and-others", chosen[:3].tolist()), direction.reshape(leaf.shape)))
    return directions


def _difference(
    total: _Sum, leaves: list[torch.Tensor], leaf: torch.Tensor, direction: torch.Tensor
) -> tuple[float, float]:
    """The derivative along a direction by differences, and how far it is from that of a step of half the size."""
    scale = max(1.0, float(leaf.abs().nan_to_num(0.0, 0.0, 0.0).max()) if leaf.numel() else 1.0)

    def at(step: float) -> float:
        moved = [moved_leaf + step * direction if moved_leaf is leaf else moved_leaf for moved_leaf in leaves]
        return float(total.at(moved))

    def slope(step: float) -> float:
        return (at(step) - at(-step)) / (2 * step)

    step = _STEP * scale
    here, above, below = at(0.0), at(step), at(-step)
    right, left = (above - here) / step, (here - below) / step
    fine, coarse = slope(step / 2), (above - below) / (2 * step)
    edge = abs(right - left) if abs(right - left) > _EDGE * max(abs(right), abs(left)) else 0.0
    return fine, max(abs(coarse - fine), edge)
