"""Level L0 in half types: what a module gives, or takes and none gave, is judged by what there was before it."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from unit.diagnose.real_pairs import Training, compare_trainings, record_training

from msprobe.diagnose import compare_runs
from msprobe.diagnose.findings import Verdict

VOCABULARY, WIDTH, LENGTH, HEADS = 32, 32, 12, 4
PRECISIONS = ("bfloat16", "autocast")


class Norm(nn.Module):
    """A norm by hand, as many models have it."""

    def __init__(self, form: str) -> None:
        super().__init__()
        self.weight, self.form = nn.Parameter(1.0 + 0.1 * torch.randn(WIDTH)), form

    def forward(self, x: Tensor) -> Tensor:
        wide = x.float()
        wide = wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + 1e-6)
        if self.form == "norm in single precision":
            return (wide * self.weight.float()).to(x.dtype)
        return wide.to(x.dtype) * (1.0 + self.weight if self.form == "norm of one more" else self.weight)


class Block(nn.Module):
    """One of a decoder; its attention runs between its modules."""

    def __init__(self, form: str) -> None:
        super().__init__()
        self.form, self.before, self.after = form, Norm(form), Norm(form)
        self.mixed, self.out = nn.Linear(WIDTH, 3 * WIDTH, bias=False), nn.Linear(WIDTH, WIDTH, bias=False)
        self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH, bias=False), nn.Linear(2 * WIDTH, WIDTH, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        query, key, value = (
            part.unflatten(-1, (HEADS, -1)).transpose(1, 2) for part in self.mixed(self.before(x)).chunk(3, -1)
        )
        if self.form == "attention by hand":
            scores = query @ key.transpose(-1, -2) / math.sqrt(WIDTH // HEADS)
            mask = torch.ones(LENGTH, LENGTH, dtype=torch.bool).triu(1)
            seen = scores.masked_fill(mask, float("-inf")).float().softmax(-1).to(value.dtype) @ value
        else:
            scale = WIDTH**-0.5 if self.form == "scale of all heads" else None
            seen = F.scaled_dot_product_attention(query, key, value, is_causal=True, scale=scale)
        x = x + self.out(seen.transpose(1, 2).flatten(2))
        gate, up = self.up(self.after(x)).chunk(2, -1)
        gate, up = (up, gate) if self.form == "gate exchanged" else (gate, up)
        return x + self.down(F.silu(gate) * up)  # type: ignore[no-any-return]


class Decoder(nn.Module):
    def __init__(self, form: str) -> None:
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY, WIDTH)
        self.blocks = nn.ModuleList([Block(form) for _ in range(2)])
        self.norm, self.head = Norm(""), nn.Linear(WIDTH, VOCABULARY, bias=False)

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.embedding(tokens)
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))  # type: ignore[no-any-return]


def trained(form: str, precision: str) -> Callable[[], Training]:
    def build() -> Training:
        model = Decoder(form).to(torch.bfloat16 if precision == "bfloat16" else torch.float32)
        optimizer = torch.optim.AdamW(model.parameters(), 1e-3)

        def step(number: int) -> None:
            tokens = torch.randint(0, VOCABULARY, (4, LENGTH + 1), generator=torch.Generator().manual_seed(number))
            optimizer.zero_grad()
            with torch.autocast("cpu", torch.bfloat16, enabled=precision == "autocast"):
                rows = model(tokens[:, :-1])
            loss = F.cross_entropy(
                rows.flatten(0, 1).float(),
                tokens[:, 1:].flatten(),
                label_smoothing=0.1 if form == "labels smoothed" else 0.0,
            )
            loss.backward()
            if form == "gradient of a weight":
                weight: Any = model.blocks[0].out.weight
                weight.grad[:, : WIDTH // 2] = 0.0
            optimizer.step()

        return model, step

    return build


def verdict_of(folder: Path, forms: tuple[str, str], precision: str) -> Verdict:
    return compare_trainings(folder, *(trained(form, precision) for form in forms), steps=2, level="L0")


#: What is wrong, and the finding and its record.
MISTAKES = {
    "norm of one more": ("result-differs", "Module.blocks.0.before.Norm.forward.0"),
    "scale of all heads": ("computed-beyond-all-before", "Module.blocks.0.Block.forward.0"),
    "gate exchanged": ("computed-beyond-all-before", "Module.blocks.0.Block.forward.0"),
    "labels smoothed": ("computed-beyond-all-before", "Module.head.Linear.backward.0"),
    "gradient of a weight": ("gradient-at-optimizer-differs", "Optimizer.AdamW.0.forward"),
}


@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize("form", MISTAKES)
def test_a_mistake_inside_a_module_or_between_modules_is_named(form: str, precision: str, tmp_path: Path) -> None:
    for number, forms in enumerate(((form, ""), ("", form))):
        verdict = verdict_of(tmp_path / str(number), forms, precision)
        assert verdict.status == "diverged"
        assert (verdict.findings[0].name, verdict.findings[0].entry) == MISTAKES[form]


@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize("form", ["norm in single precision", "attention by hand"])
def test_what_is_written_otherwise_agrees(form: str, precision: str, tmp_path: Path) -> None:
    for number, forms in enumerate(((form, ""), ("", form))):
        assert verdict_of(tmp_path / str(number), forms, precision).status == "agree"


def dropping(seed: int, precision: str) -> Callable[[], Training]:
    def build() -> Training:
        layers = nn.Embedding(VOCABULARY, WIDTH), nn.Linear(WIDTH, WIDTH), nn.Dropout(0.1), nn.Linear(WIDTH, VOCABULARY)
        model = nn.Sequential(*layers).to(torch.bfloat16 if precision == "bfloat16" else torch.float32)
        optimizer = torch.optim.AdamW(model.parameters(), 1e-3)

        def step(number: int) -> None:
            tokens = torch.randint(0, VOCABULARY, (4, LENGTH + 1), generator=torch.Generator().manual_seed(number))
            torch.manual_seed(seed)
            optimizer.zero_grad()
            F.cross_entropy(model(tokens[:, :-1]).flatten(0, 1).float(), tokens[:, 1:].flatten()).backward()
            optimizer.step()

        return model, step

    return build


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_a_layer_that_draws_otherwise_is_called_so(precision: str, tmp_path: Path) -> None:
    verdict = compare_trainings(tmp_path, dropping(1, precision), dropping(2, precision), level="L0")
    first = verdict.findings[0]
    assert (first.name, first.entry) == ("random-numbers-differ", "Module.2.Dropout.forward.0")


class Cells(nn.Module):
    """A layer of cells, one place after the other: under autocast they take and give single precision."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding, self.cell = nn.Embedding(VOCABULARY, WIDTH), nn.GRUCell(WIDTH, WIDTH)
        self.head = nn.Linear(WIDTH, 8)

    def forward(self, tokens: Tensor) -> Tensor:
        state, rows = torch.zeros(len(tokens), WIDTH), self.embedding(tokens)
        for place in range(LENGTH):
            state = self.cell(rows[:, place], state)
        return self.head(state)  # type: ignore[no-any-return]


def test_what_autocast_computes_inside_of_cells_is_rounding(tmp_path: Path) -> None:
    def build() -> Training:
        model = Cells()
        optimizer = torch.optim.AdamW(model.parameters(), 1e-3)

        def step(number: int) -> None:
            tokens = torch.randint(0, VOCABULARY, (4, LENGTH), generator=torch.Generator().manual_seed(number))
            optimizer.zero_grad()
            with torch.autocast("cpu", torch.bfloat16):
                rows = model(tokens)
            F.cross_entropy(rows.float(), torch.arange(4)).backward()
            optimizer.step()

        return model, step

    one = record_training(tmp_path / "candidate", build, steps=2, level="L0", jitter=True)
    other = record_training(tmp_path / "reference", build, steps=2, level="L0")
    assert compare_runs(one, other).status == "agree"
