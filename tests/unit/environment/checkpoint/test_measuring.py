from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
import torch

from msprobe.environment.checkpoint.comparison import CheckpointRequest, compare_checkpoints
from msprobe.environment.checkpoint.measuring import ParameterMeasures, measure
from msprobe.environment.checkpoint.tensors import held
from msprobe.messages import said

_RANDOM = np.random.default_rng(0)


@pytest.fixture(autouse=True)
def _from_the_beginning() -> None:
    """Each test draws the same numbers, whichever ran before it."""
    _RANDOM.bit_generator.state = np.random.default_rng(100).bit_generator.state


MATRIX = _RANDOM.standard_normal((12, 8)).astype(np.float32)
SQUARE = _RANDOM.standard_normal((9, 9)).astype(np.float32)


def measured(first: np.ndarray, second: np.ndarray, name: str = "w") -> ParameterMeasures:
    return measure(name, held(first), held(second))


@pytest.mark.parametrize(
    ("first", "second", "kind"),
    [
        (MATRIX, MATRIX.copy(), "equal"),
        (MATRIX, MATRIX.T, "transposed"),
        (SQUARE, SQUARE.T.copy(), "transposed"),
        (MATRIX, MATRIX.reshape(4, 24), "reshaped"),
        (MATRIX, MATRIX[::-1], "permuted"),
        (MATRIX, MATRIX[:, _RANDOM.permutation(8)], "permuted"),
        (MATRIX, _RANDOM.permutation(MATRIX.reshape(-1)).reshape(12, 8), "permuted"),
        (MATRIX, MATRIX * np.float32(0.3), "scaled"),
        (MATRIX, -MATRIX, "scaled"),
        (MATRIX, MATRIX + np.float32(0.01), "changed"),
        (MATRIX, MATRIX[:5], "other shape"),
        (MATRIX, np.where(MATRIX > 1, np.nan, MATRIX), "not finite"),
        (MATRIX, np.where(MATRIX > 1, np.inf, MATRIX), "not finite"),
    ],
)
def test_the_kind_of_a_difference(first: np.ndarray, second: np.ndarray, kind: str) -> None:
    assert measured(first, second).kind == kind


def test_details_of_kinds() -> None:
    assert measured(MATRIX, MATRIX[::-1]).detail == said("rows-in-different-order", "")
    assert measured(MATRIX, MATRIX[:, ::-1]).detail == said("columns-in-different-order", "")
    assert measured(MATRIX, MATRIX * np.float32(0.3)).factor == pytest.approx(0.3)
    padded = measured(MATRIX, np.concatenate([MATRIX, np.zeros((4, 8), np.float32)]), "output_layer.weight")
    assert (padded.kind, padded.padded, padded.l2) == ("padded", (12, 16), 0.0)
    changed = measured(MATRIX, np.concatenate([MATRIX + 1, np.zeros((4, 8), np.float32)]), "output_layer.weight")
    assert (changed.kind, changed.padded) == ("changed", (12, 16))


def test_a_small_update_is_no_scaling() -> None:
    updated = MATRIX - np.float32(1e-3) * _RANDOM.standard_normal(MATRIX.shape).astype(np.float32)
    assert measured(MATRIX, updated).kind == "changed"


def test_numbers_are_those_of_their_definitions() -> None:
    other = _RANDOM.standard_normal((12, 8)).astype(np.float32)
    a, b = MATRIX.astype(np.float64).ravel(), other.astype(np.float64).ravel()
    found = measured(MATRIX, other)
    assert found.l2 == pytest.approx(np.linalg.norm(a - b), rel=1e-12)
    assert found.cosine == pytest.approx(a @ b / np.linalg.norm(a) / np.linalg.norm(b), rel=1e-12)
    assert found.relative == pytest.approx(np.linalg.norm(a - b) / np.linalg.norm(a), rel=1e-12)
    assert found.max_abs == pytest.approx(np.abs(a - b).max(), rel=1e-12)


def test_zeros_and_nans_as_8_1_1_says_them() -> None:
    zero, some = np.zeros(5, np.float32), np.ones(5, np.float32)
    assert measured(zero, some).cosine is None
    assert measured(zero, zero.copy()).cosine == 1.0
    broken = np.where(np.arange(5) == 2, np.nan, some).astype(np.float32)
    assert math.isnan(measured(some, broken).l2 or 0)
    same = measured(broken, broken.copy())
    assert same.kind == "equal"
    assert math.isnan(same.l2 or 0)


def test_the_imaginary_half_counts() -> None:
    first = np.ones(8, np.complex64)
    found = measured(first, first + np.complex64(1j) * np.arange(8, dtype=np.float32))
    assert found.kind == "changed"
    assert found.l2 == pytest.approx(math.sqrt(sum(n * n for n in range(8))))


def test_units_in_the_last_place() -> None:
    values = np.float32([1.0, -1.0, 1e-45, 100.0])
    other = np.nextafter(values, np.float32(1000))
    assert measured(values, other).ulp_max == 1
    assert measured(np.float32([1e-45, 1, 2, 3]), np.float32([-1e-45, 1, 2, 3])).ulp_max == 2


def test_rounding_to_a_narrower_type_is_harmless(tmp_path: Path) -> None:
    model = {"w": torch.randn(64, 8), "b": torch.randn(8) * 1e-6}
    torch.save(model, tmp_path / "a.pt")
    torch.save({name: one.bfloat16() for name, one in model.items()}, tmp_path / "b.pt")
    found = compare_checkpoints(CheckpointRequest(str(tmp_path / "a.pt"), str(tmp_path / "b.pt")))
    assert found.counts == {"rounded": 2}
    assert not found.differs
    assert all(row.cosine is not None and row.cosine > 0.99999 for row in found.rows)
    torch.save({name: (one * 1.02).bfloat16() for name, one in model.items()}, tmp_path / "c.pt")
    assert compare_checkpoints(CheckpointRequest(str(tmp_path / "a.pt"), str(tmp_path / "c.pt"))).differs


def test_what_was_not_updated_is_stale(tmp_path: Path) -> None:
    model = {str(at): torch.randn(6) for at in range(5)}
    later = {name: one + 0.1 for name, one in model.items()} | {"3": model["3"]}
    torch.save({"model": model, "iteration": 10}, tmp_path / "a.pt")
    torch.save({"model": later, "iteration": 20}, tmp_path / "b.pt")
    found = compare_checkpoints(CheckpointRequest(str(tmp_path / "a.pt"), str(tmp_path / "b.pt")))
    assert [(row.name, row.detail) for row in found.of("stale")] == [
        ("3", said("not-updated-between", said("iterations-from-to", 10, 20)))
    ]
    # The same iteration of two trainings, and one of them has a weight of an earlier one.
    torch.save({"model": later | {"1": model["1"]}, "iteration": 20}, tmp_path / "c.pt")
    earlier = CheckpointRequest(str(tmp_path / "b.pt"), str(tmp_path / "c.pt"), earlier=str(tmp_path / "a.pt"))
    assert [row.name for row in compare_checkpoints(earlier).of("stale")] == ["1"]


def test_what_matters_first_comes_first(tmp_path: Path) -> None:
    model = {name: torch.randn(6, 4) for name in "abcdef"}
    other = dict(model)
    other["b"] = model["b"] + 0.001 * torch.randn(6, 4)
    other["c"] = model["c"] + torch.randn(6, 4)
    other["d"] = model["d"].flip(0)
    del other["e"]
    other["new"] = torch.ones(2)
    torch.save(model, tmp_path / "a.pt")
    torch.save(other, tmp_path / "b.pt")
    found = compare_checkpoints(CheckpointRequest(str(tmp_path / "a.pt"), str(tmp_path / "b.pt")))
    kinds = [(row.kind, row.name) for row in found.rows]
    assert kinds[:5] == [("missing", "e"), ("extra", "new"), ("permuted", "d"), ("changed", "c"), ("changed", "b")]
    assert kinds[5:] == [("equal", "a"), ("equal", "f")]


def test_heads_and_parts_of_attention_in_another_order_are_reported_with_their_size(tmp_path: Path) -> None:
    torch.manual_seed(0)
    first = {"q_proj.weight": torch.randn(32, 16), "o_proj.weight": torch.randn(16, 32), "q_proj.bias": torch.randn(32)}
    first["qkv.weight"] = torch.randn(48, 16)
    heads = [2, 0, 3, 1]
    second = {
        "q_proj.weight": first["q_proj.weight"].reshape(4, 8, 16)[heads].reshape(32, 16),
        "o_proj.weight": first["o_proj.weight"].reshape(16, 4, 8)[:, heads].reshape(16, 32),
        "q_proj.bias": first["q_proj.bias"].reshape(4, 8)[heads].reshape(32),
        # One head behind the other, or all q, all k, all v.
        "qkv.weight": first["qkv.weight"].reshape(4, 3, 4, 16).transpose(0, 1).reshape(48, 16),
    }
    torch.save(first, tmp_path / "a.pt")
    torch.save(second, tmp_path / "b.pt")
    rows = {
        row.name: row
        for row in compare_checkpoints(CheckpointRequest(str(tmp_path / "a.pt"), str(tmp_path / "b.pt"))).rows
    }
    assert {row.kind for row in rows.values()} == {"permuted"}
    orders = ("rows", "in-blocks-as-heads", 8), ("columns", "in-blocks-as-heads", 8), ("elements", "in-blocks", 8)
    for name, (what, blocks, size) in zip(first, (*orders, ("rows", "in-blocks-as-heads", 4)), strict=True):
        assert rows[name].detail == said(f"{what}-in-different-order", said(blocks, size)), name


def test_layers_that_were_exchanged_are_named(tmp_path: Path) -> None:
    torch.manual_seed(0)
    first = {f"layers.{at}.weight": torch.randn(8, 8) for at in range(3)}
    second = {**first, "layers.1.weight": first["layers.2.weight"], "layers.2.weight": torch.zeros(8, 8)}
    torch.save(first, tmp_path / "a.pt")
    torch.save({name: one.clone() for name, one in second.items()}, tmp_path / "b.pt")
    rows = {
        row.name: row
        for row in compare_checkpoints(CheckpointRequest(str(tmp_path / "a.pt"), str(tmp_path / "b.pt"))).rows
    }
    assert rows["layers.1.weight"].detail == said("second-has-value-of", "layers.2.weight")
    assert rows["layers.2.weight"].detail == said("second-all-zeros")


def test_half_of_a_vocabulary_is_no_padding() -> None:
    name = "embedding.word_embeddings.weight"
    assert measured(MATRIX, MATRIX[:10], name).kind == "padded"
    assert measured(MATRIX, MATRIX[:6], name).kind == "other shape"
