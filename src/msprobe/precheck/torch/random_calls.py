"""A call that draws random numbers: no two runs agree, so it is judged by what it drew itself.

- What stands around its draws is computed again with the same draws (:mod:`msprobe.precheck.torch.draws`), forward and
  backward, and compared element by element.
- Where a result has a relation to an argument, each element must have it (:mod:`msprobe.precheck.torch.relations`).
- How the numbers are distributed is compared with draws of the reference (:mod:`msprobe.precheck.torch.distribution`).
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch

from msprobe.precheck.columns import JudgedResult
from msprobe.precheck.torch.distribution import draws_for, judge_distribution
from msprobe.precheck.torch.draws import seed_draws
from msprobe.precheck.torch.inputs import Inputs
from msprobe.precheck.torch.machine import Machine, Outcome, run_call
from msprobe.precheck.torch.reference import promoted
from msprobe.precheck.torch.relations import (
    Branch,
    branches_of,
    has_own_factors,
    judge_branches,
    judge_own_factors,
)


@dataclass
class RandomCall:
    """One call that draws. ``plain``: draws of the reference in the types of the call; ``wide``: one in double
    precision, with its gradients.
    """

    key: str
    inputs: Inputs
    plain: list[Outcome]
    wide: list[Outcome]

    def rows(self, device: Outcome) -> list[JudgedResult]:
        """How the results of the candidate are distributed, a row each."""
        return [
            judge_distribution(
                f"{self.key}.forward.output.{place}",
                [outcome.outputs[place] for outcome in self.plain],
                theirs,
                [tensor for tensor in self.inputs.tensors() if tensor.is_floating_point() and _fits(tensor, theirs)],
                [tensor for tensor in self.inputs.tensors() if _is_real(tensor)],
            )
            for place, theirs in enumerate(device.outputs[: len(self.plain[0].outputs)])
        ]

    def relation(self, device: Outcome) -> list[JudgedResult]:
        """What is found by the relation of the first result to an argument; nothing where there is none."""
        result = device.outputs[0] if device.outputs else None
        if not isinstance(result, torch.Tensor) or not result.is_floating_point():
            return []
        for path, x in self._arguments():
            if not _fits(x, result):
                continue
            gradient = device.gradients.get(path)
            arrived = self._arrived(result)
            branches = self._branches(x)
            if branches:
                own = gradient if self._has_gradients_of(branches, path, x) else None
                return judge_branches(self.key, branches, x, result, own, arrived)
            wide = next((outcome for outcome in self.wide if path in outcome.gradients), None)
            if wide is not None and has_own_factors(
                x.double(), wide.outputs[0], wide.gradients[path], self._arrived(wide.outputs[0])
            ):
                return [judge_own_factors(self.key, x, result, gradient, arrived)] if gradient is not None else []
        return []

    def _arguments(self) -> list[tuple[str, torch.Tensor]]:
        return [pair for pair in zip(self.inputs.paths(), self.inputs.tensors(), strict=True) if _is_real(pair[1])]

    def _branches(self, x: torch.Tensor) -> list[Branch]:
        draws = [outcome.outputs[0] for outcome in self.wide]
        return branches_of(x, draws) if all(_fits(x, draw) for draw in draws) else []

    def _has_gradients_of(self, branches: list[Branch], path: str, x: torch.Tensor) -> bool:
        """True if the gradient of the reference is that of the branch on which its result is."""
        wide = self.wide[0]
        gradient, arrived = wide.gradients.get(path), self._arrived(wide.outputs[0])
        rows = judge_branches("", branches, x.double(), wide.outputs[0], gradient, arrived)
        return len(rows) > 1 and rows[1].status == "pass"

    def _arrived(self, result: torch.Tensor) -> torch.Tensor | None:
        """The gradient that comes in to the first result, in its type."""
        given = self.inputs.gradients[0] if self.inputs.gradients else None
        if not isinstance(given, torch.Tensor) or given.shape != result.shape:
            return None
        return given.to(result.dtype)


def random_call(
    key: str, bare: Callable[..., Any], inputs: Inputs, backward: bool, machine: Machine, seed: int
) -> RandomCall:
    """Make the draws of the reference: what it draws comes from the seed and the call."""
    plain: list[Outcome] = []
    many = 1
    while len(plain) < many:
        seed_draws(key, f"reference {len(plain)}", seed)
        plain.append(machine.run(bare, inputs, False))
        sizes = [output.numel() for output in plain[0].outputs if isinstance(output, torch.Tensor)]
        many = draws_for(max(sizes, default=0))
    wide: list[Outcome] = []
    given = promoted(inputs, "", True)
    with contextlib.suppress(Exception):
        for number in range(2):
            seed_draws(key, f"wide reference {number}", seed)
            wide.append(run_call(bare, replace(given), backward and not number))
    return RandomCall(key, inputs, plain, wide)


def _is_real(tensor: torch.Tensor) -> bool:
    return tensor.is_floating_point() and tensor.layout is torch.strided


def _fits(tensor: torch.Tensor, result: Any) -> bool:
    return isinstance(result, torch.Tensor) and tensor.shape == result.shape and tensor.numel() > 0
