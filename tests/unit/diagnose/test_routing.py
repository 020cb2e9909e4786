"""A router that sends nearly all tokens to the same experts: recordings of small mixtures of experts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from unit.diagnose.real_pairs import Training, record_training

from msprobe.diagnose.check import check_run
from msprobe.diagnose.findings import Finding

WIDTH = 8


class Gate(nn.Module):
    """Scores of all experts, and the experts that are chosen for each token."""

    def __init__(self, experts: int, chosen: int) -> None:
        super().__init__()
        self.chosen = chosen
        self.scores = nn.Linear(WIDTH, experts)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return torch.topk(torch.softmax(self.scores(x), -1), self.chosen, dim=-1)


class Mixture(nn.Module):
    """``form``: ``rows`` gives each expert its own tokens, ``masked`` gives all tokens to each, ``fused`` has the
    weights of all experts in one tensor, ``gate`` is as ``rows``, chosen in a module of its own. ``favoured``: experts
    whose scores are raised, so that all tokens go there.
    """

    def __init__(self, form: str, experts: int, chosen: int, favoured: tuple[int, ...]) -> None:
        super().__init__()
        self.form, self.chosen = form, chosen
        if form == "gate":
            self.gate = Gate(experts, chosen)
        else:
            self.router = nn.Linear(WIDTH, experts)
        with torch.no_grad():
            scores = self.gate.scores if form == "gate" else self.router
            scores.bias[list(favoured)] += 50.0
        if form == "fused":
            self.weights = nn.Parameter(torch.randn(experts, WIDTH, WIDTH))
        else:
            self.experts = nn.ModuleList([nn.Linear(WIDTH, WIDTH) for _ in range(experts)])

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        flat = x.reshape(-1, WIDTH)
        if self.form == "gate":
            shares, chosen = self.gate(flat)
        else:
            shares, chosen = torch.topk(torch.softmax(self.router(flat), -1), self.chosen, dim=-1)
        result = torch.zeros_like(flat)
        if self.form == "fused":
            for place in range(self.chosen):
                made = torch.bmm(flat[:, None], self.weights[chosen[:, place]])[:, 0]
                result = result + made * shares[:, place, None]
            return result.view_as(x)
        for number, expert in enumerate(self.experts):
            if self.form == "masked":
                weight = (shares * (chosen == number)).sum(-1, keepdim=True)
                result = result + expert(flat) * weight
                continue
            rows, places = torch.where(chosen == number)
            if len(rows):
                result = result.index_add(0, rows, expert(flat[rows]) * shares[rows, places, None])
        return result.view_as(x)


class Model(nn.Module):
    def __init__(self, **settings: Any) -> None:
        super().__init__()
        self.embedding = nn.Embedding(32, WIDTH)
        self.mixture = Mixture(**settings)
        self.head = nn.Linear(WIDTH, 32)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        return self.head(self.mixture(self.embedding(tokens)))  # type: ignore[no-any-return]


def findings(
    folder: Path,
    form: str = "rows",
    experts: int = 4,
    chosen: int = 1,
    favoured: tuple[int, ...] = (),
    length: int = 24,
) -> list[Finding]:
    """What the check finds in one step of a training."""

    def build() -> Training:
        model = Model(form=form, experts=experts, chosen=chosen, favoured=favoured)
        tokens = torch.randint(32, (4, length + 1))

        def step(_: int) -> None:
            scores = model(tokens[:, :-1])
            nn.functional.cross_entropy(scores.flatten(0, 1), tokens[:, 1:].flatten()).backward()

        return model, step

    record_training(folder, build)
    return [one for one in check_run(folder).findings if one.evidence["check"] == "routing"]


@pytest.mark.parametrize(
    ("form", "experts", "chosen", "favoured"),
    [
        ("rows", 4, 1, (2,)),
        ("rows", 8, 2, (1, 5)),
        ("masked", 4, 1, (0,)),
        ("fused", 4, 1, (3,)),
        ("gate", 6, 2, (0, 3)),
    ],
)
def test_a_router_that_sends_all_tokens_to_the_same_experts_is_named(
    tmp_path: Path, form: str, experts: int, chosen: int, favoured: tuple[int, ...]
) -> None:
    (finding,) = findings(tmp_path, form, experts, chosen, favoured)
    assert finding.name == "experts-unused"
    assert finding.entry == "Torch.topk.0.forward"
    assert finding.module == ("mixture.gate" if form == "gate" else "mixture")
    assert finding.evidence["experts"] == experts
    assert finding.evidence["busiest"] == list(favoured)
    assert finding.evidence["share"] == 1.0


@pytest.mark.parametrize(
    ("form", "experts", "chosen", "favoured", "length"),
    [
        ("rows", 4, 1, (), 24),
        ("rows", 8, 2, (), 24),
        ("rows", 8, 2, (1,), 24),
        ("masked", 4, 1, (), 24),
        ("masked", 4, 2, (), 24),
        ("fused", 4, 2, (), 24),
        ("rows", 4, 1, (2,), 2),
        ("rows", 2, 2, (), 24),
        ("gate", 6, 2, (), 24),
    ],
    ids=[
        "balanced",
        "two of eight",
        "one expert for all, and the second of several",
        "all tokens to each expert, masked",
        "two, masked",
        "weights in one tensor",
        "too few tokens to tell",
        "all experts are chosen",
        "chosen in a module of its own",
    ],
)
def test_routers_that_use_their_experts_are_not_named(
    tmp_path: Path, form: str, experts: int, chosen: int, favoured: tuple[int, ...], length: int
) -> None:
    assert findings(tmp_path, form, experts, chosen, favoured, length) == []


def test_a_choice_of_the_same_token_is_no_router(tmp_path: Path) -> None:
    """Sampling: the most likely of all words may be the same at all positions."""

    class Sampler(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layers = nn.ModuleList([nn.Linear(WIDTH, WIDTH) for _ in range(2)])
            self.head = nn.Linear(WIDTH, 16)
            with torch.no_grad():
                self.head.bias[3] = 50.0

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            for layer in self.layers:
                x = layer(x)
            return torch.topk(self.head(x), 1)[1]

    def build() -> Training:
        model, x = nn.Sequential(nn.Identity(), Sampler()), torch.randn(64, WIDTH)
        return model, lambda _: model(x)

    record_training(tmp_path, build)
    assert [one for one in check_run(tmp_path).findings if one.evidence["check"] == "routing"] == []
