"""Wrong backward formulas that public threads report, against differences of the forward."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from msprobe.precheck.torch.formula import check_formula
from msprobe.precheck.torch.inputs import Inputs

Pass = Callable[..., torch.Tensor]


def some(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(sum(shape)))


def softmax(x: torch.Tensor) -> torch.Tensor:
    return x.softmax(-1)


def norm(x: torch.Tensor) -> torch.Tensor:
    return (x - x.mean(-1, keepdim=True)) * torch.rsqrt(x.var(-1, keepdim=True, correction=0) + 1e-5)


def renorm(x: torch.Tensor) -> torch.Tensor:
    return x * (1.0 / (x.norm(dim=-1, keepdim=True) + 1e-7)).clamp(max=1.0)


def back(forward: Pass) -> Pass:
    """The right backward of a function of one argument."""

    def gradient(x: torch.Tensor, g: torch.Tensor) -> torch.Tensor:
        with torch.enable_grad():
            x = x.detach().requires_grad_()
            return torch.autograd.grad(forward(x), x, g)[0]

    return gradient


def rsigma(x: torch.Tensor) -> torch.Tensor:
    return torch.rsqrt(x.var(-1, keepdim=True, correction=0) + 1e-5)


ANGLES = some(8)


def rotated(x: torch.Tensor, way: float = 1.0) -> torch.Tensor:
    one, two = x.chunk(2, -1)
    cos, sin = ANGLES.cos(), way * ANGLES.sin()
    return torch.cat([one * cos - two * sin, two * cos + one * sin], -1)


#: (forward, a backward of x and of the gradient that comes in)
WRONG: dict[str, tuple[Pass, Pass]] = {
    # pytorch 59615: the gradient of renorm takes its factor for a constant
    "renorm": (renorm, lambda x, g: g * (1.0 / (x.norm(dim=-1, keepdim=True) + 1e-7)).clamp(max=1.0)),
    # many fused softmax kernels: the sum over the row is not taken off
    "softmax without its sum": (softmax, lambda x, g: g * softmax(x) * (1 - softmax(x))),
    # many fused norms: the part of the mean is left out, or that of the variance
    "a norm without its mean": (
        norm, lambda x, g: rsigma(x) * (g - norm(x) * (g * norm(x)).mean(-1, keepdim=True))
    ),
    "a norm without its variance": (norm, lambda x, g: rsigma(x) * (g - g.mean(-1, keepdim=True))),
    # apex, Megatron: the gradient of a rotary place is turned the same way as the place
    "turned the same way": (rotated, lambda x, g: rotated(g)),
    # many: silu without the part of its sigmoid
    "silu without a part": (lambda x: x * x.sigmoid(), lambda x, g: g * x.sigmoid()),
    # the derivative of another form of gelu
    "gelu of another form": (
        torch.nn.functional.gelu, back(lambda x: torch.nn.functional.gelu(x, approximate="tanh"))
    ),
    # pytorch 57166: the gradient of a sort goes to the sorted places
    "a sort": (lambda x: x.sort(-1)[0] * torch.arange(16.0), lambda x, g: g * torch.arange(16.0)),
    # a gradient of a mean that is not divided, of a sum that is
    "a mean that is not divided": (lambda x: x.mean(-1), lambda x, g: g[:, None].expand_as(x)),
    # cumsum backward in the same direction
    "cumsum forwards": (lambda x: x.cumsum(-1), lambda x, g: g.cumsum(-1)),
    # a loss with a smoothing whose gradient does not know of it
    "a loss with smoothing": (
        lambda x: torch.nn.functional.cross_entropy(x, torch.arange(6), label_smoothing=0.1),
        back(lambda x: torch.nn.functional.cross_entropy(x, torch.arange(6))),
    ),
    # a clamp whose gradient passes everywhere
    "a clamp that passes all": (lambda x: x.clamp(-0.5, 0.5), lambda x, g: g),
}  # fmt: skip
#: Right ones at places that threads call hard: ties, kinks, zeros, large sizes.
RIGHT: dict[str, tuple[Pass, torch.Tensor]] = {
    # pytorch 56275: products over zeros, cumprod in fast mode
    "cumprod": (lambda x: x.cumprod(-1), some(6, 16)),
    "a product with a zero": (lambda x: x.prod(-1), some(6, 16) * (torch.arange(16) != 3)),
    "the largest of ties": (lambda x: x.amax(-1), torch.ones(6, 16, dtype=torch.float64)),
    "a norm at zero": (lambda x: x.norm(dim=-1), torch.zeros(6, 16, dtype=torch.float64)),
    "a kink": (lambda x: x.relu(), torch.zeros(6, 16, dtype=torch.float64)),
    # pytorch 57166: perturbed numbers of a sort change places
    "a sort of close numbers": (lambda x: x.sort(-1)[0], some(6, 16) * 1e-9),
    "a division by small numbers": (lambda x: 1 / x, some(6, 16) * 1e-3 + 1e-2),
    "log1p of small numbers": (torch.log1p, some(6, 16).abs() * 1e-8),
    # csuhan/s2anet 115: a Jacobian of 40,000 GiB
    "a large argument": (lambda x: x[:, :4].tanh(), some(400, 160)),
    "a table": (lambda x: x[torch.tensor([0, 0, 5])], some(6, 16)),
}


def checked(function: Callable[..., Any], x: torch.Tensor) -> Any:
    return check_formula("Call.0", function, Inputs([x], {}, None, ["0"]))


@pytest.mark.parametrize("name", WRONG)
def test_a_backward_of_a_thread_is_no_derivative(name: str) -> None:
    forward, backward = WRONG[name]

    class Call(torch.autograd.Function):
        @staticmethod
        def forward(context: Any, x: torch.Tensor) -> torch.Tensor:
            context.save_for_backward(x)
            return forward(x)

        @staticmethod
        def backward(context: Any, gradient: torch.Tensor) -> torch.Tensor:
            return backward(context.saved_tensors[0], gradient)

    x = some(6, 16)
    assert checked(Call.apply, x).status == "error"
    assert checked(forward, x).status == "pass"


@pytest.mark.parametrize("name", RIGHT)
def test_a_right_backward_is_never_an_error(name: str) -> None:
    function, x = RIGHT[name]
    found = checked(function, x)
    assert found.status in ("pass", "SKIP"), found.message
