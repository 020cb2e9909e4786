"""What computes the same and is written otherwise is never called diverged; bugs beside it are."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from rewritings.table import TABLE, apart, judged

from msprobe.pytorch import PrecisionDebugger

#: So many units of the largest weight may both ways be apart after the last step, without the debugger.
_UNITS = 32.0
_TYPES = (torch.float32, torch.bfloat16)
#: Each rewriting in one of the types; in the other one where there is time.
_EVERY = [(name, _TYPES[number % 2]) for number, name in enumerate(TABLE)]
#: Of the blocks of public models, which have one way through lockstep, a few, and one that transposes a weight.
_BLOCKS = [one for one in _EVERY if getattr(TABLE[one[0]].part, "__module__", "") == "rewritings.blocks"]
_USUAL = [one for one in _EVERY if one not in _BLOCKS or one in _BLOCKS[::4] or one[0] == "LowRank"]
_FURTHER = [(name, _TYPES[(number + 1) % 2]) for number, name in enumerate(TABLE)]
_FURTHER += [one for one in _EVERY if one not in _USUAL]
#: Bugs of the sorts that a rewriting could hide, and what one of the findings is about.
_BUGS = {
    ("BatchNorm", "decay"): "Tensor.add_",
    ("BatchNormLerped", "decay"): "Tensor.lerp_",
    ("LayerNorm", "eps"): "Tensor.mean",
    ("Lstm", "gates"): "Tensor.__getitem__",
    ("LstmCells", "kept"): "part.lstm.weight_ih_l0",
    ("AttentionOfExpCast", "scale"): "Tensor.__mul__",
    ("loss_chunked", "mean"): "Functional.cross_entropy",
    ("loss_ignoring", "count"): "Functional.cross_entropy",
    ("clipped_each", "one"): "norm.weight",
    ("averaged", "decay"): "Tensor.lerp_",
    ("own_adamw", "moment"): "Optimizer.OwnAdamW",
    ("written_sgd", "momentum"): "Tensor.__add__",
    ("written_sgd", "rounded"): "Tensor.mul_.0",
    ("scaled", "one"): "Tensor.__mul__",
    ("with_scaler", "twice"): "Tensor.mul_",
    ("divided_behind", "count"): "Tensor.__truediv__",
    ("of_tokens", "count"): "Tensor.__truediv__",
}


#: What is not even said to be written otherwise: calls that only make a start are no finding by themselves.
_AGREE = ("Lstm", "LstmCells", "Gru", "BatchNorm", "GroupNorm", "Unfolded", "clipped_each", "AttentionOfExpCast")


@pytest.fixture(autouse=True)
def _no_debugger_is_left() -> Any:
    yield
    PrecisionDebugger.reset()


def assert_not_diverged(verdict: Any) -> None:
    counting = [(one.kind, one.where) for one in verdict.findings if not one.harmless]
    assert verdict.status in ("agree", "harmless"), counting
    assert not counting
    assert verdict.exit_code == 0


def assert_as_expected(name: str, verdict: Any) -> None:
    assert_not_diverged(verdict)
    if name in _AGREE:
        assert verdict.status == "agree", [(one.kind, one.where) for one in verdict.findings]


@pytest.mark.parametrize(("name", "dtype"), _USUAL)
def test_what_is_written_otherwise_is_not_called_diverged(name: str, dtype: torch.dtype, tmp_path: Path) -> None:
    assert_as_expected(name, judged(name, dtype, tmp_path))


@pytest.mark.slow
@pytest.mark.parametrize(("name", "dtype"), _FURTHER)
def test_nor_is_it_in_the_other_type(name: str, dtype: torch.dtype, tmp_path: Path) -> None:
    assert_as_expected(name, judged(name, dtype, tmp_path))


@pytest.mark.slow
@pytest.mark.parametrize("name", TABLE)
def test_both_ways_compute_the_same(name: str) -> None:
    assert apart(name, torch.float64) <= _UNITS * torch.finfo(torch.float32).eps
    assert all(apart(name, torch.float64, bug) > 1e-4 for bug in TABLE[name].bugs if bug != "decay")


@pytest.mark.parametrize("name", ["Unfolded", "LayerNorm", "Lstm", "clipped", "scaled"])
def test_nor_is_it_where_no_module_says_where_it_ends(name: str, tmp_path: Path) -> None:
    assert_not_diverged(judged(name, torch.float32, tmp_path, level="L1"))


@pytest.mark.parametrize(("name", "bug"), _BUGS)
def test_a_bug_beside_it_is_named(name: str, bug: str, tmp_path: Path) -> None:
    verdict = judged(name, torch.float32, tmp_path, bug)

    assert verdict.status == "diverged"
    about = [f"{one.where} {one.entry}" for one in verdict.findings if not one.harmless]
    assert any(_BUGS[name, bug] in one for one in about), about


@pytest.mark.slow
@pytest.mark.parametrize(("name", "bug"), [(name, bug) for name, one in TABLE.items() for bug in one.bugs])
def test_every_bug_beside_a_rewriting_is_found(name: str, bug: str, tmp_path: Path) -> None:
    verdict = judged(name, torch.float32, tmp_path, bug)

    assert verdict.status == "diverged"
    assert any(not one.harmless for one in verdict.findings)
