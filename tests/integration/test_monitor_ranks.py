"""The monitor in two real ranks: what each writes, against gradients computed on one device; nothing changes.

That the training is the same to the last bit is asserted in the ranks (``monitor_ranks.py``).
"""

from __future__ import annotations

import csv
import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from monitor_ranks import SCENARIOS, WORLD_SIZE, launch

from msprobe.monitor.alerts.reading import read_all_alerts

pytest.importorskip("torch")

PARAMETERS = ["fc1.weight", "fc1.bias", "fc2.weight", "fc2.bias"]
WHOLE = ["ddp", "ddp_global", "fsdp1_global", "fsdp2_global", "tensor_parallel_global"]


@pytest.fixture(scope="module")
def ended(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder with what all scenarios have written."""
    folder = tmp_path_factory.mktemp("ranks")
    launch(folder, list(SCENARIOS))
    return folder


class Rank:
    """What one rank was told of and has written."""

    def __init__(self, ended: Path, scenario: str, rank: int) -> None:
        self.told: list[dict[str, dict[str, Any]]] = json.loads((ended / scenario / f"told.{rank}.json").read_text())
        folders = list((ended / scenario / "out").glob(f"*-rank{rank}-*"))
        assert len(folders) == 1, "each rank has a folder of its own"
        self.folder = folders[0]

    def rows(self, quantity: str, step: int) -> dict[str, dict[str, str]]:
        """The rows of a step by the model's own name of the parameter."""
        path = self.folder / f"{quantity}_{step}-{step}.csv"
        if not path.exists():
            return {}
        with path.open(newline="") as file:
            rows = list(csv.DictReader(file))
        found = {plain(row["name"]): row for row in rows}
        assert len(found) == len(rows)
        return found

    def values(self, kind: str, step: int, name: str) -> np.ndarray[Any, Any]:
        """What a model on one device has."""
        return np.array(self.told[step][kind][name], dtype=np.float64)


def plain(name: str) -> str:
    return name.replace("_fsdp_wrapped_module.", "").removeprefix("module.")


def ranks(ended: Path, scenario: str) -> list[Rank]:
    return [Rank(ended, scenario, rank) for rank in range(WORLD_SIZE)]


def assert_is(row: dict[str, str], values: np.ndarray[Any, Any]) -> None:
    wanted = {
        "min": values.min(),
        "max": values.max(),
        "mean": values.mean(),
        "norm": math.sqrt((values * values).sum()),
        "nans": 0,
    }
    for op, number in wanted.items():
        assert float(row[op]) == pytest.approx(number, rel=2e-4, abs=1e-6), (row["name"], op)
    assert row["shape"] == str(list(values.shape))


@pytest.mark.parametrize("scenario", ["ddp", "ddp_global", "fsdp1", "fsdp1_global", "fsdp2", "fsdp2_global"])
def test_unreduced_gradients_are_the_ranks_own(ended: Path, scenario: str) -> None:
    for rank in ranks(ended, scenario):
        for step in (0, 1):
            rows = rank.rows("grad_unreduced", step)
            assert sorted(rows) == sorted(PARAMETERS)
            for name, row in rows.items():
                assert_is(row, rank.values("local", step, name))


@pytest.mark.parametrize("scenario", WHOLE)
def test_reduced_gradients_are_whole_and_the_mean(ended: Path, scenario: str) -> None:
    for rank in ranks(ended, scenario):
        for step in (0, 1):
            rows = rank.rows("grad_reduced", step)
            assert list(rows) == PARAMETERS
            for name, row in rows.items():
                assert_is(row, rank.values("mean", step, name))


@pytest.mark.parametrize("scenario", WHOLE)
def test_weights_are_whole(ended: Path, scenario: str) -> None:
    for rank in ranks(ended, scenario):
        for quantity, kind in (("param_origin", "before"), ("param_updated", "after")):
            rows = rank.rows(quantity, 0)
            assert list(rows) == PARAMETERS
            for name, row in rows.items():
                assert_is(row, rank.values(kind, 0, name))


@pytest.mark.parametrize("scenario", WHOLE)
def test_moments_are_whole(ended: Path, scenario: str) -> None:
    for rank in ranks(ended, scenario):
        first, second = rank.rows("exp_avg", 1), rank.rows("exp_avg_sq", 1)
        assert list(first) == list(second) == PARAMETERS
        for name in PARAMETERS:
            assert_is(first[name], 0.1 * rank.values("mean", 0, name))
            assert_is(second[name], 0.001 * rank.values("mean", 0, name) ** 2)


@pytest.mark.parametrize("scenario", ["fsdp1", "fsdp2", "tensor_parallel"])
@pytest.mark.parametrize("quantity", ["grad_reduced", "param_origin", "param_updated", "exp_avg", "exp_avg_sq"])
def test_pieces_of_all_ranks_make_the_whole(ended: Path, scenario: str, quantity: str) -> None:
    """Scope local: of each parameter what this rank has, with its shape; nothing of what it has nothing of."""
    both = [rank.rows(quantity, 1) for rank in ranks(ended, scenario)]
    whole = next(rank.rows(quantity, 1) for rank in ranks(ended, f"{scenario}_global"))
    assert set(both[0]) | set(both[1]) == set(PARAMETERS)
    for name in PARAMETERS:
        found = [rows[name] for rows in both if name in rows]
        if scenario == "tensor_parallel" and name == "fc2.bias":
            assert [row["norm"] for row in found] == [whole[name]["norm"]] * 2  # replicated
            continue
        squares = sum(float(row["norm"]) ** 2 for row in found)
        assert math.sqrt(squares) == pytest.approx(float(whole[name]["norm"]), rel=1e-6)
        assert min(float(row["min"]) for row in found) == float(whole[name]["min"])
        assert max(float(row["max"]) for row in found) == float(whole[name]["max"])
        sizes = [math.prod(json.loads(row["shape"])) for row in found]
        assert sum(sizes) == math.prod(json.loads(whole[name]["shape"]))


def test_ranks_of_ddp_have_the_same_reduced_gradients_and_others_unreduced(ended: Path) -> None:
    first, second = ranks(ended, "ddp")
    for step in (0, 1):
        assert first.rows("grad_reduced", step) == second.rows("grad_reduced", step)
        for name, row in first.rows("grad_unreduced", step).items():
            assert row["norm"] != second.rows("grad_unreduced", step)[name]["norm"]
    with (first.folder / "grad_reduced_0-0.csv").open(newline="") as file:
        assert [row["name"] for row in csv.DictReader(file)] == [f"module.{name}" for name in PARAMETERS]


@pytest.mark.parametrize("scenario", ["ddp_accumulating", "fsdp2_accumulating"])
def test_accumulated_gradients(ended: Path, scenario: str) -> None:
    for rank in ranks(ended, scenario):
        with (rank.folder / "actv_0-0.csv").open(newline="") as file:
            inputs = [row["micro_step"] for row in csv.DictReader(file) if row["name"].endswith("fc1.input")]
        assert inputs == [str(at) for at in range(3 if scenario.startswith("ddp") else 2)]
        reduced = rank.rows("grad_reduced", 0)
        for name in PARAMETERS:
            assert_is(reduced[name], rank.values("mean", 0, name))
        if scenario == "ddp_accumulating":
            for name, row in rank.rows("grad_unreduced", 0).items():
                assert_is(row, rank.values("local", 0, name))


@pytest.mark.parametrize("scenario", ["fsdp1_flat", "fsdp1_flat_global"])
def test_flat_parameters_are_measured_as_they_are(ended: Path, scenario: str) -> None:
    first, second = ranks(ended, scenario)
    for rank in (first, second):
        local = [rank.values("local", 0, name).ravel() for name in ("fc2.weight", "fc2.bias")]
        assert_is(rank.rows("grad_unreduced", 0)["_flat_param"], np.concatenate(local))
    mean = np.concatenate([first.values("mean", 0, name).ravel() for name in ("fc2.weight", "fc2.bias")])
    rows = [rank.rows("grad_reduced", 0)["_flat_param"] for rank in (first, second)]
    if scenario.endswith("global"):
        for row in rows:
            assert_is(row, mean)
    else:
        assert_is(rows[0], mean[:9])
        assert_is(rows[1], mean[9:])


def test_collectives_of_ddp_and_of_the_program(ended: Path) -> None:
    for rank in ranks(ended, "collectives"):
        with (rank.folder / "other_0-0.csv").open(newline="") as file:
            rows = {row["name"]: row for row in csv.DictReader(file)}
        number = int(rank.folder.name.split("-rank")[1][0])
        assert float(rows["all_reduce.pre_0"]["max"]) == number + 1
        assert float(rows["all_reduce.post_0"]["max"]) == 3
        assert float(rows["all_reduce.post_0"]["norm"]) == pytest.approx(math.sqrt(2 * 2 * 9))
        assert {row["vpp_stage"] for row in rows.values()} == {"0"}
        assert {row["step"] for row in rows.values()} == {"0"}


def test_only_the_ranks_that_are_asked_for(ended: Path) -> None:
    folders = list((ended / "one_rank" / "out").glob("*-rank*"))
    assert len(folders) == 1
    assert "-rank1-" in folders[0].name


def test_groups_say_who_writes(ended: Path) -> None:
    """Of ranks with the same weights the first writes reduced gradients."""
    first, second = ranks(ended, "data_group")
    assert list(first.rows("grad_reduced", 0)) == PARAMETERS
    assert second.rows("grad_reduced", 0) == {}
    assert list(second.rows("grad_unreduced", 0)) == PARAMETERS[::-1]


def test_a_rank_that_appends_goes_on_in_its_own_folder(ended: Path) -> None:
    for rank in ranks(ended, "appending"):
        assert rank.rows("grad_reduced", 0)
        assert rank.rows("grad_reduced", 3)


@pytest.mark.parametrize("scenario", ["alert_ddp", "alert_fsdp2"])
def test_each_rank_has_the_steps_of_its_own_alerts_recorded(ended: Path, scenario: str) -> None:
    out = ended / scenario / "out"
    found = {
        rank: sorted(int(one.parent.parent.name[4:]) for one in out.glob(f"*-rank{rank}-*/behind_alert/*/*/dump.json"))
        for rank in range(WORLD_SIZE)
    }
    assert found == {0: [6, 7], 1: [3, 4]}
    raised = {(one["rank"], one["step"]) for one in read_all_alerts(out).records.values()}
    assert {(1, 3), (0, 6), (1, 6)} <= raised
    for one in out.glob("*/behind_alert/*/*/dump.json"):
        records = json.loads(one.read_text())["data"]
        assert any(name.startswith("Module.") and ".backward." in name for name in records)
        assert any(name.startswith("Optimizer.") for name in records)
