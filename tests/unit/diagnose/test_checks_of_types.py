"""The check of types among the layers of a stack, on records written by hand."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from support.checked import call, found, module, one, plain, some, write

HALF = {"dtype": "torch.bfloat16"}


def stack(
    path: Path, types: list[tuple[str, str]], api: str = "Torch.rms_norm", before: dict[str, Any] | None = None
) -> None:
    """Layers whose norm gets and gives elements of these types; ``before``: calls outside of the layers."""
    data: dict[str, Any] = dict(before or {})
    parents: dict[str, Any] = dict.fromkeys(data)
    for number, (given, gives) in enumerate(types):
        name, above = f"{api}.{number}.forward", f"Module.blocks.{number}.norm.Norm.forward.0"
        x, y = some(number, 2, 4, dtype=f"torch.{given}"), some(90 + number, 2, 4, dtype=f"torch.{gives}")
        data[name], data[above] = call([x, [plain(4)]], y), module([x], y)
        parents[name], parents[above] = above, None
    write(path, data, parents=parents)


def same(kind: str) -> tuple[str, str]:
    return kind, kind


SINGLE, LOW = same("float32"), same("bfloat16")


@pytest.mark.parametrize("maker", ["Functional.linear", "Torch.gru", None])
def test_the_first_layer_gives_the_type_of_what_a_projection_gave_it(tmp_path: Path, maker: str | None) -> None:
    before = {} if maker is None else {f"{maker}.0.forward": call([some(40, 2, 4)], some(0, 2, 4, **HALF))}
    stack(tmp_path, [LOW, SINGLE, SINGLE, SINGLE], before=before)
    assert found(tmp_path, "dtypes") == []


@pytest.mark.parametrize("reshaped", [False, True])
def test_a_layer_for_which_its_input_was_cast(tmp_path: Path, reshaped: bool) -> None:
    cast = some(50, 4, 2, **HALF) if reshaped else some(1, 2, 4, **HALF)
    before = {"Tensor.bfloat16.0.forward": call([some(40, 2, 4)], cast)}
    if reshaped:
        before["Tensor.reshape.0.forward"] = call([cast], some(1, 2, 4, **HALF))
    stack(tmp_path, [SINGLE, LOW, SINGLE, SINGLE], before=before)
    assert one(tmp_path, "dtypes").entry == "Torch.rms_norm.1.forward"


def test_a_cast_that_changes_no_type_explains_nothing_and_accuses_nobody(tmp_path: Path) -> None:
    before = {
        "Functional.linear.0.forward": call([some(40, 2, 4)], some(41, 2, 4, **HALF)),
        "Tensor.to.0.forward": call([some(41, 2, 4, **HALF)], some(0, 2, 4, **HALF)),
    }
    stack(tmp_path, [LOW, SINGLE, SINGLE], before=before)
    assert found(tmp_path, "dtypes") == []


def test_a_layer_that_does_not_cast_what_the_others_cast(tmp_path: Path) -> None:
    before = {
        f"Tensor.float.{n}.forward": call([some(40 + n, 2, 4, **HALF)], some(n, 2, 4, dtype="torch.float32"))
        for n in (0, 2, 3)
    }
    stack(tmp_path, [SINGLE, LOW, SINGLE, SINGLE], before=before)
    assert one(tmp_path, "dtypes").entry == "Torch.rms_norm.1.forward"


def test_a_layer_that_lowers_what_the_others_leave(tmp_path: Path) -> None:
    stack(tmp_path, [SINGLE, ("float32", "bfloat16"), SINGLE, SINGLE])
    assert one(tmp_path, "dtypes").entry == "Torch.rms_norm.1.forward"


def test_a_layer_that_leaves_low_what_another_raises(tmp_path: Path) -> None:
    stack(tmp_path, [LOW, ("bfloat16", "float32"), SINGLE, SINGLE])
    assert one(tmp_path, "dtypes").entry == "Torch.rms_norm.0.forward"


def test_a_product_that_autocast_left_out(tmp_path: Path) -> None:
    low = ("float32", "bfloat16")
    stack(tmp_path, [low, SINGLE, low, low], api="Functional.linear")
    assert one(tmp_path, "dtypes").entry == "Functional.linear.1.forward"


def test_a_norm_that_autocast_leaves_in_the_single_precision_it_gets(tmp_path: Path) -> None:
    stack(tmp_path, [SINGLE, LOW, LOW])
    assert found(tmp_path, "dtypes") == []
