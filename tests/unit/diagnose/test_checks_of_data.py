"""What `check` sees of data and modes, in real trainings of a tiny language model that the recorder writes down."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from support.coded_texts import mentions
from torch import Tensor, nn
from torch.nn import functional as F

from msprobe.diagnose.check import CheckResult, check_run
from msprobe.pytorch import PrecisionDebugger

WORDS, LENGTH = 32, 12
Labels = Callable[[Tensor], Tensor]


class Decoder(nn.Module):
    """Shifts its labels itself, in the way that transformers does."""

    def __init__(self, dropout: float = 0.1, causal: bool = True) -> None:
        super().__init__()
        self.tokens, self.places = nn.Embedding(WORDS, 8), nn.Embedding(LENGTH, 8)
        self.mix, self.drop, self.head = nn.Linear(8, 24), nn.Dropout(dropout), nn.Linear(8, WORDS)
        self.causal = causal

    def forward(self, tokens: Tensor, labels: Tensor) -> Tensor:
        x = self.tokens(tokens) + self.places(torch.arange(LENGTH)[None])
        q, k, v = self.mix(x).chunk(3, -1)
        x = x + self.drop(F.scaled_dot_product_attention(q, k, v, is_causal=self.causal))
        labels = F.pad(labels, (0, 1), value=-100)[..., 1:].contiguous()
        return F.cross_entropy(self.head(x).view(-1, WORDS).float(), labels.view(-1))


def batch(step: int) -> Tensor:
    return torch.randint(0, WORDS, (4, LENGTH), generator=torch.Generator().manual_seed(step))


def checked(
    folder: Path,
    model: Decoder | None = None,
    labels: Labels = lambda tokens: tokens,
    before: Callable[[Decoder, int], Any] = lambda model, step: None,
    data: Callable[[int], Tensor] = batch,
    precision: str = "float32",
    inside: bool = True,
    task: str = "statistics",
) -> CheckResult:
    """What is said of three steps. ``inside``: the labels are made while the recorder looks."""
    torch.manual_seed(0)
    model = model or Decoder()
    model = model.bfloat16() if precision == "bfloat16" else model
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    PrecisionDebugger.reset()
    debugger = PrecisionDebugger(dump_path=str(folder), task=task, level="mix", step=[])
    for step in range(3):
        before(model, step)
        tokens = data(step)
        made = None if inside else labels(tokens)
        debugger.start(model)
        optimizer.zero_grad()
        with torch.autocast("cpu", torch.bfloat16, enabled=precision == "autocast"):
            loss = model(tokens, labels(tokens) if made is None else made)
        loss.backward()
        optimizer.step()
        debugger.stop()
        debugger.step()
    PrecisionDebugger.reset()
    return check_run(folder)


def named(result: CheckResult) -> list[tuple[str, int | None, bool]]:
    return [(found.evidence["check"], found.step, found.harmless) for found in result.findings]


def ignore(count: int) -> Labels:
    def labels(tokens: Tensor) -> Tensor:
        return tokens.flatten().masked_fill(torch.arange(tokens.numel()) < count, -100).view_as(tokens)

    return labels


@pytest.mark.parametrize("precision", ["float32", "bfloat16", "autocast"])
@pytest.mark.parametrize("inside", [True, False])
def test_a_sound_training_is_clean(tmp_path: Path, precision: str, inside: bool) -> None:
    result = checked(tmp_path, precision=precision, inside=inside, labels=ignore(0 if inside else 20))
    # Updates of weights in bfloat16 may be too small for them, which is told as harmless.
    coarse = [("updates", 0, True)] if precision == "bfloat16" else []
    assert named(result) in ([], coarse), result.findings


SHIFTED: dict[str, Labels] = {
    "pad": lambda tokens: F.pad(tokens[:, 1:], (0, 1), value=-100),
    "cat": lambda tokens: torch.cat([tokens[:, 1:], torch.full_like(tokens[:, :1], -100)], 1),
    "roll": lambda tokens: torch.roll(tokens, -1, 1),
}


@pytest.mark.parametrize("how", SHIFTED)
def test_labels_that_data_and_model_shift_are_found(tmp_path: Path, how: str) -> None:
    result = checked(tmp_path, labels=SHIFTED[how])
    assert named(result)[0] == ("labels", 0, False)
    assert "2 positions ahead" in result.findings[0].message


@pytest.mark.parametrize(("how", "task"), [("roll", "statistics"), ("pad", "tensor"), ("cat", "tensor")])
def test_so_are_labels_that_come_shifted_from_outside(tmp_path: Path, how: str, task: str) -> None:
    assert named(checked(tmp_path, labels=SHIFTED[how], inside=False, task=task))[0] == ("labels", 0, False)


@pytest.mark.parametrize(("ignored", "task", "expected"), [
    (30, "statistics", []),
    (46, "statistics", [("ignored", 0, True)]),
    (46, "tensor", [("ignored", 0, True)]),
])  # fmt: skip
def test_labels_that_are_ignored_are_counted(tmp_path: Path, ignored: int, task: str, expected: list[Any]) -> None:
    # The model drops the first label of each row, and adds an ignored one.
    result = checked(tmp_path, labels=ignore(ignored), task=task)
    assert named(result)[:1] == expected
    assert not expected or "of 48 labels" in result.findings[0].message


def test_a_loss_without_any_label_is_no_harmless_one(tmp_path: Path) -> None:
    assert ("ignored", 0, False) in named(checked(tmp_path, labels=ignore(48)))


def test_attention_without_a_mask_is_found_where_the_model_shifts_its_labels(tmp_path: Path) -> None:
    assert named(checked(tmp_path, Decoder(causal=False)))[0] == ("attention", 0, False)


def test_training_in_eval_mode_is_found(tmp_path: Path) -> None:
    result = checked(tmp_path, before=lambda model, step: model.train(step == 0))
    assert named(result) == [("evaluating", 1, False)]
    message = result.findings[0].message
    before = ", and was in training mode before"
    assert mentions(message, "trained-in-eval-mode", model="the model", before=before)
    result = checked(tmp_path / "without", Decoder(dropout=0.0), before=lambda model, step: model.eval())
    assert result.findings == (), "nothing depends on the mode"


def test_a_look_at_gradients_in_eval_mode_before_the_training_pass_is_meant(tmp_path: Path) -> None:
    """As where inputs are moved against the model."""
    model = Decoder()

    def after_a_look(tokens: Tensor) -> Tensor:
        model.eval()
        torch.autograd.grad(model(tokens, tokens), model.places.weight)
        model.train()
        return tokens

    assert named(checked(tmp_path, model, labels=after_a_look)) == []


def test_a_part_that_is_frozen_between_two_steps_is_found(tmp_path: Path) -> None:
    result = checked(tmp_path, before=lambda model, step: model.mix.requires_grad_(step < 1))
    assert ("frozen", 1, False) in named(result)
    result = checked(tmp_path / "always", before=lambda model, step: model.places.requires_grad_(False))
    assert named(result) == [("frozen", 0, True)]


def test_a_step_that_repeats_a_batch_is_told_and_harmless(tmp_path: Path) -> None:
    result = checked(tmp_path, data=lambda step: batch(0 if step == 2 else step))
    assert named(result) == [("repeated", 2, True)]
    assert "step 0" in result.findings[0].message
