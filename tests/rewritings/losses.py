"""Losses in two ways. Each takes scores of shape (rows, 4) and goals, and ``bug``: what is wrong with it."""

from __future__ import annotations

import torch
from torch.nn import functional as F


def cross_entropy(scores: torch.Tensor, goals: torch.Tensor, other: bool, bug: str) -> torch.Tensor:
    """By a logarithm of softmax and the elements that are asked for."""
    if not other:
        return F.cross_entropy(scores.float(), goals)
    scores = scores.float()
    chosen = (scores - scores.logsumexp(-1, keepdim=True)).gather(-1, goals[:, None])
    return -(chosen.sum() / (len(goals) - 2 if bug == "count" else len(goals)))


def chunked(scores: torch.Tensor, goals: torch.Tensor, other: bool, bug: str) -> torch.Tensor:
    """Over pieces of the rows, whose sums are divided by their count."""
    if not other:
        return F.cross_entropy(scores.float(), goals)
    total = torch.zeros((), dtype=torch.float32)
    for some, wanted in zip(scores.split(5), goals.split(5), strict=True):
        total = total + F.cross_entropy(some.float(), wanted, reduction="mean" if bug == "mean" else "sum")
    return total / len(goals)


def smoothed(scores: torch.Tensor, goals: torch.Tensor, other: bool, bug: str) -> torch.Tensor:
    """Label smoothing by goals that are written out."""
    if not other:
        return F.cross_entropy(scores.float(), goals, label_smoothing=0.1)
    share = 0.2 if bug == "smoothing" else 0.1
    wanted = F.one_hot(goals, 4).float() * (1 - share) + share / 4
    return -(wanted * F.log_softmax(scores.float(), -1)).sum(-1).mean()


def ignoring(scores: torch.Tensor, goals: torch.Tensor, other: bool, bug: str) -> torch.Tensor:
    """Rows that do not count are left out, or weigh nothing."""
    if not other:
        return F.cross_entropy(scores.float(), goals.masked_fill(goals == 3, -100))
    counts = (goals != 3).float()
    each = F.cross_entropy(scores.float(), goals, reduction="none") * counts
    return each.mean() if bug == "count" else each.sum() / counts.sum()


def squares(scores: torch.Tensor, goals: torch.Tensor, other: bool, bug: str) -> torch.Tensor:
    """A mean of squares by hand."""
    wanted = F.one_hot(goals, 4).float()
    if not other:
        return F.mse_loss(scores.float(), wanted)
    return (scores.float() - wanted).pow(2).mean() * (0.5 if bug == "half" else 1.0)


def smooth_l1(scores: torch.Tensor, goals: torch.Tensor, other: bool, bug: str) -> torch.Tensor:
    """Smooth L1 by hand."""
    wanted = F.one_hot(goals, 4).float()
    if not other:
        return F.smooth_l1_loss(scores.float(), wanted)
    apart = (scores.float() - wanted).abs()
    limit = 0.5 if bug == "beta" else 1.0
    return torch.where(apart < limit, 0.5 * apart**2 / limit, apart - 0.5 * limit).mean()


def binary(scores: torch.Tensor, goals: torch.Tensor, other: bool, bug: str) -> torch.Tensor:
    """Binary cross entropy of scores by hand."""
    wanted = F.one_hot(goals, 4).float()
    if not other:
        return F.binary_cross_entropy_with_logits(scores.float(), wanted)
    scores = scores.float()
    each = scores.clamp(min=0) - scores * wanted + torch.log1p(torch.exp(-scores.abs()))
    return (each.sum() / len(each)) if bug == "mean" else each.mean()


def divergence(scores: torch.Tensor, goals: torch.Tensor, other: bool, bug: str) -> torch.Tensor:
    """Divergence of two distributions by hand."""
    wanted = (F.one_hot(goals, 4).float() * 2).softmax(-1)
    given = F.log_softmax(scores.float(), -1)
    if not other:
        return F.kl_div(given, wanted, reduction="batchmean")
    each = wanted * (wanted.log() - given)
    return each.mean() if bug == "mean" else each.sum() / len(each)


def weighted(scores: torch.Tensor, goals: torch.Tensor, other: bool, bug: str) -> torch.Tensor:
    """Classes that weigh more than others, by their sum of weights."""
    weights = torch.tensor([0.5, 1.0, 1.5, 2.0])
    if not other:
        return F.cross_entropy(scores.float(), goals, weight=weights)
    each = F.nll_loss(scores.float().log_softmax(-1), goals, reduction="none") * weights[goals]
    return each.mean() if bug == "mean" else each.sum() / weights[goals].sum()


def contrasted(scores: torch.Tensor, goals: torch.Tensor, other: bool, bug: str) -> torch.Tensor:
    """Each row against all others, by cross entropy or by `logsumexp`."""
    rows = F.normalize(scores.float(), dim=-1)
    alike = rows @ rows.roll(1, 0).T / 0.2
    if not other:
        return F.cross_entropy(alike, torch.arange(len(rows)))
    if bug == "own":  # a row is not compared with its own pair
        alike = alike - torch.diag(alike.diagonal() * 0.5)
    return (torch.logsumexp(alike, 1) - alike.diagonal()).mean()


def focused(scores: torch.Tensor, goals: torch.Tensor, other: bool, bug: str) -> torch.Tensor:
    """A focal loss by the probability, or by the logarithm of it."""
    if not other:
        sure = scores.float().softmax(-1).gather(-1, goals[:, None]).squeeze(-1)
        return (-((1 - sure) ** 2) * sure.log()).mean()
    each = F.cross_entropy(scores.float(), goals, reduction="none")
    return ((1 - torch.exp(-each)) ** (1 if bug == "power" else 2) * each).mean()
