"""The same network with its parameters arranged otherwise: one layer for three, a parameter in place of a layer."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from unit.diagnose.real_pairs import Training, compare_trainings

VOCABULARY, WIDTH, LENGTH, HEADS = 32, 32, 12, 4


def drawn(*shape: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(shape[0])) / 6


def layer(weight: Tensor) -> nn.Linear:
    made = nn.utils.skip_init(nn.Linear, weight.shape[1], weight.shape[0], bias=False)
    made.weight.data = weight.clone()
    return made  # type: ignore[no-any-return]


class Attention(nn.Module):
    """``form``: "" one layer makes queries, keys and values; "three": three do; "exchanged": keys and values are."""

    def __init__(self, form: str) -> None:
        super().__init__()
        weight, self.form = drawn(3 * WIDTH, WIDTH), form
        if form:
            self.query, self.key, self.value = map(layer, weight.chunk(3))
        else:
            self.mixed = layer(weight)
        self.out = layer(drawn(WIDTH, WIDTH))

    def forward(self, x: Tensor) -> Tensor:
        mixed = (self.query(x), self.key(x), self.value(x)) if self.form else self.mixed(x).chunk(3, -1)
        query, key, value = (each.unflatten(-1, (HEADS, -1)).transpose(1, 2) for each in mixed)
        if self.form == "exchanged":
            key, value = value, key
        seen = F.scaled_dot_product_attention(query, key, value, is_causal=True)
        return x + self.out(seen.transpose(1, 2).flatten(2))  # type: ignore[no-any-return]


class Perceptron(nn.Module):
    """``form``: "" of layers; "parameters": of bare ones, transposed; "convolution": of convolutions over one place."""

    def __init__(self, form: str) -> None:
        super().__init__()
        up, down = drawn(4 * WIDTH, WIDTH), drawn(WIDTH, 4 * WIDTH)
        self.form = form
        self.up: Any
        self.down: Any
        if form == "parameters":
            self.up, self.down = nn.Parameter(up.T.clone()), nn.Parameter(down.T.clone())
        elif form == "convolution":
            self.up, self.down = nn.Conv1d(WIDTH, 4 * WIDTH, 1, bias=False), nn.Conv1d(4 * WIDTH, WIDTH, 1, bias=False)
            self.up.weight.data, self.down.weight.data = up[..., None].clone(), down[..., None].clone()
        else:
            self.up, self.down = layer(up), layer(down)

    def forward(self, x: Tensor) -> Tensor:
        if self.form == "parameters":
            return x + F.gelu(x @ self.up) @ self.down  # type: ignore[no-any-return]
        if self.form == "convolution":
            return x + self.down(F.gelu(self.up(x.transpose(1, 2)))).transpose(1, 2)  # type: ignore[no-any-return]
        return x + self.down(F.gelu(self.up(x)))  # type: ignore[no-any-return]


class LowRank(nn.Module):
    """``form``: "" an addition of few ranks stands beside a layer; "merged": in its weight."""

    def __init__(self, form: str) -> None:
        super().__init__()
        self.form, self.layer = form, layer(drawn(WIDTH, WIDTH))
        self.first, self.last = nn.Parameter(drawn(4, WIDTH)), nn.Parameter(2 * drawn(WIDTH, 4))

    def forward(self, x: Tensor) -> Tensor:
        if self.form:
            return F.linear(x, self.layer.weight + 2.0 * (self.last @ self.first))
        return self.layer(x) + x @ self.first.T @ self.last.T * 2.0  # type: ignore[no-any-return]


def trained(kind: Callable[[str], nn.Module], form: str, dtype: torch.dtype) -> Callable[[], Training]:
    def build() -> Training:
        embedding, head = nn.Embedding(VOCABULARY, WIDTH), nn.Linear(WIDTH, VOCABULARY)
        model = nn.Sequential(embedding, kind(form), nn.LayerNorm(WIDTH), head).to(dtype)
        optimizer = torch.optim.AdamW(model.parameters(), 1e-3)

        def step(number: int) -> None:
            tokens = torch.randint(0, VOCABULARY, (4, LENGTH + 1), generator=torch.Generator().manual_seed(number))
            optimizer.zero_grad()
            F.cross_entropy(model(tokens[:, :-1]).flatten(0, 1).float(), tokens[:, 1:].flatten()).backward()
            optimizer.step()

        return model, step

    return build


SIDES = ((False, True), (True, False))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("level", ["mix", "L0", "L1"])
@pytest.mark.parametrize(
    ("kind", "form"), [(Attention, "three"), (Perceptron, "parameters"), (Perceptron, "convolution")]
)
def test_another_arrangement_is_harmless(
    kind: Callable[[str], nn.Module], form: str, level: str, dtype: torch.dtype, tmp_path: Path
) -> None:
    for number, sides in enumerate(SIDES):
        both = [trained(kind, form if side else "", dtype) for side in sides]
        verdict = compare_trainings(tmp_path / str(number), *both, steps=2, level=level)
        assert verdict.status in ("agree", "harmless")
        if form != "convolution":  # what is not compared is said
            assert "models-have-other-parameters" in {finding.name for finding in verdict.findings}
        elif level == "L0":
            assert verdict.status == "agree"


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("level", ["mix", "L0", "L1"])
def test_an_addition_of_few_ranks_may_be_merged(level: str, dtype: torch.dtype, tmp_path: Path) -> None:
    for number, sides in enumerate(SIDES):
        both = [trained(LowRank, "merged" if side else "", dtype) for side in sides]
        verdict = compare_trainings(tmp_path / str(number), *both, steps=2, level=level)
        assert verdict.status == ("agree" if level == "L0" else "harmless")
        assert "parameter-differs" not in {finding.name for finding in verdict.findings}


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("level", ["mix", "L0"])
def test_a_mistake_in_it_is_not_harmless(level: str, dtype: torch.dtype, tmp_path: Path) -> None:
    for number, sides in enumerate(SIDES):
        both = [trained(Attention, "exchanged" if side else "", dtype) for side in sides]
        assert compare_trainings(tmp_path / str(number), *both, steps=2, level=level).status == "diverged"


class Wrapped(nn.Module):
    """As a wrapper for several ranks has it."""

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.module = module

    def forward(self, x: Tensor) -> Tensor:
        return self.module(x)  # type: ignore[no-any-return]


@pytest.mark.parametrize("level", ["mix", "L0"])
@pytest.mark.parametrize("is_wrapped", [False, True])
def test_a_parameter_that_is_not_stepped_is_still_said(is_wrapped: bool, level: str, tmp_path: Path) -> None:
    def build(left_out: str) -> Callable[[], Training]:
        def built() -> Training:
            model: nn.Module = nn.Sequential(nn.Embedding(VOCABULARY, WIDTH), layer(drawn(WIDTH, WIDTH)))
            model.add_module("2", layer(drawn(WIDTH, WIDTH).T.contiguous()))
            model = Wrapped(model) if is_wrapped else model
            parameters = [weight for name, weight in model.named_parameters() if not name.endswith(left_out)]
            optimizer = torch.optim.AdamW(parameters, 1e-3)

            def step(number: int) -> None:
                optimizer.zero_grad()
                model(torch.arange(LENGTH)[None]).square().mean().backward()
                optimizer.step()

            return model, step

        return built

    # As many elements on both sides, and of others.
    verdict = compare_trainings(tmp_path, build("1.weight"), build("2.weight"), steps=2, level=level)
    assert verdict.status == "diverged"
    assert "optimizer-lacks-parameters" in {finding.name for finding in verdict.findings}
