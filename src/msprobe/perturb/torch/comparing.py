"""How far apart two tensors of PyTorch are."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import torch

from msprobe.messages import said
from msprobe.perturb.framework import ErrorLimits, Reactions, TensorDistance
from msprobe.signed_errors import CheckedResult, judge_signed

# Larger tensors are gone through in parts; what is found is found in all of them.
_PART = 1 << 22
# How many times its rounding a result may be off: errors of several roundings add up, and rounding of inputs is a
# random draw from what it may be.
_FACTOR = 4.0
# Rows of at least so many elements have a scale of their own.
_ROW = 16


def compare(own: torch.Tensor, other: torch.Tensor, limits: ErrorLimits) -> TensorDistance:
    """By the ratio of magnitudes; ``own`` counts in the type of ``other``."""
    _check_shapes(own, other)
    if own.dtype is torch.bool or not own.numel():
        return TensorDistance(True)
    a = own.detach().to(device=other.device, dtype=other.dtype)
    if torch.equal(a, other):
        return TensorDistance(True)
    a, b = _numbers(a), _numbers(other.detach())
    if _is_quickly_equal(a, b, limits):
        return TensorDistance(True)
    worst, word, total, bad, count = 1.0, "", 0.0, 0, 0
    for first, two in _parts(a, b):
        numbers = _compare_part(first, two, limits)
        ratio, is_mismatch, is_flip, sum_rel, n_bad = numbers.tolist()
        worst = max(worst, ratio)
        word = "nan_mismatch" if is_mismatch else word or ("symbol_flipping" if is_flip else "")
        total, bad, count = total + sum_rel, bad + int(n_bad), count + first.numel()
    is_equal = not word and worst <= limits.ratio
    return TensorDistance(is_equal, worst, word, total / count, bad / count)


def _is_quickly_equal(a: torch.Tensor, b: torch.Tensor, limits: ErrorLimits) -> bool:
    """True if all is finite and equal; False if that takes a longer look. A third of its time."""
    for first, two in _parts(a, b):
        ratio = first.abs().clamp_(min=limits.floor).div_(two.abs().clamp_(min=limits.floor))
        numbers = torch.stack([*ratio.aminmax(), (first * two).amin()]).tolist()
        low, high, product = numbers
        # Comparisons with NaN are false.
        if not (low >= 1 / limits.ratio and high <= limits.ratio and product >= -(limits.floor**2)):
            return False
    return True


def _compare_part(a: torch.Tensor, b: torch.Tensor, limits: ErrorLimits) -> torch.Tensor:
    mismatch, flips, ratio, a, b = _elements(a, b, limits.floor)
    bad = (ratio > limits.ratio) | mismatch | flips
    relative = (a - b).abs() / a.abs().clamp(min=limits.floor)
    numbers = (ratio.amax(), mismatch.any(), flips.any(), relative.sum(), bad.sum())
    return torch.stack([number.to(relative.dtype) for number in numbers])


def _elements(
    a: torch.Tensor, b: torch.Tensor, floor: float
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    """Of each element: finite on one side alone; another sign; ratio of magnitudes; and both, zero where not finite."""
    if all(math.isfinite(end) for side in (a, b) for end in _ends(side)):
        mismatch = torch.zeros((), dtype=torch.bool, device=a.device)
    else:
        same = (a == b) | (a.isnan() & b.isnan())
        finite = a.isfinite() & b.isfinite()
        mismatch = ~finite & ~same
        a, b = torch.where(finite, a, 0), torch.where(finite, b, 0)
    flips = (a * b) < -(floor**2)
    r = a.abs().clamp_(min=floor).div_(b.abs().clamp_(min=floor))
    return mismatch, flips, torch.maximum(r, 1 / r), a, b


def _ends(tensor: torch.Tensor) -> list[float]:
    """The least and the greatest element; NaN if there is one."""
    return torch.stack(tensor.aminmax()).tolist()


def compare_with_cpu(own: torch.Tensor, golden: torch.Tensor, limit: float, mean_limit: float) -> TensorDistance:
    """By the relative error from 1 on and the absolute one below, and by the mean of the signed one."""
    _check_shapes(own, golden)
    if not own.numel():
        return TensorDistance(True)
    a, b = _numbers(own.detach()).to("cpu", torch.float64), _numbers(golden.detach()).to("cpu", torch.float64)
    same = (a == b) | (a.isnan() & b.isnan())
    finite = a.isfinite() & b.isfinite()
    if bool((~finite & ~same).any()):
        return TensorDistance(False, word="nan_mismatch", bad_ratio=float((~finite & ~same).double().mean()))
    a, b = torch.where(finite, a, 0), torch.where(finite, b, 0)
    error = a - b
    relative = error.abs() / b.abs().clamp(min=torch.finfo(torch.float32).tiny)
    is_bad = torch.where(a.abs() >= 1, relative > limit, error.abs() > limit)
    mean = torch.where(b.abs() >= 1, error / b.abs().clamp(min=1), error).mean()
    if not bool(is_bad.any()) and abs(float(mean)) <= mean_limit:
        return TensorDistance(True)
    # Small elements count with their absolute error, so that one near zero is not all that shows.
    relative_errors = torch.where(a.abs() >= 1, relative, error.abs())
    return TensorDistance(
        False, 1 + float(relative_errors.max()), "", float(relative_errors.mean()), float(is_bad.double().mean())
    )


def is_explained(own: torch.Tensor, other: torch.Tensor, limits: ErrorLimits, reactions: Reactions) -> bool:
    """See :meth:`msprobe.perturb.framework.Framework.is_explained`.

    An element may be off by so many roundings of its own value, and by what the call answers to inputs that are moved
    by a rounding each: that of the element, or the root mean square of its row, as one draw may be small by chance.
    """
    base = _wide(reactions.base)
    a, b = (_wide(side).to(base.device) for side in (own.to(other.dtype), other))
    shifted = [_wide(shift).to(base.device) for shift in reactions.shifted]
    mismatch, flips, ratio, a, b = _elements(a, b, limits.floor)
    bad = (ratio > limits.ratio) | flips
    # A number that is infinite or none at all, where the wider type has one as well, or has one for the other inputs.
    unbounded = ~base.isfinite()
    answer = torch.zeros_like(base)
    for shift in shifted:
        unbounded = unbounded | ~shift.isfinite()
        answer = torch.maximum(answer, (shift - base).abs().nan_to_num(0.0, 0.0, 0.0))
    allowed = 2 * reactions.unit * base.abs().nan_to_num(0.0, 0.0, 0.0)
    allowed = _FACTOR * (allowed + torch.maximum(answer, _scale(answer)))
    unexplained = (bad & ((a - b).abs() > allowed)) | mismatch
    return not bool((unexplained & ~unbounded).any())


def goes_one_way(own: torch.Tensor, reactions: Reactions) -> str:
    base = _wide(reactions.base)
    given = _wide(own).to(base.device)
    if base.shape != given.shape or not base.numel():
        return ""
    shifted = [_wide(shift).to(base.device) for shift in reactions.shifted]
    finite = base.isfinite() & given.isfinite()
    for shift in shifted:
        finite = finite & shift.isfinite()
    base = torch.where(finite, base, 0)
    answer = torch.zeros_like(base)
    for shift in shifted:
        answer = torch.maximum(answer, torch.where(finite, (shift - base).abs(), 0))
    epsilon = 2 * reactions.unit
    units = torch.exp2(torch.floor(torch.log2(base.abs().clamp(min=torch.finfo(torch.float32).tiny)))) * epsilon
    typical = float(base.square().mean().sqrt()) * epsilon / 8
    scale = torch.maximum(units, answer).clamp(min=typical)
    judged = judge_signed(CheckedResult(base, torch.where(finite, given - base, 0), units, scale, epsilon))
    return judged.message if judged.status != "pass" else ""


def _scale(answer: torch.Tensor) -> torch.Tensor:
    if answer.dim() > 1 and answer.size(-1) >= _ROW:
        return answer.square().mean(-1, keepdim=True).sqrt()
    return answer.square().mean().sqrt()


def distance(first: torch.Tensor, other: torch.Tensor) -> float:
    """Norm of the difference over the norm of the first."""
    a, b = _numbers(first.detach()), _numbers(other.detach())
    b = b.to(a)
    norm, apart = _norms(a, a - b)
    if not math.isfinite(norm + apart):
        # A number that is none, or a square that is too large.
        a, b = _wide(a), _wide(b)
        finite = a.isfinite() & b.isfinite()
        a, b = torch.where(finite, a, 0), torch.where(finite, b, 0)
        norm, apart = _norms(a, a - b)
    return apart / norm if norm else (0.0 if not apart else float("inf"))


def _norms(first: torch.Tensor, other: torch.Tensor) -> list[float]:
    norms = torch.linalg.vector_norm(first), torch.linalg.vector_norm(other)
    return torch.stack(norms).tolist()


def _check_shapes(own: torch.Tensor, other: torch.Tensor) -> None:
    if own.shape != other.shape:
        raise ValueError(said("repeated-shape-differs", list(own.shape), list(other.shape)))


def _numbers(tensor: torch.Tensor) -> torch.Tensor:
    """Real numbers of a type that ratios can be computed in."""
    if tensor.is_complex():
        tensor = torch.view_as_real(tensor.resolve_conj())
    if tensor.dtype is torch.float64:
        return tensor
    if tensor.is_floating_point():
        return tensor.to(torch.float32)
    return tensor.to(torch.float32 if tensor.device.type == "npu" else torch.float64)


def _wide(tensor: Any) -> torch.Tensor:
    numbers = _numbers(tensor.detach())
    return numbers if numbers.device.type == "npu" else numbers.to(torch.float64)


def _parts(a: torch.Tensor, b: torch.Tensor) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    if a.numel() <= _PART:
        yield a, b
        return
    flat_a, flat_b = a.reshape(-1), b.reshape(-1)
    for begin in range(0, a.numel(), _PART):
        yield flat_a[begin : begin + _PART], flat_b[begin : begin + _PART]
