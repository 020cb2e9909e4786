"""Calls that are written in a second form, or get another mask, where autocast chooses the types."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from unit.diagnose.real_pairs import Training, compare_trainings

from msprobe.diagnose.findings import Verdict


class Convolution(nn.Conv2d):
    """By a product with all windows of the picture."""

    def forward(self, x: Tensor) -> Tensor:
        windows = F.unfold(x, 3, padding=1)
        product = self.weight.flatten(1) @ windows + self.bias[:, None]  # type: ignore[index]
        return product.view(len(x), -1, *x.shape[2:])


class BatchNorm(nn.BatchNorm2d):
    """By the mean and the variance of each channel; its statistics of all steps are not kept."""

    def forward(self, x: Tensor) -> Tensor:
        mean, variance = x.mean((0, 2, 3), keepdim=True), x.var((0, 2, 3), unbiased=False, keepdim=True)
        return (x - mean) * torch.rsqrt(variance + self.eps) * self.weight[:, None, None] + self.bias[:, None, None]


class Pictures(nn.Module):
    """Two convolutions, each with a batch norm behind it, which takes its bias away again."""

    def __init__(self, convolution: type[nn.Conv2d] = nn.Conv2d, norm: type[nn.BatchNorm2d] = nn.BatchNorm2d) -> None:
        super().__init__()
        self.first, self.first_norm = convolution(3, 8, 3, padding=1), norm(8, track_running_stats=False)
        self.second = nn.Conv2d(8, 16, 3, padding=1, stride=2)
        self.second_norm = nn.BatchNorm2d(16, track_running_stats=False)
        self.head = nn.Linear(16, 10)

    def forward(self, x: Tensor) -> Tensor:
        x = F.relu(self.first_norm(self.first(x)))
        x = F.relu(self.second_norm(self.second(x)))
        return self.head(x.mean((2, 3)))  # type: ignore[no-any-return]


class Attention(nn.Module):
    """Two layers of attention. ``hides``: of a key that nobody else but its own query sees."""

    def __init__(self, hides: bool) -> None:
        super().__init__()
        self.mixed = nn.ModuleList(nn.Linear(32, 96) for _ in range(2))
        self.head, self.hides = nn.Linear(32, 10), hides

    def forward(self, x: Tensor) -> Tensor:
        for mixed in self.mixed:
            query, key, value = (part.unflatten(-1, (4, 8)).transpose(1, 2) for part in mixed(x).chunk(3, -1))
            seen = torch.ones(12, 12).tril().bool()
            if self.hides:
                seen[:, 3] = False
                seen.fill_diagonal_(True)
            x = x + F.scaled_dot_product_attention(query, key, value, attn_mask=seen).transpose(1, 2).flatten(2)
        return self.head(x.mean(1))  # type: ignore[no-any-return]


def verdict_of(folder: Path, *models: Callable[[], nn.Module], shape: tuple[int, ...]) -> Verdict:
    def building(model_of: Callable[[], nn.Module]) -> Callable[[], Training]:
        def build() -> Training:
            model = model_of()
            optimizer = torch.optim.SGD(model.parameters(), 0.05, momentum=0.9)

            def step(number: int) -> None:
                generator = torch.Generator().manual_seed(50 + number)
                x, labels = torch.randn(8, *shape, generator=generator), torch.arange(8)
                optimizer.zero_grad()
                with torch.autocast("cpu", torch.bfloat16):
                    loss = F.cross_entropy(model(x).float(), labels)
                loss.backward()
                optimizer.step()

            return model, step

        return build

    return compare_trainings(folder, *map(building, models), steps=2)


@pytest.mark.parametrize(
    "written",
    [lambda: Pictures(Convolution), lambda: Pictures(norm=BatchNorm), lambda: Pictures(Convolution, BatchNorm)],
    ids=["convolution", "norm", "both"],
)
def test_a_gradient_of_nothing_but_rounding_is_no_effect(written: Callable[[], nn.Module], tmp_path: Path) -> None:
    for number, pair in enumerate(((written, Pictures), (Pictures, written))):
        assert verdict_of(tmp_path / str(number), *pair, shape=(3, 12, 12)).status in ("agree", "harmless")


def test_another_mask_is_no_rounding(tmp_path: Path) -> None:
    sides = (lambda: Attention(hides=False)), (lambda: Attention(hides=True))
    for number, pair in enumerate((sides, sides[::-1])):
        verdict = verdict_of(tmp_path / str(number), *pair, shape=(12, 32))
        assert verdict.status == "diverged"
        first = verdict.findings[0]
        assert first.step == 0
        assert first.kind in ("structure", "mutation")
