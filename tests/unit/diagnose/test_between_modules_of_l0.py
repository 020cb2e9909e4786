"""Level L0: what calls between modules make much of is no difference, and what they do wrong is one."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from bugs.kernels.device import Device
from torch import Tensor, nn
from unit.diagnose.real_pairs import Training, record_training

from msprobe.diagnose import compare_runs
from msprobe.diagnose.findings import Verdict

_WIDTH, _HEADS, _WORDS = 64, 4, 24


class _Attention(nn.Module):
    """Its scores have a standard deviation of a third times ``steepness``."""

    def __init__(self, steepness: float, scale: float | None = None) -> None:
        super().__init__()
        self.q, self.k, self.v, self.o = (nn.Linear(_WIDTH, _WIDTH) for _ in range(4))
        self.scale = scale
        with torch.no_grad():
            self.q.weight.mul_(steepness)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = (part(x).unflatten(-1, (_HEADS, -1)).transpose(1, 2) for part in (self.q, self.k, self.v))
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True, scale=self.scale)
        return x + self.o(mixed.transpose(1, 2).flatten(2))


class _NormByHand(nn.Module):
    """Of rows whose mean is some times their deviation."""

    def __init__(self, epsilon: float = 1e-5) -> None:
        super().__init__()
        self.layer, self.epsilon = nn.Linear(_WIDTH, _WIDTH), epsilon

    def forward(self, x: Tensor) -> Tensor:
        mean = x.mean(-1, keepdim=True)
        variance = (x * x).mean(-1, keepdim=True) - mean * mean
        return x + self.layer((x - mean) * torch.rsqrt(variance.clamp_min(0) + self.epsilon))


def _stacked(layers: Callable[[], list[nn.Module]], dtype: torch.dtype) -> Training:
    model = nn.Sequential(*layers(), nn.Linear(_WIDTH, 10)).to(dtype)
    optimizer = torch.optim.AdamW(model.parameters(), 1e-3)

    def step(number: int) -> None:
        batch = torch.randn(4, 16, _WIDTH, generator=torch.Generator().manual_seed(number)).to(dtype)
        optimizer.zero_grad()
        model(batch).float().square().mean().backward()
        optimizer.step()

    return model, step


def _steep(dtype: torch.dtype, steepness: float = 64.0, scale: float | None = None) -> Training:
    return _stacked(
        lambda: [layer for _ in range(3) for layer in (nn.LayerNorm(_WIDTH), _Attention(steepness, scale))], dtype
    )


def _beside_mean(dtype: torch.dtype, epsilon: float = 1e-5) -> Training:
    def layers() -> list[nn.Module]:
        first = nn.Linear(_WIDTH, _WIDTH)
        with torch.no_grad():
            first.bias.add_(3.0)
        return [first, _NormByHand(epsilon), _NormByHand(epsilon)]

    return _stacked(layers, dtype)


def _cut_off(dtype: torch.dtype, limit: float = 0.2) -> Training:
    """Three updates of a policy from one batch, whose ratio is cut off for each token by itself."""
    model = nn.Sequential(nn.Embedding(_WORDS, _WIDTH), nn.GELU(), nn.Linear(_WIDTH, _WORDS, bias=False)).to(dtype)
    optimizer = torch.optim.AdamW(model.parameters(), 3e-3)

    def logarithms(tokens: Tensor) -> Tensor:
        return model(tokens[:, :-1]).float().log_softmax(-1).gather(-1, tokens[:, 1:, None])[..., 0]

    def step(number: int) -> None:
        drawn = torch.Generator().manual_seed(number)
        tokens = torch.randint(0, _WORDS, (16, 17), generator=drawn)
        advantage = torch.randn(16, 1, generator=drawn)
        counts = (torch.arange(16)[None] < torch.randint(4, 16, (16, 1), generator=drawn)).float()
        with torch.no_grad():
            before = logarithms(tokens)
        for _ in range(3):
            ratio = (logarithms(tokens) - before).exp()
            least = torch.min(ratio * advantage, ratio.clamp(1 - limit, 1 + limit) * advantage)
            optimizer.zero_grad()
            (-(least * counts).sum() / counts.sum()).backward()
            optimizer.step()

    return model, step


def _verdict(
    folder: Path, candidate: Callable[[], Training], reference: Callable[[], Training], device: str
) -> Verdict:
    with Device(device):
        first = record_training(folder / "candidate", candidate, steps=2, level="L0")
    return compare_runs(first, record_training(folder / "reference", reference, steps=2, level="L0"))


@pytest.mark.parametrize(
    ("build", "dtype"),
    [
        (_steep, torch.float32),
        (_steep, torch.bfloat16),
        (_beside_mean, torch.float32),
        (_beside_mean, torch.bfloat16),
        (_cut_off, torch.bfloat16),
    ],
)
@pytest.mark.parametrize("device", ["tiles", "splits", "wide"])
def test_what_is_made_much_of_between_modules_agrees(
    tmp_path: Path, build: Callable[[torch.dtype], Training], dtype: torch.dtype, device: str
) -> None:
    verdict = _verdict(tmp_path, lambda: build(dtype), lambda: build(dtype), device)
    assert verdict.status == "agree", verdict.findings


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_a_scale_of_steep_scores_is_named(tmp_path: Path, dtype: torch.dtype) -> None:
    verdict = _verdict(tmp_path, lambda: _steep(dtype, scale=0.2), lambda: _steep(dtype), "tiles")
    assert verdict.status == "diverged"
    assert str(verdict.findings[0].entry).startswith("Module.1.")


def test_an_epsilon_of_a_norm_by_hand_is_named(tmp_path: Path) -> None:
    sides = (lambda: _beside_mean(torch.float32, 0.1)), (lambda: _beside_mean(torch.float32))
    verdict = _verdict(tmp_path, *sides, "tiles")
    assert verdict.status == "diverged"
    assert str(verdict.findings[0].entry).startswith("Module.1.")


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_another_limit_of_a_policy_is_found(tmp_path: Path, dtype: torch.dtype) -> None:
    verdict = _verdict(tmp_path, lambda: _cut_off(dtype, limit=0.05), lambda: _cut_off(dtype), "tiles")
    assert verdict.status == "diverged"
