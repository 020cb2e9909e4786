"""``TrainerMonitorV2`` of 26.2.0 on trainings of PyTorch."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import pytest
import torch
from support.coded_texts import mentions, raising
from unit.monitor.torch.monitored import PARAMETERS, ModelM

from msprobe.core.monitor_v2.trainer import TrainerMonitorV2
from msprobe.errors import InvalidInputError

ALL = {name: {"enabled": True} for name in ("module", "weight_grad", "optimizer", "param")}


def train(folder: Path, steps: int = 3, accumulated: int = 1, watched: bool = True, **fields: Any) -> Any:
    path = folder / "config.json"
    config = {"framework": "torch", "output_dir": str(folder / "not" / "there"), "monitors": ALL, **fields}
    path.write_text(json.dumps(config))
    torch.manual_seed(0)
    model = ModelM(0.5)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    torch.optim.lr_scheduler.StepLR(optimizer, 1)
    monitor = TrainerMonitorV2(str(path))
    if watched:
        monitor.start(model=model, optimizer=optimizer, grad_acc_steps=accumulated)
    for _ in range(steps):
        for _ in range(accumulated):
            (model(torch.randn(3, 4)).square().mean() / accumulated).backward()
        optimizer.step()
        if watched:
            monitor.step()
        optimizer.zero_grad()
    monitor.stop()
    return [parameter.detach().clone() for parameter in model.parameters()]


def rows(folder: Path, name: str, rank: int = 0) -> list[dict[str, str]]:
    with open(folder / "not" / "there" / f"rank_{rank}" / name, newline="") as file:
        return list(csv.DictReader(file))


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in (folder / "not").rglob("*.csv"))


def test_files_columns_and_names_are_those_of_26_2(tmp_path: Path) -> None:
    train(tmp_path, accumulated=2, step_count_per_record=2)
    spans = ("0-1", "2-3")
    assert names(tmp_path) == [f"{one}_step{span}.csv" for one in sorted(ALL) for span in spans]
    text = (tmp_path / "not" / "there" / "rank_0" / "module_step0-1.csv").read_bytes()
    assert text.startswith(b"vpp_stage,step,module_name,scope,micro_step,min,max,mean,norm,nans\r\n")
    assert text.count(b"\n") == text.count(b"\r\n")
    passes = rows(tmp_path, "module_step0-1.csv")
    assert {row["vpp_stage"] for row in passes} == {"0"}
    assert {row["micro_step"] for row in passes} == {"0", "1"}
    forward = {row["module_name"] for row in passes if row["scope"] == "forward"}
    assert {"fc1.input.0", "fc1.output.0", "drop.input.0", "fc2.output.0"} <= forward
    backward = {row["module_name"] for row in passes if row["scope"] == "backward"}
    assert {"fc2.grad_input.0", "fc2.grad_output.0", "fc1.grad_output.0"} <= backward


def test_gradients_before_and_after_reduction_weights_and_moments_are_written(tmp_path: Path) -> None:
    train(tmp_path)
    gradients = rows(tmp_path, "weight_grad_step0-0.csv")
    by_scope = {
        scope: {row["module_name"]: row["norm"] for row in gradients if row["scope"] == scope}
        for scope in ("unreduced", "reduced")
    }
    assert sorted(by_scope["reduced"]) == sorted(PARAMETERS)
    assert by_scope["unreduced"] == by_scope["reduced"]
    updated = [row["norm"] for row in rows(tmp_path, "param_step0-0.csv") if row["scope"] == "param_updated"]
    assert updated == [row["norm"] for row in rows(tmp_path, "param_step1-1.csv") if row["scope"] == "param_origin"]
    moments = rows(tmp_path, "optimizer_step1-1.csv")
    assert {(row["module_name"], row["scope"]) for row in moments} == {
        (f"{name}.{moment}", moment) for name in PARAMETERS for moment in ("exp_avg", "exp_avg_sq")
    }


def test_numbers_have_all_their_digits(tmp_path: Path) -> None:
    train(tmp_path, steps=1, monitors={"param": {"enabled": True, "ops": ["norm"]}})
    torch.manual_seed(0)
    expected = float(ModelM(0.5).fc1.weight.detach().double().norm())
    row = rows(tmp_path, "param_step0-0.csv")[0]
    assert list(row) == ["vpp_stage", "step", "module_name", "scope", "norm"]
    assert float(row["norm"]) == pytest.approx(expected, rel=1e-12)


def test_targets_choose_modules_only(tmp_path: Path) -> None:
    monitors = {"module": {"enabled": True, "targets": ["fc"]}, "weight_grad": {"enabled": True, "ops": ["norm"]}}
    train(tmp_path, steps=1, monitors=monitors)
    modules = {row["module_name"].split(".")[0] for row in rows(tmp_path, "module_step0-0.csv")}
    assert modules == {"fc1", "fc2"}
    assert len(rows(tmp_path, "weight_grad_step0-0.csv")) == 2 * len(PARAMETERS)


def test_steps_are_those_of_the_optimizer_from_start_to_stop(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    train(tmp_path, steps=9, start_step=1, stop_step=7, step_interval=2, step_count_per_record=3)
    assert names(tmp_path)[-2:] == ["weight_grad_step1-3.csv", "weight_grad_step4-6.csv"]
    steps = {row["step"] for span in ("1-3", "4-6") for row in rows(tmp_path, f"param_step{span}.csv")}
    assert steps == {"1", "3", "5"}
    told = capfd.readouterr()
    assert (told.out + told.err).count("step() is skipped") <= 1


def test_the_training_is_the_same_to_the_last_bit(tmp_path: Path) -> None:
    for plain, watched in zip(train(tmp_path, watched=False), train(tmp_path), strict=True):
        assert torch.equal(plain, watched)


def test_a_rank_means_nothing_in_a_single_process_and_is_reported(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    train(tmp_path, rank=1, steps=1)
    assert rows(tmp_path, "weight_grad_step0-0.csv")
    told = capfd.readouterr()
    assert mentions(told.out + told.err, "module-ranks-without-group")


def test_a_missing_optimizer_is_reported_and_a_second_start_too(tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    path.write_text(json.dumps({"output_dir": str(tmp_path), "monitors": ALL}))
    model = ModelM()
    monitor = TrainerMonitorV2(path, fr="pt")
    with raising(InvalidInputError, "monitor-optimizer-wrong"):
        monitor.start(model=model)
    monitor.start(model=model, optimizer=torch.optim.SGD(model.parameters(), lr=0.1))
    with raising(InvalidInputError, "monitor-v2-watches-already"):
        monitor.start(model=model, optimizer=torch.optim.SGD(model.parameters(), lr=0.1))
    monitor.stop()
    monitor.stop()
