from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from unit.diagnose.comparing import agrees, compare, first
from unit.diagnose.training import Plan, train

from msprobe.diagnose.differences.value_digests import add_digests
from msprobe.diagnose.steps.timeline import Timeline
from msprobe.store.reader import open_dump

FULL: dict[str, Any] = {"values": True, "digests": False}


def timeline(folder: Path, **plan: Any) -> Timeline:
    return Timeline(open_dump(train(folder, Plan(**plan))).part())


def weight_of(found: Timeline) -> dict[str, Any]:
    return dict(found.by_name["Functional.linear.0.forward"].inputs())["input.1"]


@pytest.mark.parametrize("level", ["mix", "L0", "L1"])
def test_a_transposed_weight_keeps_its_statistics_and_is_named(tmp_path: Path, level: str) -> None:
    planted = Plan(weights={"blocks.1.fc.weight": np.transpose}, level=level, **FULL)
    found = first(compare(tmp_path, planted, Plan(level=level, **FULL)))
    assert (found.kind, found.where) == ("initial_weights", "blocks.1.fc.weight")
    assert "transposed" in found.message


@pytest.mark.parametrize("level", ["mix", "L1"])
def test_a_batch_in_another_order_is_named(tmp_path: Path, level: str) -> None:
    found = first(compare(tmp_path, Plan(data=np.flip, level=level, **FULL), Plan(level=level, **FULL)))
    assert found.kind == "data"


def test_the_same_values_agree(tmp_path: Path) -> None:
    assert agrees(compare(tmp_path, Plan(**FULL), Plan(**FULL)))


def test_both_zeros_are_one_number(tmp_path: Path) -> None:
    def zeros(sign: float) -> Plan:
        return Plan(weights={"head.bias": lambda bias: np.full_like(bias, sign * 0.0)}, **FULL)

    assert agrees(compare(tmp_path, zeros(-1.0), zeros(1.0)))


def test_digests_are_added_where_both_recorded_whole_tensors(tmp_path: Path) -> None:
    one, same, statistics = (
        timeline(tmp_path / "one", **FULL),
        timeline(tmp_path / "same", **FULL),
        timeline(tmp_path / "statistics", digests=False),
    )
    add_digests(one, statistics)
    assert "digest" not in weight_of(one)
    add_digests(one, same)
    assert weight_of(one)["digest"] == weight_of(same)["digest"]
    assert "digest" not in weight_of(statistics)


@pytest.mark.parametrize("harm", ["missing", "part", "damaged"])
def test_a_file_that_does_not_hold_the_whole_tensor_gives_none(tmp_path: Path, harm: str) -> None:
    found = timeline(tmp_path / "one", **FULL)
    file = found.part.tensor_path(weight_of(found)["data_name"])
    if harm == "missing":
        file.unlink()
    elif harm == "part":
        np.save(file, np.zeros(3, np.float32))
    else:
        file.write_bytes(b"no array")
    add_digests(found)
    assert "digest" not in weight_of(found)
    assert "digest" in dict(found.by_name["Functional.linear.1.forward"].inputs())["input.1"]


def test_without_modules_the_optimizer_names_a_weight(tmp_path: Path) -> None:
    """At L1 nothing but the step of the optimizer knows what a weight is called."""
    planted = Plan(weights={"blocks.1.fc.weight": lambda weight: weight / 2}, level="L1", digests=False)
    found = first(compare(tmp_path, planted, Plan(level="L1", digests=False)))
    assert (found.kind, found.where) == ("initial_weights", "blocks.1.fc.weight")
