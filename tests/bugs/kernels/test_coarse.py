"""Level L0 of the bench, on the smallest of its networks."""

from __future__ import annotations

from pathlib import Path

import pytest

from .coarse import Coarse, coarse_pairs
from .recordings import faulty_pairs, healthy_pairs


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Recordings of this module, each made once."""
    return tmp_path_factory.mktemp("kernels")


@pytest.mark.parametrize("precision", ["bfloat16", "autocast"])
def test_modules_of_healthy_devices_are_not_called_different(precision: str, cache: Path) -> None:
    answers = {pair.id: Coarse()(pair) for pair in healthy_pairs("images", precision, cache)}
    assert not [name for name, answer in answers.items() if answer.diverged]


@pytest.mark.parametrize(
    "fault",
    ["images-native_batch_norm-last-rows-10", "images-mm-last-rows-2", "images-addmm-scale-0.02"],
)
def test_the_module_of_a_wrong_kernel_is_named_first(fault: str, cache: Path) -> None:
    (pair,) = coarse_pairs(faulty_pairs("images", "bfloat16", cache, [fault]), cache)
    answer = Coarse()(pair)
    assert pair.truth is not None
    assert answer.diverged
    assert pair.truth.accepts(answer.first)
