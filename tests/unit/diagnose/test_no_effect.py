"""What differs and changes nothing that can be measured is told as that, and no more is promised."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from unit.diagnose.real_pairs import Training, compare_trainings, record_training

from msprobe.cli import main
from msprobe.diagnose import compare_runs
from msprobe.messages import said
from msprobe.report.advice import advice_on
from msprobe.report.phrases import headline, leading


def batch(number: int) -> torch.Tensor:
    return torch.randn(6, 8, generator=torch.Generator().manual_seed(number))


class Net(nn.Module):
    """Two layers around a norm of what is so large that its eps vanishes beside it."""

    def __init__(self, eps: float, size: float) -> None:
        super().__init__()
        self.first, self.norm, self.last = nn.Linear(8, 16), nn.LayerNorm(16, eps=eps), nn.Linear(16, 4)
        with torch.no_grad():
            self.first.weight.mul_(size)

    def forward(self, x: torch.Tensor) -> Any:
        return self.last(torch.relu(self.norm(self.first(x))))


def training(eps: float, size: float = 1e4, most: float | None = None) -> Callable[[], Training]:
    """A training; ``most``: the norm that gradients are clipped at."""

    def build() -> Training:
        model = Net(eps, size)
        optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)

        def step(number: int) -> None:
            optimizer.zero_grad()
            model(batch(number)).pow(2).mean().backward()
            if most is not None:
                nn.utils.clip_grad_norm_(model.parameters(), most)
            optimizer.step()

        return model, step

    return build


def evaluation(eps: float, grows_from: int = 0) -> Callable[[], Training]:
    """Tokens chosen step by step, without a backward pass; activations are large before step ``grows_from``."""

    def build() -> Training:
        model = Net(eps, 1.0).eval()

        def step(number: int) -> None:
            with torch.no_grad():
                model(batch(number) * (1e5 if number < grows_from else 1.0)).argmax(-1)

        return model, step

    return build


@pytest.mark.parametrize("mode", ["statistics", "digest"])
def test_an_argument_without_effect_is_told_with_the_steps_that_were_measured(tmp_path: Path, mode: str) -> None:
    verdict = compare_trainings(tmp_path, training(1e-6), training(1e-5), steps=3, mode=mode)
    assert verdict.status == "harmless"
    assert headline(verdict) == said("they-differ", "", "HARMLESS", said("no-effect-measured-in", "", "3 steps"))
    (found, *_) = verdict.findings
    assert (found.kind, found.evidence["no_effect_in_steps"]) == ("argument", 3)
    assert advice_on(found) == said("harmless-advice", said("no-effect-measured-in", "", said("count-of-steps", 3)))


def test_another_limit_of_clipping_that_no_gradient_reaches_has_no_effect(tmp_path: Path) -> None:
    verdict = compare_trainings(tmp_path, training(1e-5, most=1e4), training(1e-5, most=1e5), steps=2)
    assert verdict.status == "harmless", verdict.findings
    assert verdict.findings[0].kind == "argument"


def test_another_limit_of_clipping_that_gradients_reach_diverges(tmp_path: Path) -> None:
    verdict = compare_trainings(tmp_path, training(1e-5, most=1e-3), training(1e-5, most=2e-3), steps=2)
    assert verdict.status == "diverged"


def test_without_a_backward_pass_the_results_are_the_effect(tmp_path: Path) -> None:
    """What the model returns differs by more than rounding; the tokens that are chosen by it are the same."""
    verdict = compare_trainings(tmp_path, evaluation(1e-3), evaluation(1e-5), steps=2)
    assert (verdict.status, verdict.findings[0].kind) == ("diverged", "argument")
    diverged = said("named-at", "DIVERGED", "step 0, forward pass")
    assert headline(verdict) == f"{diverged}{said('in-module', 'norm')}"


def test_healthy_results_without_a_backward_pass_agree(tmp_path: Path) -> None:
    verdict = compare_trainings(tmp_path, evaluation(1e-5), evaluation(1e-5), steps=2)
    assert (verdict.status, verdict.findings) == ("agree", ())


def test_the_first_step_with_the_difference_is_the_headline(tmp_path: Path) -> None:
    """In steps 0 and 1 it changes nothing, in step 2 the results."""
    verdict = compare_trainings(tmp_path, evaluation(1e-3, 2), evaluation(1e-5, 2), steps=4, mode="digest")
    diverged = said("named-at", "DIVERGED", "step 0, forward pass")
    assert headline(verdict) == f"{diverged}{said('in-module', 'norm')}"
    found = leading(verdict)[0]
    assert (found.step, found.evidence["effect_in_step"]) == (0, 2)
    assert "in step 2" in found.message


def test_a_dump_agrees_with_itself_and_a_note_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    dump = record_training(tmp_path / "dump", training(1e-5), steps=2)
    # 2: of a dump and one step of it, the other steps are compared with nothing.
    for other, status in ((dump, 0), (dump / "step1", 2)):
        verdict = compare_runs(dump, other)
        assert (verdict.status, verdict.exit_code) == ("agree", status)
        assert said("same-dump") in verdict.notes
    assert main(["compare", str(dump), str(dump)]) == 0
    assert "the same dump" in capsys.readouterr().out
    assert not any("same dump" in note for note in compare_runs(dump / "step0", dump / "step1").notes)


def calls(*words: str) -> Callable[[], Training]:
    """A layer that both sides have, and calls of their own on what is the same."""

    def build() -> Training:
        model = nn.Sequential(nn.Linear(8, 8), nn.Tanh())

        def step(number: int) -> None:
            model(batch(number))
            same = torch.full((2, 8), 0.5)
            for word in words:
                getattr(same, word)()

        return model, step

    return build


def test_agreement_in_a_few_calls_says_how_few(tmp_path: Path) -> None:
    mine, theirs = ("sin", "cos", "tan", "atan") * 4, ("exp", "sqrt", "log", "neg") * 4
    verdict = compare_trainings(tmp_path, calls(*mine), calls(*theirs))
    assert verdict.status == "agree"
    little = verdict.summary["little_in_common"]
    assert headline(verdict).startswith(f"AGREE in {said('calls-that-match', little['pairs'], little['of'])}")
    assert verdict.exit_code == 2


def test_agreement_with_a_part_of_the_calls_says_how_few(tmp_path: Path) -> None:
    verdict = compare_trainings(tmp_path, calls(), calls(*["exp", "sqrt", "log", "neg"] * 4))
    little = verdict.summary["little_in_common"]
    assert headline(verdict).startswith(f"AGREE in {said('calls-that-match', little['pairs'], little['of'])}")
    assert verdict.exit_code == 0
