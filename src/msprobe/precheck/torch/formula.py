"""Is the backward the derivative of the forward? In double precision on the CPU, whatever the candidate."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from msprobe.precheck.columns import Judged
from msprobe.precheck.torch.inputs import Inputs
from msprobe.precheck.torch.machine import flat_outputs

# Each element of each argument costs two runs of the call.
_MOST_ELEMENTS = 512


def check_formula(name: str, function: Callable[..., Any], inputs: Inputs) -> Judged:
    """Compare the backward with finite differences (``torch.autograd.gradcheck``)."""
    chosen: list[str] = []
    leaves: list[torch.Tensor] = []

    def note(tensor: torch.Tensor, path: str) -> torch.Tensor:
        if path in inputs.wanted:
            chosen.append(path)
            leaves.append(tensor.detach().clone().requires_grad_())
        return tensor

    inputs.map(note)
    if not leaves:
        return Judged(name, "SKIP", "no argument requires a gradient.")
    count = sum(leaf.numel() for leaf in leaves)
    if count > _MOST_ELEMENTS:
        return Judged(name, "SKIP", f"{count} elements are too many for finite differences ({_MOST_ELEMENTS} at most).")

    def call(*given: torch.Tensor) -> Any:
        by_path = dict(zip(chosen, given, strict=True))
        args, kwargs = inputs.map(lambda tensor, path: by_path[path].clone() if path in by_path else tensor)
        results = flat_outputs(function(*args, **kwargs))
        return tuple(one for one in results if isinstance(one, torch.Tensor) and one.requires_grad)

    if any(result.dtype not in (torch.float64, torch.complex128) for result in call(*leaves)):
        return Judged(name, "SKIP", "the results are rounded to a narrower type than finite differences need.")
    try:
        torch.autograd.gradcheck(call, leaves, eps=1e-6, atol=1e-4, rtol=1e-3, nondet_tol=1e-10)
    except (RuntimeError, ValueError) as problem:
        return Judged(
            name, "error", f"the backward is not the derivative of the forward: {str(problem).splitlines()[0]}"
        )
    return Judged(name, "pass", "the backward is the derivative of the forward (finite differences).")
