"""Features of layers: attention, weights of linear layers, routers; exact, repeatable, and no part of the training."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from support.coded_texts import mentions
from torch import nn
from unit.monitor.torch.monitored import Attach, Measured, monitored, number

CONFIG: dict[str, Any] = {"targets": {}, "recording_l2_features": True, "squash_name": False}


class Scores(nn.Module):
    def forward(self, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
        return (query * key).sum() + value.sum()


class Router(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(3, 6) * 0.3)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return x @ self.weight.t(), x


class Layers(nn.Module):
    """Embedding, attention and router; keeps what it hands over, for the test."""

    def __init__(self, width: int = 8) -> None:
        super().__init__()
        self.embedding = nn.Embedding(5, 6)
        self.q = nn.Linear(6, width)
        self.k = nn.Linear(6, width)
        self.attention = Scores()
        self.router = Router()
        self.kept: list[tuple[torch.Tensor, ...]] = []

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        x = self.embedding(tokens)
        query, key = (one(x).view(*x.shape[:2], 2, -1) for one in (self.q, self.k))
        logits, _ = self.router(x)
        if self.training:
            self.kept.append((query.detach(), key.detach(), logits.detach()))
        out: torch.Tensor = self.attention(query, key, x) + logits.square().sum()
        return out


def train_layers(
    steps: int = 3, accumulated: int = 2, build: Callable[[], Layers] = Layers, weights: list[Any] | None = None
) -> Callable[[Attach], Any]:
    def train(attach: Attach) -> Any:
        torch.manual_seed(0)
        model = build()
        adam = torch.optim.Adam(model.parameters(), lr=0.01)
        attach(model, adam)
        for _ in range(steps):
            for _ in range(accumulated):
                (model(torch.randint(0, 5, (4, 2))) / accumulated).backward()
            if weights is not None:
                weights.append({name: one.detach().clone() for name, one in model.named_parameters()})
            adam.step()
            adam.zero_grad()
            model.eval()
            with torch.no_grad():
                model(torch.zeros(4, 2, dtype=torch.long))
            model.train()
        return [model, adam]

    return train


def watched(folder: Path, targets: dict[str, list[str]], accumulated: int = 2, **config: Any) -> Measured:
    return monitored(
        folder,
        {**CONFIG, "l2_targets": targets, **config},
        train_layers(accumulated=accumulated),
        grad_acc_steps=accumulated,
    )


@pytest.mark.parametrize("order", ["s,b,h,d", "b,s,h,d"])
def test_attention(tmp_path: Path, order: str) -> None:
    found = watched(tmp_path, {"attention_hook": ["0:attention"]}, sa_order=order)
    assert found.quantities == {"attention_hook"}
    assert found.header("attention_hook_0-0.csv") == "vpp_stage,name,step,micro_step,entropy,softmax_max"
    rows = found.rows("attention_hook")
    assert [(row["step"], row["micro_step"]) for row in rows] == [(s, m) for s in "012" for m in "01"]
    for row, (query, key, _) in zip(rows, found.result[0].kept, strict=True):
        q, k = (one[:, 0, 0] if order == "s,b,h,d" else one[0, :, 0] for one in (query.double(), key.double()))
        scores = q @ k.T / math.sqrt(q.shape[-1])
        shares = scores.masked_fill(torch.ones_like(scores, dtype=torch.bool).triu(1), -math.inf).softmax(-1)
        entropies = [-sum(p * math.log(p) for p in line if p) for line in shares.tolist()]
        assert number(row["entropy"]) == pytest.approx(sum(entropies) / len(entropies), rel=1e-7)
        assert number(row["softmax_max"]) == pytest.approx(float(shares.max(-1).values.mean()), rel=1e-7)
        assert row["name"] == "attention.attention"


def test_attention_of_what_is_no_attention(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    found = watched(tmp_path, {"attention_hook": ["0:q", "0:router", "0:nope"]})
    assert found.quantities == set()
    said = capfd.readouterr().out
    assert mentions(said, "attention-without-q-and-k")
    assert mentions(said, "l2-target-unknown", missing="0:nope", name="attention_hook")


def test_linear_layers(tmp_path: Path) -> None:
    weights: list[Any] = []
    found = monitored(
        tmp_path, {**CONFIG, "l2_targets": {"linear_hook": []}, "ndigits": 12}, train_layers(weights=weights)
    )
    assert found.header("linear_hook_0-0.csv") == "vpp_stage,name,step,sr,kernel_norm"
    rows = found.rows("linear_hook")
    assert [row["name"] for row in rows] == ["q.linear", "k.linear", "router.linear"] * 3, "no embedding"
    for row in rows:
        weight = weights[int(row["step"])][row["name"].replace("linear", "weight")].double()
        sigma = float(torch.linalg.matrix_norm(weight, 2))
        assert number(row["kernel_norm"]) == pytest.approx(sigma, rel=1e-8)
        assert number(row["sr"]) == pytest.approx(float(weight.norm()) / sigma, rel=1e-8)


def test_only_the_linear_layers_that_are_named(tmp_path: Path) -> None:
    found = watched(tmp_path, {"linear_hook": ["k"]})
    assert found.names("linear_hook") == ["k.linear"]


def test_large_linear_layers(tmp_path: Path) -> None:
    """Too large for an exact answer: by iteration, which goes on where it was, and the same in each run."""

    class Large(Layers):
        def __init__(self) -> None:
            super().__init__()
            self.wide = nn.Linear(300, 400, bias=False)

        def forward(self, tokens: torch.Tensor) -> torch.Tensor:
            return super().forward(tokens) + self.wide(torch.ones(300)).square().mean()

    weights: list[Any] = []
    train = train_layers(build=Large, weights=weights)
    config = {**CONFIG, "l2_targets": {"linear_hook": ["wide"]}}
    found = monitored(tmp_path, config, train)
    for row in found.rows("linear_hook"):
        weight = weights[int(row["step"])]["wide.weight"].double()
        assert number(row["kernel_norm"]) == pytest.approx(float(torch.linalg.matrix_norm(weight, 2)), rel=1e-3)
    again = monitored(tmp_path, config, train)
    assert again.rows("linear_hook") == found.rows("linear_hook")


def test_routers(tmp_path: Path) -> None:
    weights: list[Any] = []
    targets = {"moe_router_weight_hook": ["0:router"], "moe_router_logit_hook": ["router"]}
    found = monitored(
        tmp_path,
        {**CONFIG, "l2_targets": targets},
        train_layers(weights=weights),
        grad_acc_steps=2,
    )
    assert found.header("moe_router_weight_hook_0-0.csv") == "vpp_stage,name,step,router_weight_similarity"
    assert found.header("moe_router_logit_hook_0-0.csv") == "vpp_stage,name,step,micro_step,per_token_expert_entropy"
    for row in found.rows("moe_router_weight_hook"):
        experts = nn.functional.normalize(weights[int(row["step"])]["router.weight"].double(), dim=1)
        cosines = [float(experts[i] @ experts[j]) for i in range(3) for j in range(3) if i != j]
        assert number(row["router_weight_similarity"]) == pytest.approx(sum(cosines) / 6, rel=1e-6)
        assert row["name"] == "router.moe_router"
    rows = found.rows("moe_router_logit_hook")
    assert len(rows) == 6
    for row, (_, _, logits) in zip(rows, found.result[0].kept, strict=True):
        shares = logits.double().softmax(-1)
        assert number(row["per_token_expert_entropy"]) == pytest.approx(
            float(-(shares * shares.log()).sum(-1).mean()), rel=1e-7
        )


def test_the_published_numbers(tmp_path: Path) -> None:
    """What mindstudio-probe 26.2.0 has written of this model at step 0; of its largest singular values, which it
    estimates from a random start, only those that it has computed exactly are told.
    """
    torch.manual_seed(0)

    def train(attach: Attach) -> Any:
        torch.manual_seed(0)
        model = Published()
        adam = torch.optim.Adam(model.parameters(), lr=0.01)
        attach(model, adam)
        model(torch.arange(8).view(4, 2) % 5).backward()
        adam.step()
        return [model]

    targets = {
        "attention_hook": ["0:att"],
        "moe_router_weight_hook": ["0:router"],
        "moe_router_logit_hook": ["0:router"],
    }
    found = monitored(tmp_path, {**CONFIG, "l2_targets": targets}, train)
    (attention,) = found.rows("attention_hook")
    assert number(attention["entropy"]) == pytest.approx(0.78308845, rel=1e-6)
    assert number(attention["softmax_max"]) == pytest.approx(0.55691123, rel=1e-6)
    (weight,) = found.rows("moe_router_weight_hook")
    assert number(weight["router_weight_similarity"]) == pytest.approx(0.20991278, rel=1e-6)
    (logits,) = found.rows("moe_router_logit_hook")
    assert number(logits["per_token_expert_entropy"]) == pytest.approx(0.85265571, rel=1e-6)


class Published(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.q = nn.Linear(6, 8)
        self.k = nn.Linear(6, 8)
        self.att = Scores()
        self.router = Router()
        self.emb = nn.Embedding(5, 6)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        x = self.emb(tokens)
        query, key = (one(x).view(*x.shape[:2], 2, 4) for one in (self.q, self.k))
        logits, _ = self.router(x)
        out: torch.Tensor = self.att(query, key, x) + logits.square().sum()
        return out


def test_weights_without_numbers(tmp_path: Path) -> None:
    def train(attach: Attach) -> Any:
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4))
        with torch.no_grad():
            model[0].weight[0, 0] = math.nan  # type: ignore[index]
            model[1].weight.zero_()  # type: ignore[operator]
        sgd = torch.optim.SGD(model.parameters(), lr=0.1)
        attach(model, sgd)
        model(torch.ones(2, 4)).sum().backward()
        sgd.step()
        return [model]

    found = monitored(tmp_path, {**CONFIG, "l2_targets": {"linear_hook": []}}, train)
    first, second = found.rows("linear_hook")
    assert (first["sr"], first["kernel_norm"]) == ("nan", "nan")
    assert (second["sr"], number(second["kernel_norm"])) == ("nan", 0)


def test_switched_off_nothing_is_measured(tmp_path: Path) -> None:
    found = watched(tmp_path, {"linear_hook": []}, recording_l2_features=False)
    assert found.quantities == set()
