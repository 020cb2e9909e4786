"""A diffusion model of images, trained by one process: a U-Net told what to draw by words and by a sketch."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn


@dataclass(frozen=True)
class Settings:
    """Sizes and constants of one training."""

    seed: int = 0
    layers: int = 2
    width: int = 16
    heads: int = 2
    groups: int = 4
    batch: int = 2
    size: int = 8
    words: int = 6
    vocabulary: int = 32
    timesteps: int = 1000
    dropout: float = 0.1
    without_words: float = 0.25
    micro_batches: int = 2
    learning_rate: float = 1e-3
    warm_up: int = 10
    weight_decay: float = 0.01
    clip: float = 1.0
    ema: float = 0.99


class BatchNorm(nn.BatchNorm2d):
    """Batch normalisation that is computed in float32, whatever the type of the model."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        mean, var, weight, bias = self.running_mean, self.running_var, self.weight.float(), self.bias.float()
        wide = F.batch_norm(x.float(), mean, var, weight, bias, self.training, self.momentum or 0.0, self.eps)
        return wide.to(x.dtype)


class Sketch(nn.Module):
    """A picture of twice the size becomes features that are added to those of the noisy image."""

    def __init__(self, settings: Settings) -> None:
        super().__init__()
        width = settings.width
        self.first = nn.Conv2d(3, width, 3, padding=1, bias=False)
        self.norm1 = BatchNorm(width, eps=1e-5, momentum=0.1)
        self.second = nn.Conv2d(width, width, 3, stride=2, padding=1, bias=False)
        self.norm2 = BatchNorm(width, eps=1e-5, momentum=0.1)
        self.out = nn.Conv2d(width, width, 1)

    def forward(self, picture: torch.Tensor) -> torch.Tensor:
        x = self.first(picture)
        x = F.relu(self.norm1(x))
        x = self.second(x)
        x = F.relu(self.norm2(x))
        return self.out(x)


class Timesteps(nn.Module):
    """Sines and cosines of a timestep, then a small network."""

    def __init__(self, settings: Settings) -> None:
        super().__init__()
        self.width = settings.width
        self.first = nn.Linear(settings.width, 4 * settings.width)
        self.second = nn.Linear(4 * settings.width, 4 * settings.width)

    def forward(self, timesteps: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
        half = self.width // 2
        exponents = -math.log(10000.0) * torch.arange(half, dtype=torch.float32) / half
        angles = timesteps[:, None].float() * exponents.exp()
        table = torch.cat((angles.cos(), angles.sin()), dim=-1)
        x = self.first(table.to(dtype))
        return self.second(F.silu(x))


class Residual(nn.Module):
    """Two convolutions, told the timestep in between."""

    def __init__(self, settings: Settings, index: int, inner: int, outer: int) -> None:
        super().__init__()
        self.index = index
        self.rate = settings.dropout
        self.norm1 = nn.GroupNorm(settings.groups, inner, eps=1e-5)
        self.conv1 = nn.Conv2d(inner, outer, 3, padding=1)
        self.time = nn.Linear(4 * settings.width, outer)
        self.norm2 = nn.GroupNorm(settings.groups, outer, eps=1e-5)
        self.conv2 = nn.Conv2d(outer, outer, 3, padding=1)
        self.shortcut = nn.Conv2d(inner, outer, 1) if inner != outer else nn.Identity()

    def forward(self, x: torch.Tensor, time: torch.Tensor) -> torch.Tensor:
        hidden = F.silu(self.norm1(x))
        hidden = self.conv1(hidden)
        hidden = hidden + self.time(F.silu(time))[:, :, None, None]
        hidden = F.silu(self.norm2(hidden))
        hidden = F.dropout(hidden, self.rate, self.training)
        hidden = self.conv2(hidden)
        return self.shortcut(x) + hidden


class Attention(nn.Module):
    """Queries of the image, keys and values of the image or of the words."""

    def __init__(self, settings: Settings, index: int, width: int, context: int) -> None:
        super().__init__()
        self.index = index
        self.heads = settings.heads
        self.q = nn.Linear(width, width, bias=False)
        self.k = nn.Linear(context, width, bias=False)
        self.v = nn.Linear(context, width, bias=False)
        self.out = nn.Linear(width, width)
        self.scale = 1.0 / math.sqrt(width // settings.heads)

    def forward(self, x: torch.Tensor, context: torch.Tensor, mask: torch.Tensor | None) -> torch.Tensor:
        q = self.q(x).unflatten(-1, (self.heads, -1)).transpose(1, 2)
        k = self.k(context).unflatten(-1, (self.heads, -1)).transpose(1, 2)
        v = self.v(context).unflatten(-1, (self.heads, -1)).transpose(1, 2)
        scores = q @ k.transpose(-2, -1)
        scores = scores * self.scale
        if mask is not None:
            scores = scores.masked_fill(~mask[:, None, None, :], torch.finfo(scores.dtype).min)
        probs = torch.softmax(scores, dim=-1)
        mixed = probs @ v
        return self.out(mixed.transpose(1, 2).flatten(-2))


class Transformer(nn.Module):
    """The pixels attend to each other and to the words."""

    def __init__(self, settings: Settings, index: int, width: int) -> None:
        super().__init__()
        self.index = index
        self.norm = nn.GroupNorm(settings.groups, width, eps=1e-6)
        self.norm1 = nn.LayerNorm(width)
        self.attention1 = Attention(settings, index, width, width)
        self.norm2 = nn.LayerNorm(width)
        self.attention2 = Attention(settings, index, width, settings.width)
        self.norm3 = nn.LayerNorm(width)
        self.up = nn.Linear(width, 4 * width)
        self.down = nn.Linear(2 * width, width)

    def forward(self, image: torch.Tensor, words: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        x = self.norm(image).flatten(2).transpose(1, 2)
        pixels = self.norm1(x)
        x = x + self.attention1(pixels, pixels, None)
        x = x + self.attention2(self.norm2(x), words, mask)
        hidden, gate = self.up(self.norm3(x)).chunk(2, dim=-1)
        x = x + self.down(hidden * F.gelu(gate))
        return image + x.transpose(1, 2).unflatten(2, image.shape[2:])


class Down(nn.Module):
    def __init__(self, settings: Settings, index: int, inner: int, outer: int) -> None:
        super().__init__()
        self.index = index
        self.residual = Residual(settings, index, inner, outer)
        self.transformer = Transformer(settings, index, outer)
        self.halve = nn.Conv2d(outer, outer, 3, stride=2, padding=1)

    def forward(self, x: torch.Tensor, time: torch.Tensor, words: torch.Tensor, mask: torch.Tensor) -> Any:
        x = self.residual(x, time)
        x = self.transformer(x, words, mask)
        return self.halve(x), x


class Up(nn.Module):
    def __init__(self, settings: Settings, index: int, inner: int, skip: int, outer: int) -> None:
        super().__init__()
        self.index = index
        self.grow = nn.Conv2d(inner, inner, 3, padding=1)
        self.residual = Residual(settings, index, inner + skip, outer)
        self.transformer = Transformer(settings, index, outer)

    def forward(
        self, x: torch.Tensor, skip: torch.Tensor, time: torch.Tensor, words: torch.Tensor, mask: torch.Tensor
    ) -> torch.Tensor:
        x = F.interpolate(x, scale_factor=2.0, mode="nearest")
        x = self.grow(x)
        x = torch.cat((x, skip), dim=1)
        x = self.residual(x, time)
        return self.transformer(x, words, mask)


class UNet(nn.Module):
    """Predicts the noise that was added to an image."""

    def __init__(self, settings: Settings) -> None:
        super().__init__()
        self.settings = settings
        widths = [settings.width * (index + 1) for index in range(settings.layers)]
        self.embedding = nn.Embedding(settings.vocabulary, settings.width, padding_idx=0)
        self.sketch = Sketch(settings)
        self.timesteps = Timesteps(settings)
        self.first = nn.Conv2d(3, settings.width, 3, padding=1)
        befores = [settings.width, *widths[:-1]]
        self.down = nn.ModuleList([Down(settings, i, befores[i], widths[i]) for i in range(settings.layers)])
        self.middle = Residual(settings, -1, widths[-1], widths[-1])
        self.up = nn.ModuleList([Up(settings, i, widths[i], widths[i], befores[i]) for i in range(settings.layers)])
        self.norm = nn.GroupNorm(settings.groups, settings.width, eps=1e-5)
        self.last = nn.Conv2d(settings.width, 3, 3, padding=1)

    def forward(
        self, image: torch.Tensor, timesteps: torch.Tensor, sketch: torch.Tensor, words: torch.Tensor
    ) -> torch.Tensor:
        dtype = self.first.weight.dtype
        time = self.timesteps(timesteps, dtype)
        mask = words > 0
        mask = mask | ~mask.any(dim=1, keepdim=True)
        words = self.embedding(words)
        x = self.first(image.to(dtype)) + self.sketch(sketch.to(dtype))
        skips = []
        for block in self.down:
            x, skip = block(x, time, words, mask)
            skips.append(skip)
        x = self.middle(x, time)
        for block in reversed(self.up):
            x = block(x, skips.pop(), time, words, mask)
        x = F.silu(self.norm(x))
        return self.last(x)


class Noise:
    """How much of the image and how much noise there is at each timestep."""

    def __init__(self, settings: Settings) -> None:
        betas = torch.linspace(0.00085**0.5, 0.012**0.5, settings.timesteps, dtype=torch.float32) ** 2
        self.kept = torch.cumprod(1.0 - betas, dim=0)

    def add(self, images: torch.Tensor, noise: torch.Tensor, timesteps: torch.Tensor) -> torch.Tensor:
        kept = self.kept[timesteps]
        root = kept.sqrt()[:, None, None, None]
        rest = (1.0 - kept).sqrt()[:, None, None, None]
        return root * images + rest * noise


def initial_state(model: nn.Module, seed: int) -> dict[str, torch.Tensor]:
    """The checkpoint that training begins from: weights by the number of inputs, norms and biases slightly off."""
    generator = torch.Generator().manual_seed(seed)
    state = {}
    for name, value in model.state_dict().items():
        noise = torch.randn(value.shape, generator=generator)
        if "running" in name or "num_batches" in name:
            state[name] = value
        elif value.dim() > 1:
            state[name] = noise / math.sqrt(value[0].numel())
        else:
            state[name] = value + 0.02 * noise
    return state


def initial_data(settings: Settings) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Images, sketches of twice their size, and words of unequal numbers, padded with 0."""
    generator = torch.Generator().manual_seed(settings.seed + 1)
    rows, size = 8 * settings.batch, settings.size
    images = torch.rand(rows, 3, size, size, generator=generator) * 2.0 - 1.0
    sketches = torch.rand(rows, 3, 2 * size, 2 * size, generator=generator)
    words = torch.randint(1, settings.vocabulary, (rows, settings.words), generator=generator)
    counts = torch.randint(1, settings.words + 1, (rows,), generator=generator)
    return images, sketches, words * (torch.arange(settings.words) < counts[:, None])


class Training:
    """One iteration at a time: micro-batches, clipping, optimizer, schedule, average of the weights."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        torch.manual_seed(settings.seed)
        self.model = UNet(settings)
        state = initial_state(self.model, settings.seed)
        self.model.load_state_dict(state)
        self.noise = Noise(settings)
        self.images, self.sketches, self.words = initial_data(settings)
        self.optimizer = torch.optim.AdamW(self.groups(), lr=settings.learning_rate, betas=(0.9, 0.999), eps=1e-8)
        self.average = [p.detach().clone() for p in self.model.parameters()]
        self.losses: list[float] = []

    def groups(self) -> list[dict[str, Any]]:
        """Weights of convolutions and matrices decay, norms and biases do not."""
        matrices = [p for p in self.model.parameters() if p.dim() > 1]
        vectors = [p for p in self.model.parameters() if p.dim() == 1]
        decay = self.settings.weight_decay
        return [{"params": matrices, "weight_decay": decay}, {"params": vectors, "weight_decay": 0.0}]

    def rate(self, number: int) -> float:
        """The learning rate of a step: linear warm-up."""
        return self.settings.learning_rate * min(1.0, (number + 1) / self.settings.warm_up)

    def batch(self, number: int) -> list[tuple[torch.Tensor, torch.Tensor, torch.Tensor]]:
        """Images, sketches and words of the micro-batches of a step."""
        size, count = self.settings.batch, self.settings.micro_batches
        begins = [(number * count + micro) * size % len(self.images) for micro in range(count)]
        rows = [slice(begin, begin + size) for begin in begins]
        return [(self.images[one], self.sketches[one], self.words[one]) for one in rows]

    def loss(self, images: torch.Tensor, sketches: torch.Tensor, words: torch.Tensor) -> torch.Tensor:
        noise = torch.randn_like(images)
        timesteps = torch.randint(0, self.settings.timesteps, (len(images),))
        noisy = self.noise.add(images, noise, timesteps)
        silent = torch.rand(len(images)) < self.settings.without_words
        words = words.masked_fill(silent[:, None], 0)
        predicted = self.model(noisy, timesteps, sketches, words)
        loss = F.mse_loss(predicted.float(), noise.float(), reduction="mean")
        return loss / self.settings.micro_batches

    def step(self, number: int) -> None:
        """One iteration."""
        torch.manual_seed(self.settings.seed + 100 + number)
        batches = self.batch(number)
        self.optimizer.zero_grad()
        for images, sketches, words in batches:
            loss = self.loss(images, sketches, words)
            loss.backward()
            self.losses.append(loss.item())
        nn.utils.clip_grad_norm_(self.model.parameters(), self.settings.clip)
        for group in self.optimizer.param_groups:
            group["lr"] = self.rate(number)
        self.optimizer.step()
        with torch.no_grad():
            for kept, parameter in zip(self.average, self.model.parameters(), strict=True):
                kept.lerp_(parameter.to(kept.dtype), 1.0 - self.settings.ema)
