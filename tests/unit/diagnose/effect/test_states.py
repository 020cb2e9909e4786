from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.coded_texts import mentions
from unit.diagnose.comparing import agrees, first, told
from unit.diagnose.dumps import Recording, Value, drawn, rounded

from msprobe.diagnose import compare_runs
from msprobe.diagnose.findings import Verdict


@dataclass(frozen=True)
class Norm:
    """A module that normalises what comes in and averages it over the steps, or keeps another average of it.

    ``rate``: of the average; ``begin``: the running mean at the beginning; ``noise``: the relative error of what comes
    in; ``centre``: what comes in has this mean; ``writes``: the average is written in place (``lerp_``), by a
    call of the module's own; ``buffers``: recorded with the module; ``passes``: micro-batches of each step; ``dtype``:
    of what comes in and goes out.
    """

    rate: float = 0.1
    begin: float = 0.0
    noise: float = 0.0
    centre: float = 1.0
    training: bool = True
    writes: bool = False
    buffers: bool = False
    steps: int = 2
    keyword: bool = False
    api: str = "Functional.batch_norm"
    wrong: float = 1.0
    passes: int = 1
    dtype: str = "float32"

    def record(self, folder: Path) -> Path:
        mean, variance = np.full(4, self.begin, np.float32), np.ones(4, np.float32)
        if self.writes:
            mean = drawn("average", 4)
        rec = Recording()
        for step in range(self.steps * self.passes):
            if step % self.passes == 0:
                rec = Recording()
            x = drawn(f"x {step}", 64, 4) + np.float32(self.centre)
            x = rounded((x * (1 + self.noise * drawn(f"noise {step}", 64, 4))).astype(np.float32), self.dtype)
            with rec.module("norm", "BatchNorm1d", [Value(x, dtype=self.dtype)]) as end:
                y = rounded((x - x.mean(0)) / x.std(0), self.dtype)
                if self.writes:
                    batch = (x.mean(0) * np.float32(self.wrong)).astype(np.float32)
                    rec.call("Tensor.mean", [Value(x), 0], Value(batch))
                    after = (mean + np.float32(self.rate) * (batch - mean)).astype(np.float32)
                    rec.call("Tensor.lerp_", [Value(mean), Value(batch), self.rate], Value(after))
                    rec.call("Torch.tanh", [Value(x, True)], Value(np.tanh(x), True))
                    y = np.tanh(x)
                else:
                    self._normalise(rec, x, mean, variance, y)
                    after = ((1 - self.rate) * mean + self.rate * x.mean(0)).astype(np.float32)
                    if self.training:
                        variance = ((1 - self.rate) * variance + self.rate * x.var(0)).astype(np.float32)
                mean = after if self.training else mean
                name = end(Value(y, True, self.dtype))
            if self.buffers:
                rec.data[name]["buffers"] = {
                    "running_mean": rec.leaf(Value(mean)), "running_var": rec.leaf(Value(variance))
                }  # fmt: skip
            rec.call("Functional.mse_loss", [Value(y, True, self.dtype)], Value(np.square(y).mean(), True))
            if (step + 1) % self.passes == 0:
                rec.write(folder / f"step{step // self.passes}" / "rank")
        return folder

    def _normalise(self, rec: Recording, x: Any, mean: Any, variance: Any, y: Any) -> None:
        averages = {"running_mean": Value(mean), "running_var": Value(variance)}
        rest = {"weight": None, "bias": None, "training": self.training, "momentum": self.rate, "eps": 1e-5}
        given, made = Value(x, True, self.dtype), Value(y, True, self.dtype)
        if self.keyword:
            rec.call(self.api, [given], made, keywords=averages | rest)
        elif self.api.startswith("Torch"):
            rec.call(self.api, [given, None, None, *averages.values(), *list(rest.values())[2:], True], made)
        else:
            rec.call(self.api, [given, *averages.values(), *rest.values()], made)


def compare(folder: Path, candidate: Norm, reference: Norm | None = None) -> Verdict:
    reference = Norm() if reference is None else reference
    return compare_runs(candidate.record(folder / "a"), reference.record(folder / "b"))


@pytest.mark.parametrize(
    "more", [{}, {"keyword": True}, {"api": "Torch.batch_norm"}, {"api": "Functional.instance_norm"}], ids=str
)
def test_another_momentum_is_no_harmless_difference(tmp_path: Path, more: dict[str, Any]) -> None:
    found = first(compare(tmp_path, Norm(rate=0.9, **more), Norm(**more)))
    assert (found.kind, found.step) == ("argument", 0)
    assert "running averages" in found.message


def test_nor_is_it_where_the_type_of_the_run_has_few_digits(tmp_path: Path) -> None:
    plan = Norm(dtype="bfloat16", steps=4)
    found = first(compare(tmp_path, replace(plan, rate=0.01), plan))
    assert (found.kind, found.step) == ("argument", 0)
    assert agrees(compare(tmp_path / "noisy", replace(plan, noise=2**-8), plan))


def test_nor_is_it_where_no_step_follows_that_shows_it(tmp_path: Path) -> None:
    assert first(compare(tmp_path, Norm(rate=0.9, steps=1), Norm(steps=1))).kind == "argument"


def test_a_later_pass_of_the_step_takes_what_an_earlier_one_wrote(tmp_path: Path) -> None:
    verdict = compare(tmp_path, Norm(rate=0.9, passes=2, steps=1), Norm(passes=2, steps=1))
    assert first(verdict).entry == "Functional.batch_norm.0.forward"
    assert {kind for kind, _ in told(verdict)} == {"argument"}


def test_in_evaluation_nothing_is_averaged(tmp_path: Path) -> None:
    first(compare(tmp_path, Norm(rate=0.9, training=False), Norm(training=False)), "harmless")


@pytest.mark.parametrize(
    "more", [{}, {"centre": 0.0}, {"buffers": True}, {"centre": 0.0, "buffers": True}, {"passes": 3}], ids=str
)
@pytest.mark.parametrize("change", [lambda x: x, lambda x: Norm(**{**vars(x), "steps": 8})], ids=["2 steps", "8 steps"])
def test_rounding_moves_averages(tmp_path: Path, more: dict[str, Any], change: Callable[[Norm], Norm]) -> None:
    assert agrees(compare(tmp_path, change(Norm(noise=2e-7, **more)), change(Norm(**more))))


def test_averages_of_another_checkpoint_are_told_as_such(tmp_path: Path) -> None:
    found = first(compare(tmp_path, Norm(begin=0.5)))
    assert (found.kind, found.where) == ("initial_weights", "norm.running_mean")
    assert mentions(found.message, "buffer-differs", when="before the first step")
    assert '"norm.running_mean"' in found.message


def test_a_buffer_that_was_recorded_tells_it_in_the_same_step(tmp_path: Path) -> None:
    verdict = compare(tmp_path, Norm(rate=0.9, buffers=True, steps=1), Norm(buffers=True, steps=1))
    assert first(verdict).kind == "argument"
    assert verdict.summary["largest_effect"] > 0.1


@pytest.mark.parametrize(
    ("plan", "kind"), [(Norm(rate=0.5, writes=True), "argument"), (Norm(wrong=1.1, writes=True), "computation")]
)
def test_an_average_that_is_written_in_place_counts(tmp_path: Path, plan: Norm, kind: str) -> None:
    verdict = compare(tmp_path, plan, Norm(writes=True))
    assert first(verdict).kind == kind, told(verdict)
    assert verdict.summary["largest_effect"] > 0.01


def test_rounding_in_such_an_average_does_not(tmp_path: Path) -> None:
    assert agrees(compare(tmp_path, Norm(noise=2e-7, writes=True, steps=5), Norm(writes=True, steps=5)))
