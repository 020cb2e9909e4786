"""VAE, GAN, graph network, diffusion step: trainings with several outputs, losses or optimizers."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional as F

from .case import LossAndResults, Region, Results, TrainingCase, architecture, supervised


def vectors(i: int, count: int = 6, width: int = 8) -> tuple[torch.Tensor]:
    return (torch.randn(count, width, generator=torch.Generator().manual_seed(3000 + i)),)


class VariationalAutoencoder(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(8, 16), nn.Tanh())
        self.mean, self.log_variance = nn.Linear(16, 3), nn.Linear(16, 3)
        self.decoder = nn.Sequential(nn.Linear(3, 16), nn.ELU(inplace=True), nn.Linear(16, 8))

    def forward(self, x: torch.Tensor) -> dict[str, torch.Tensor]:
        h = self.encoder(x)
        mean, log_variance = self.mean(h), self.log_variance(h)
        latent = mean + torch.randn_like(mean) * torch.exp(0.5 * log_variance)
        return {"out": self.decoder(latent), "mean": mean, "log_variance": log_variance, "latent": latent}


@architecture()
def vae() -> TrainingCase:
    def loss_of(model: nn.Module, x: torch.Tensor) -> LossAndResults:
        parts = model(x)
        posterior = torch.distributions.Normal(parts["mean"], torch.exp(0.5 * parts["log_variance"]))
        divergence = torch.distributions.kl_divergence(posterior, torch.distributions.Normal(0.0, 1.0)).sum(-1).mean()
        return F.mse_loss(parts["out"], x) + 0.1 * divergence, {"parts": parts, "sample": posterior.rsample()}

    return supervised(VariationalAutoencoder(), vectors, loss_of)


@architecture()
def gan() -> TrainingCase:
    """Two networks, two optimizers, two regions a step (each network recorded in its own)."""
    generator = nn.Sequential(nn.Linear(4, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Linear(16, 8))
    critic = nn.Sequential(nn.Linear(8, 16), nn.LeakyReLU(0.2, inplace=True), nn.Dropout(0.3), nn.Linear(16, 1))
    optimizer_g = torch.optim.Adam(generator.parameters(), lr=2e-3, betas=(0.5, 0.999))
    optimizer_c = torch.optim.Adam(critic.parameters(), lr=2e-3, betas=(0.5, 0.999), amsgrad=True)

    def run_step(i: int, region: Region) -> Results:
        (real,) = vectors(i)
        noise = torch.randn(6, 4)
        optimizer_c.zero_grad()
        region.begin([generator, critic])
        fake = generator(noise)
        loss_c = F.binary_cross_entropy_with_logits(critic(real), torch.ones(6, 1))
        loss_c = loss_c + F.binary_cross_entropy_with_logits(critic(fake.detach()), torch.zeros(6, 1))
        loss_c.backward()
        optimizer_c.step()
        region.end()
        optimizer_g.zero_grad()
        critic.requires_grad_(False)
        region.begin([generator, critic])
        loss_g = F.binary_cross_entropy_with_logits(critic(fake), torch.ones(6, 1))
        loss_g.backward()
        optimizer_g.step()
        region.end()
        critic.requires_grad_(True)
        return {"loss_c": loss_c, "loss_g": loss_g, "fake": fake}

    tracked = {
        "generator": generator,
        "critic": critic,
        "optimizer_g": optimizer_g,
        "optimizer_c": optimizer_c,
    }
    return TrainingCase(run_step, tracked)


class GraphConvolution(nn.Module):
    """Messages along edges, summed, and maximised, at their target nodes."""

    def __init__(self, width_in: int, width: int) -> None:
        super().__init__()
        self.message, self.own = nn.Linear(2 * width_in, width), nn.Linear(width_in, width)

    def forward(self, nodes: torch.Tensor, edges: torch.Tensor) -> torch.Tensor:
        source, target = edges
        messages = F.relu(self.message(torch.cat([nodes[source], nodes[target]], dim=-1)))
        place = target[:, None].expand_as(messages)
        total = torch.zeros(len(nodes), messages.shape[1]).scatter_add_(0, place, messages)
        largest = total.new_zeros(total.shape).scatter_reduce(0, place, messages, "amax", include_self=False)
        degree = torch.bincount(target, minlength=len(nodes)).clamp(min=1).unsqueeze(-1)
        return self.own(nodes) + total / degree + largest


@architecture()
def gnn_scatter() -> TrainingCase:
    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second = GraphConvolution(8, 12), GraphConvolution(12, 3)

        def forward(self, nodes: torch.Tensor, edges: torch.Tensor) -> torch.Tensor:
            return self.second(F.dropout(self.first(nodes, edges), 0.2, self.training), edges)

    def batch(i: int) -> tuple[torch.Tensor, ...]:
        generator = torch.Generator().manual_seed(i)
        edges = torch.randint(10, (2, 24), generator=generator)
        return torch.randn(10, 8, generator=generator), edges, torch.randint(3, (10,), generator=generator)

    def loss_of(model: nn.Module, nodes: torch.Tensor, edges: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        known = labels > 0
        return F.nll_loss(F.log_softmax(model(nodes, edges)[known], -1), labels[known])

    return supervised(Model(), batch, loss_of)


@architecture()
def diffusion_denoiser() -> TrainingCase:
    """Random time steps from numpy and Python generators, sinusoidal time embedding, `where`, `lerp`, loss
    weights."""
    import random

    import numpy as np

    class Denoiser(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.time = nn.Sequential(nn.Linear(8, 8), nn.Mish(), nn.Linear(8, 16))
            self.inside, self.outside = nn.Linear(8, 16), nn.Linear(16, 8)

        def forward(self, x: torch.Tensor, when: torch.Tensor) -> torch.Tensor:
            angles = when[:, None] * torch.logspace(0, 1, 4)
            scale, shift = self.time(torch.cat([angles.sin(), angles.cos()], -1)).chunk(2, -1)
            h = F.silu(self.inside(x))
            return self.outside(torch.cat([h[:, :8] * (1 + scale) + shift, h[:, 8:]], -1))

    def batch(i: int) -> tuple[torch.Tensor, torch.Tensor]:
        return vectors(i)[0], torch.from_numpy(np.random.rand(6).astype("float32"))

    def loss_of(model: nn.Module, x: torch.Tensor, when: torch.Tensor) -> LossAndResults:
        noise = torch.randn_like(x)
        mixed = torch.lerp(x, noise, when[:, None])
        guided = mixed if random.random() < 0.5 else torch.where(when[:, None] > 0.5, mixed, mixed.detach())
        guess = model(guided, when)
        weights = 1 / (when + 0.1)
        return (F.mse_loss(guess, noise - x, reduction="none").mean(-1) * weights).mean(), {"guess": guess}

    return supervised(Denoiser(), batch, loss_of)
