"""Thresholds that are learned."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from support.benchmarked import rows, run
from support.coded_texts import mentions

from msprobe.perturb.preheat import Preheat
from msprobe.perturb.thresholds import equal_ratio
from msprobe.pytorch import PrecisionDebugger


def taught(steps: int, samples: list[tuple[float, bool]], calls: int = 1, dtype: str = "bfloat16") -> list[float]:
    """The threshold after each step."""
    preheat, found = Preheat(steps, 15), []
    for _ in range(steps):
        preheat.begin_step()
        for _ in range(calls):
            if preheat.sample("Torch.add") is not None:
                for ratio, is_consistent in samples:
                    preheat.add("Torch.add", dtype, ratio, is_consistent)
        preheat.end_step()
        found.append(preheat.threshold("Torch.add", dtype))
    return found


def test_consistent_samples_halve_it() -> None:
    assert taught(3, [(1.0, True)]) == [2.05, 1.525, 1.2625]


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32"])
def test_it_never_falls_below_the_fixed_one(dtype: str) -> None:
    assert taught(30, [(1.0, True)], dtype=dtype)[-1] == equal_ratio(dtype, "add_noise")


def test_consistent_samples_above_it_double_it() -> None:
    assert taught(2, [(3.0, True)]) == [2.05, pytest.approx(3.1)]


def test_samples_of_both_kinds_settle_it() -> None:
    assert taught(4, [(1.1, True), (1.5, False)]) == [2.05, 1.5, 1.5, 1.5]
    assert taught(3, [(1.3, False)]) == [2.05, 1.3, 1.3]
    assert taught(3, [(1.5, True), (1.1, False)]) == [2.05, 2.05, 2.05]


def test_which_calls_are_sampled() -> None:
    preheat, chosen = Preheat(3, 15), []
    for step in range(4):
        preheat.begin_step()
        chosen += [(step, place[0]) for _ in range(7) if (place := preheat.sample("a")) is not None]
        preheat.end_step()
    assert chosen == [
        (step, number) for step in (1, 2) for number in sorted({(3 * one + step) % 7 for one in range(3)})
    ]


def test_no_more_calls_are_sampled_in_a_step_than_asked_for() -> None:
    for most in (1, 2):
        preheat = Preheat(3, most)
        for _ in range(2):
            preheat.begin_step()
            sampled = [preheat.sample("a") for _ in range(30)]
            preheat.end_step()
        assert len([one for one in sampled if one is not None]) == most


def test_the_threshold_that_was_learned_is_the_one_that_counts(tmp_path: Path) -> None:
    class Kernels:
        @staticmethod
        def edge(x: torch.Tensor) -> torch.Tensor:
            # To any noise it answers with 1.8 in place of 1.
            return torch.where(x == 1, 1.0, 1.8).to(x.dtype)

    PrecisionDebugger.reset()
    debugger = PrecisionDebugger(
        task="free_benchmark",
        dump_path=str(tmp_path),
        pert_mode="bit_noise",
        list=["edge"],
        if_preheat=True,
        preheat_step=3,
        max_sample=1,
    )
    debugger.register_custom_api(Kernels, "edge")
    for _ in range(3):
        with debugger.recording():
            Kernels.edge(torch.ones(4))
    PrecisionDebugger.reset()
    # The limit is 2.05 at first. The sample of step 1 agrees with the CPU, which makes 1.525 of it.
    assert [len(rows(tmp_path, step)) for step in range(3)] == [0, 0, 1]


def test_a_training_is_preheated(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    x = torch.randn(8, 64, dtype=torch.bfloat16)
    run(tmp_path, lambda: x.softmax(-1), steps=4, pert_mode="add_noise", if_preheat=True, preheat_step=3)
    said = capsys.readouterr().out
    assert mentions(said, "preheat-sample", step=1, name="Tensor.softmax.0.forward", number=0, total=1)
