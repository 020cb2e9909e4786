"""Losses of what a network gives, a tensor of :data:`SHAPE` in single precision, and of the number of the step."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
import torch.nn.functional as F

from .blocks import BATCH, LENGTH, WIDTH

Tensor = torch.Tensor
Loss = Callable[[Tensor, int], Tensor]


def labels(number: int) -> Tensor:
    return (torch.arange(BATCH * LENGTH) * 7 + number) % WIDTH


def target(number: int, like: Tensor) -> Tensor:
    return torch.randn(like.shape, generator=torch.Generator().manual_seed(100 + number))


def likely(given: Tensor, number: int) -> Tensor:
    """The logarithms of the probabilities of labels."""
    return F.log_softmax(given, -1).gather(-1, labels(number).view(BATCH, LENGTH, 1))[..., 0]


def aligned(given: Tensor, number: int) -> Tensor:
    along = torch.arange(BATCH * 3).view(BATCH, 3)
    words = 1 + (along + number) % (WIDTH - 1)
    return F.ctc_loss(
        F.log_softmax(given.transpose(0, 1), -1), words, torch.full((BATCH,), LENGTH), torch.full((BATCH,), 3)
    )


def contrast(given: Tensor, number: int) -> Tensor:
    first, second = (F.normalize(given[:, place], dim=-1) for place in (0, 1))
    return F.cross_entropy(first @ second.T / 0.07, torch.arange(BATCH))


def contrast_of_classes(given: Tensor, number: int) -> Tensor:
    rows = F.normalize(given.mean(1), dim=-1)
    scores = rows @ rows.T / 0.1
    scores = scores - scores.max(1, keepdim=True)[0].detach()
    others = 1 - torch.eye(BATCH)
    same = (torch.arange(BATCH)[:, None] // 2 == torch.arange(BATCH) // 2).float() * others
    return -((scores - (scores.exp() * others).sum(1, keepdim=True).log()) * same).sum(1).mean()


def clipped_ratio(given: Tensor, number: int) -> Tensor:
    now = likely(given, number)
    ratio = (now - now.detach() - 0.15 * target(number, now)).exp()
    gain = target(number + 1, now)
    gain = (gain - gain.mean()) / (gain.std() + 1e-8)
    return -torch.min(ratio * gain, ratio.clamp(0.8, 1.2) * gain).mean()


def preference(given: Tensor, number: int) -> Tensor:
    better, worse = likely(given, number).sum(1).chunk(2)
    return -F.logsigmoid(0.1 * (better - worse)).mean()


def evidence(given: Tensor, number: int) -> Tensor:
    mean, logarithm = given.chunk(2, -1)
    drawn = mean + torch.exp(0.5 * logarithm) * target(number, mean)
    apart = (mean.square() + logarithm.exp() - 1 - logarithm).sum(-1).mean()
    return F.mse_loss(drawn, target(number + 1, mean)) + 0.05 * apart


def overlap(given: Tensor, number: int) -> Tensor:
    inside, wanted = torch.sigmoid(given), (target(number, given) > 0).float()
    both = (inside * wanted).sum((1, 2))
    return 1 - ((2 * both + 1) / (inside.sum((1, 2)) + wanted.sum((1, 2)) + 1)).mean()


def mixture(given: Tensor, number: int) -> Tensor:
    weights, means, spreads = F.log_softmax(given[..., :4], -1), given[..., 4:8], F.softplus(given[..., 8:12]) + 0.1
    at = target(number, given[..., :1])
    return -torch.logsumexp(weights - 0.5 * ((at - means) / spreads) ** 2 - spreads.log(), -1).mean()


def decorrelated(given: Tensor, number: int) -> Tensor:
    first, second = (half.flatten(0, 1) for half in given.chunk(2, 1))
    first, second = ((half - half.mean(0)) / half.std(0) for half in (first, second))
    together = first.T @ second / len(first)
    return (together - torch.eye(WIDTH)).square().mean()


def paths(given: Tensor, number: int) -> Tensor:
    forward = given[:, 0]
    for place in range(1, LENGTH):
        forward = torch.logsumexp(forward.unsqueeze(2) + torch.zeros(WIDTH, WIDTH), 1) + given[:, place]
    chosen = given.gather(-1, labels(number).view(BATCH, LENGTH, 1)).sum((1, 2))
    return (torch.logsumexp(forward, 1) - chosen).mean() / LENGTH


def kernels_apart(given: Tensor, number: int) -> Tensor:
    def near(first: Tensor, second: Tensor) -> Tensor:
        return torch.exp(-torch.cdist(first, second).square() / WIDTH).mean()

    rows, others = given[:, 0], target(number, given[:, 0])
    return near(rows, rows) + near(others, others) - 2 * near(rows, others)


LOSSES: dict[str, Loss] = {
    "cross_entropy": lambda given, number: F.cross_entropy(given.flatten(0, 1), labels(number)),
    "smoothed": lambda given, number: F.cross_entropy(given.flatten(0, 1), labels(number), label_smoothing=0.1),
    "ignored": lambda given, number: F.cross_entropy(
        given.flatten(0, 1), labels(number).where(torch.arange(BATCH * LENGTH) % 3 > 0, -100)
    ),
    "mean_square": lambda given, number: F.mse_loss(given, target(number, given)),
    "to_ones": lambda given, number: F.mse_loss(given, torch.ones_like(given)),
    "size": lambda given, number: given.square().mean(),
    "sum": lambda given, number: given.sum() * 0.1,
    "absolute": lambda given, number: F.l1_loss(given, target(number, given)),
    "huber": lambda given, number: F.huber_loss(given, target(number, given), delta=0.5),
    "logistic": lambda given, number: F.binary_cross_entropy_with_logits(given, (target(number, given) > 0).float()),
    "aligned": aligned,
    "triplet": lambda given, number: F.triplet_margin_loss(given[:, 0], given[:, 1], given[:, 2]),
    "contrast": contrast,
    "contrast_of_classes": contrast_of_classes,
    "entropy_apart": lambda given, number: F.kl_div(
        F.log_softmax(given, -1), F.softmax(target(number, given), -1), reduction="batchmean"
    ),
    "critic": lambda given, number: given[:2].mean() - given[2:].mean(),
    "hinge": lambda given, number: F.relu(1 - given[:2]).mean() + F.relu(1 + given[2:]).mean(),
    "clipped_ratio": clipped_ratio,
    "preference": preference,
    "evidence": evidence,
    "overlap": overlap,
    "mixture": mixture,
    "decorrelated": decorrelated,
    "cosine": lambda given, number: 2 - 2 * F.cosine_similarity(given[:, :4], given[:, 4:].detach(), dim=-1).mean(),
    "paths": paths,
    "kernels_apart": kernels_apart,
    "roots": lambda given, number: torch.sqrt((given - target(number, given)).square() + 1e-6).mean(),
    "entropy": lambda given, number: (
        -(F.softmax(given, -1) * F.log_softmax(given, -1)).sum(-1).mean() / math.log(WIDTH)
    ),
}
