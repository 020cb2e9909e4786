"""A few cells of the grid, among them what was called different once."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import pytest

from .training import Cell, compare_with_device


class Once(NamedTuple):
    cell: Cell
    precision: str
    level: str
    variant: str


ONCE = [
    Once(Cell("rms_by_hand", "size", "adamw", "last"), "float32", "L0", "halves"),
    Once(Cell("squeeze", "cross_entropy", "adamw", "norm behind"), "float32", "L0", "halves"),
    Once(Cell("neighbours", "mean_square"), "float32", "mix", "tiles"),
    Once(Cell("layer_norm", "contrast_of_classes", "sgd", "last"), "float32", "mix", "fast"),
    Once(Cell("attention", "kernels_apart", "sgd", "last"), "float32", "mix", "fast"),
    Once(Cell("gated", "cross_entropy", "adafactor"), "float32", "mix", "splits"),
    Once(Cell("conv_transposed", "cross_entropy", "adamw", "norm behind"), "bfloat16", "mix", "fast"),
    Once(Cell("residual", "cross_entropy", "nesterov", "small loss"), "float16", "mix", "cores"),
]


@pytest.mark.parametrize("once", ONCE, ids=lambda once: "-".join((*once.cell, *once[1:])))
def test_a_healthy_training_is_not_called_different(tmp_path: Path, once: Once) -> None:
    verdict = compare_with_device(tmp_path, *once)
    assert verdict.status == "agree", verdict.findings
