"""Parameters that hooks of other tools miss, as public threads have them: each is in both tables of gradients, with the
number that it has, or a line names it. A comment names the thread.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.utils import parametrizations
from torch.utils.checkpoint import checkpoint
from unit.monitor.torch.monitored import make

WIDTH = 8


class With(nn.Module):
    """Two layers and what a function makes of them."""

    def __init__(self, work: Callable[[Any, torch.Tensor], torch.Tensor], **parts: Any) -> None:
        super().__init__()
        self.one, self.two = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, 3)
        for name, part in parts.items():
            setattr(self, name, part)
        self.work = work

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.two(self.work(self, x))  # type: ignore[no-any-return]


def parameter(*shape: int) -> nn.Parameter:
    return nn.Parameter(torch.randn(shape, generator=torch.Generator().manual_seed(0)))


def tied() -> nn.Module:
    model = With(lambda own, x: own.other(own.one(x).tanh()), other=nn.Linear(WIDTH, WIDTH))
    model.other.weight = model.one.weight
    return model


def frozen() -> nn.Module:
    model = With(lambda own, x: own.one(x) + x @ own.down @ own.up, down=parameter(WIDTH, 2), up=parameter(2, WIDTH))
    for one in model.one.parameters():
        one.requires_grad_(False)
    return model


MODELS: dict[str, Callable[[], nn.Module]] = {
    # https://github.com/meta-pytorch/torchrec/pull/4253: hooks on parameters that never fire
    "places and a token of the root": lambda: With(
        lambda own, x: own.one(torch.cat([own.token.expand(len(x), 1, -1), x + own.places], 1)),
        token=parameter(1, 1, WIDTH), places=parameter(1, 4, WIDTH),
    ),
    # https://github.com/huggingface/transformers/issues/31033: each parameter, not the whole model alone
    "a list and a dict of parameters": lambda: With(
        lambda own, x: own.one(x * own.scales[0] + own.shifts["a"]),
        scales=nn.ParameterList([parameter(WIDTH)]), shifts=nn.ParameterDict({"a": parameter(WIDTH)}),
    ),
    # many: low rank beside a frozen layer
    "low rank beside what is frozen": frozen,
    # many: one weight in two layers
    "a tied weight": tied,
    # https://github.com/yoshitomo-matsubara/torchdistill/pull/139: a container that is never called
    "layers of a list": lambda: With(
        lambda own, x: own.layers[1](own.layers[0](x)),
        layers=nn.ModuleList([nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH)])
    ),
    # many: the projections of MultiheadAttention are used by no module
    "attention with one weight for three": lambda: With(
        lambda own, x: own.attention(x, x, x)[0], attention=nn.MultiheadAttention(WIDTH, 2, batch_first=True)
    ),
    # many: weights that are computed from others
    "a weight norm": lambda: With(
        lambda own, x: own.normed(x), normed=parametrizations.weight_norm(nn.Linear(WIDTH, WIDTH))
    ),
    # many: a layer that runs once more in the backward pass
    "a layer that is recomputed": lambda: With(lambda own, x: checkpoint(own.one, x, use_reentrant=False)),
    # many: weights that are used by a function
    "weights of a layer that is never called": lambda: With(
        lambda own, x: F.linear(x, own.other.weight, own.other.bias), other=nn.Linear(WIDTH, WIDTH)
    ),
    # many: a layer that runs several times in a step
    "a layer in a loop": lambda: With(lambda own, x: own.one(own.one(own.one(x).tanh()).tanh())),
    # many: half of the weights are in another type
    "weights of two types": lambda: With(
        lambda own, x: own.short(x.bfloat16()).float(), short=nn.Linear(WIDTH, WIDTH).to(torch.bfloat16)
    ),
    # https://github.com/EleutherAI/gpt-neox/pull/297: a norm that lacks a part of the model
    "a recurrent layer": lambda: With(lambda own, x: own.gru(x)[0], gru=nn.GRU(WIDTH, WIDTH, batch_first=True)),
}  # fmt: skip


@pytest.mark.parametrize("micro", [1, 2])
@pytest.mark.parametrize("name", MODELS)
def test_every_trained_parameter_is_in_both_tables(tmp_path: Path, name: str, micro: int) -> None:
    torch.manual_seed(0)
    model = MODELS[name]()
    optimizer = torch.optim.SGD([one for one in model.parameters() if one.requires_grad], lr=0.01)
    monitor = make(tmp_path, {"wg_distribution": True, "squash_name": False, "format": "api"})
    monitor.set_monitor(model, optimizer=optimizer, grad_acc_steps=micro)
    for _ in range(2):
        optimizer.zero_grad()
        for _ in range(micro):
            model(torch.randn(2, 4, WIDTH)).square().mean().backward()
        expected = {
            name: float(one.grad.double().norm()) for name, one in model.named_parameters() if one.grad is not None
        }
        optimizer.step()
        for tables in monitor.generate_wgrad_metrics():
            found = {tag.split("/")[0].partition(":")[2]: float(one["norm"]) for tag, one in tables.items()}
            assert found == pytest.approx(expected, rel=1e-2 if "types" in name else 1e-4)
    monitor.stop()
