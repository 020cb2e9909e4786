"""Losses that one side writes otherwise, in bfloat16: the same function is no difference, a different one is, also
where the gradients of the whole step are no further apart than types of few digits may be.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.nn import functional
from unit.diagnose.real_pairs import Training, compare_trainings

Loss = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]


def _by_hand(logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    return (torch.logsumexp(logits, -1) - logits.gather(1, labels[:, None])[:, 0]).mean()


def _of_products(logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    targets = functional.one_hot(labels, 10).to(logits.dtype)
    return -(targets * functional.log_softmax(logits, -1)).sum(-1).mean()


def _smoothed(logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    shares = functional.log_softmax(logits, -1)
    return -(0.9 * shares.gather(1, labels[:, None]).mean() + 0.1 * shares.mean())


def _larger(logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    return functional.cross_entropy(logits, labels) * 1.1


def _training(loss: Loss, is_learned: bool = False) -> Callable[[], Training]:
    """``is_learned``: probabilities are next to the labels, so that gradients are what little is left of both."""

    def build() -> Training:
        torch.manual_seed(0)
        # Its calls stand outside of all modules: none says what becomes of the loss.
        model = nn.ParameterList(0.2 * torch.randn(*shape) for shape in ((16, 32), (32, 32), (32, 10))).bfloat16()
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)

        def step(number: int) -> None:
            generator = torch.Generator().manual_seed(number)
            first, second, third = model
            rows = torch.randn(64, 16, generator=generator).bfloat16()
            logits = torch.relu(torch.tanh(rows @ first) @ second) @ third
            labels = torch.randint(10, (64,), generator=generator)
            if is_learned:
                logits = logits * 4
                labels = logits.argmax(-1)
            result = loss(logits, labels)
            optimizer.zero_grad()
            torch.autograd.backward(result)
            optimizer.step()

        return model, step

    return build


@pytest.mark.parametrize("is_learned", [False, True], ids=["new", "learned"])
@pytest.mark.parametrize("loss", [_by_hand, _of_products])
def test_the_same_loss_is_no_difference(tmp_path: Path, loss: Loss, is_learned: bool) -> None:
    verdict = compare_trainings(
        tmp_path, _training(loss, is_learned), _training(functional.cross_entropy, is_learned), mode="statistics"
    )
    assert verdict.status in ("agree", "harmless")


@pytest.mark.parametrize(("loss", "kind"), [(_smoothed, "structure"), (_larger, "loss_scale")])
def test_a_different_one_is(tmp_path: Path, loss: Loss, kind: str) -> None:
    verdict = compare_trainings(tmp_path, _training(loss), _training(functional.cross_entropy), mode="statistics")
    assert verdict.status == "diverged"
    assert verdict.findings[0].kind == kind
