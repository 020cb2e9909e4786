"""Samples of operators where torch's own (OpInfo) cannot be imported: each function is tried with simple arguments.

Fewer operators have some, and fewer arguments are tried, than with :mod:`msprobe.precheck.torch.samples`; all is made
by the public ``torch.testing.make_tensor``.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import torch
import torch.nn.functional
from torch.testing import make_tensor

from msprobe.capture.api_list import shipped_list

# Give memory that nobody has written, change their arguments, or are no function of numbers.
_LEFT_OUT = frozenset(
    """empty_like empty_permuted empty_strided resize_as_ from_file frombuffer save load compile rrelu
    feature_dropout feature_alpha_dropout fused_moving_avg_obs_fake_quant""".split()
)
_PREFIXES = {"torch": "", "functional": "nn.functional."}
_SPACES = {"torch": torch, "functional": torch.nn.functional}


@dataclass(frozen=True)
class Sample:
    """One call, in the words of OpInfo."""

    input: torch.Tensor
    args: tuple[Any, ...]
    kwargs: dict[str, Any] = field(default_factory=dict)


# Each a way to call a function: with a list of shapes of float tensors ("labels": whole numbers from 0 to 3) and plain
# arguments. In the order of how much a call like it says.
_Form = tuple[Any, ...]
_FORMS: tuple[_Form, ...] = (
    ((5, 4), (5, 4)),
    ((5, 4),),
    ((5, 4), (4, 3)),
    ((2, 5, 4), (2, 4, 3)),
    ((5, 4), (4,)),
    ((4,), (4,)),
    ((5, 4), (3, 4), (3,)),
    ((5, 4), (5, 4), (5, 4)),
    ((5, 3), (5, 4), (4, 3)),
    ((2, 2, 5, 4), (2, 2, 5, 4), (2, 2, 5, 4)),
    ((5, 4), "labels"),
    ((2, 3, 9), (4, 3, 3)),
    ((2, 3, 9, 9), (4, 3, 3, 3)),
    ((2, 3, 7, 7, 7), (4, 3, 3, 3, 3)),
    ((5, 4), -1),
    ((5, 4), (4,), 1e-5),
    ((5, 4), [4]),
    ((2, 4, 5), 2),
    ((2, 4, 6, 6), 2),
    ((2, 4, 6, 6, 6), 2),
    ((4, 4),),
    ((5, 4), 0, 1),
)
# Of most functions the first range has values of both signs; others are only defined in one of the others.
_RANGES = ((-2.0, 2.0), (0.1, 0.9), (1.1, 3.0))


class SimpleOperator:
    """A function of torch that takes one of the simple forms; what :class:`OpInfo` has of what a check asks for."""

    aliases: tuple[Any, ...] = ()

    def __init__(self, name: str, op: Callable[..., Any]) -> None:
        self.name, self.op = name, op
        self.formatted_name = name.replace(".", "_")

    def supported_dtypes(self, device: str) -> set[torch.dtype]:
        """The float types in which it runs on the CPU; the form is chosen in single precision."""
        if not self._forms:
            return set()
        halves = {dtype for dtype in (torch.float16, torch.bfloat16, torch.float64) if self._runs(dtype)}
        return {torch.float32, *halves}

    supported_backward_dtypes = supported_dtypes

    @property
    def supports_autograd(self) -> bool:
        """Of which calls there are gradients is tried with each of them."""
        return True

    def sample_inputs(self, device: str, dtype: torch.dtype, requires_grad: bool) -> Iterator[Sample]:
        """Calls with one form each."""
        for form, low, high in self._forms:
            sample = _sample(form, low, high, dtype, requires_grad)
            if requires_grad and not _has_derivative(self.op, sample):
                sample = _sample(form, low, high, dtype, False)
            yield sample

    @cached_property
    def _forms(self) -> list[tuple[_Form, float, float]]:
        state = torch.get_rng_state()
        try:
            forms = (self._form(form) for form in _FORMS)
            return [form for form in forms if form is not None]
        finally:
            torch.set_rng_state(state)

    def _form(self, form: _Form) -> tuple[_Form, float, float] | None:
        for low, high in _RANGES:
            result = _result(self.op, _sample(form, low, high, torch.float32, False))
            if isinstance(result, torch.Tensor) and result.numel() and bool(result.isfinite().all()):
                return form, low, high
        return None

    def _runs(self, dtype: torch.dtype) -> bool:
        form, low, high = self._forms[0]
        return _result(self.op, _sample(form, low, high, dtype, False)) is not None


def simple_operators() -> list[Any]:
    """All functions of the list of recorded APIs that take one of the simple forms."""
    lists = shipped_list("msprobe.capture.torch")
    by_name: dict[str, SimpleOperator] = {}
    for group, prefix in _PREFIXES.items():
        for name in lists[group]:
            op = getattr(_SPACES[group], name, None)
            if name.startswith("_") or name.endswith("_") or name in _LEFT_OUT or not callable(op):
                continue
            by_name.setdefault(f"{prefix}{name}", SimpleOperator(f"{prefix}{name}", op))
    return list(by_name.values())


def _sample(form: _Form, low: float, high: float, dtype: torch.dtype, requires_grad: bool) -> Sample:
    def made(part: Any) -> Any:
        if part == "labels":
            return torch.arange(5) % 4
        if not isinstance(part, tuple):
            return part
        return make_tensor(part, dtype=dtype, device="cpu", low=low, high=high, requires_grad=requires_grad)

    first, *further = map(made, form)
    return Sample(first, tuple(further))


def _result(op: Callable[..., Any], sample: Sample) -> Any:
    """The first tensor that a call gives; None where it cannot be called so."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            result = op(sample.input, *sample.args)
        except Exception:
            return None
    first = result[0] if isinstance(result, tuple) and result else result
    is_dense = isinstance(first, torch.Tensor) and first.layout is torch.strided and not first.is_quantized
    return first if is_dense else None


def _has_derivative(op: Callable[..., Any], sample: Sample) -> bool:
    """False where the call, or its backward, refuses one of the arguments that require a gradient."""
    result = _result(op, sample)
    try:
        if result is not None and result.requires_grad:
            result.sum().backward()
    except RuntimeError:
        return False
    for tensor in (sample.input, *sample.args):
        if isinstance(tensor, torch.Tensor):
            tensor.grad = None
    return result is not None
