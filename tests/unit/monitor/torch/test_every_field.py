"""A field that is accepted does something: each one of a monitor's configuration has a value that changes what is left
or said, of ``TrainerMon`` and of ``TrainerMonitorV2``."""

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

import pytest
import torch
from unit.monitor.torch.monitored import ModelM

from msprobe import log
from msprobe.core.monitor_v2.trainer import TrainerMonitorV2
from msprobe.monitor.config import MonitorConfig
from msprobe.pytorch import TrainerMon

Seen = dict[str, str]


@dataclass(frozen=True)
class Case:
    """A value, with ``more`` fields on both sides."""

    value: Any
    more: dict[str, Any] = field(default_factory=dict)


GRADIENTS = {"wg_distribution": True}
NAN = {"rule_name": "AnomalyNan"}
JUMP = {"rule_name": "AnomalyTurbulence", "args": {"threshold": 1e-9}}
L2 = {"recording_l2_features": True, "l2_targets": {"linear_hook": ["fc1"]}}
V1: dict[str, Case] = {
    "targets": Case({"fc1": {}}, {"xy_distribution": True}),
    "xy_distribution": Case(True),
    "all_xy": Case(True, {"targets": {"fc1": {}}, "xy_distribution": True}),
    "forward_only": Case(True, {"xy_distribution": True}),
    "backward_only": Case(True, {"xy_distribution": True}),
    "wg_distribution": Case(True),
    "monitor_mbs_grad": Case(True, GRADIENTS),
    "micro_delta": Case(True, {**GRADIENTS, "monitor_mbs_grad": True}),
    "mv_distribution": Case(True),
    "param_distribution": Case(True),
    "state_distribution": Case(True),
    "ur_distribution": Case(True),
    "mg_direction": Case(True),
    "cc_distribution": Case({"enable": True}),
    "stack_info": Case(True),
    "print_struct": Case(True),
    "module_ranks": Case([1], GRADIENTS),
    "start_step": Case(1, GRADIENTS),
    "step_interval": Case(2, GRADIENTS),
    "collect_times": Case(1, GRADIENTS),
    "dynamic_on": Case(True, GRADIENTS),
    "format": Case("sqlite", GRADIENTS),
    "ops": Case(["min", "max"], GRADIENTS),
    "eps": Case(0.5, {**GRADIENTS, "ops": ["zeros"]}),
    "ndigits": Case(2, GRADIENTS),
    "step_count_per_record": Case(2, GRADIENTS),
    "append_output": Case(["2020-01-01_00-00-00", "2020-01-02_00-00-00"], GRADIENTS),
    "squash_name": Case(False, GRADIENTS),
    "scope": Case("global", GRADIENTS),
    "alert": Case({"rules": [JUMP], "dump": True}, GRADIENTS),
    "sketch": Case(True),
    "recording_l2_features": Case(True, {"l2_targets": L2["l2_targets"]}),
    "l2_targets": Case({"linear_hook": ["fc2"]}, L2),
    "sa_order": Case("b,s,h,d", L2),
}
ALL = {name: {"enabled": True} for name in ("module", "weight_grad", "optimizer", "param")}
V2: dict[str, Case] = {
    "framework": Case("mindspore"),
    "output_dir": Case("elsewhere"),
    "format": Case("sqlite"),
    "rank": Case([1]),
    "start_step": Case(1),
    "stop_step": Case(1),
    "step_interval": Case(2),
    "step_count_per_record": Case(2),
    "collect_times": Case(1),
    "patch_optimizer_step": Case(False),
    "async_write": Case(True),
    "monitors": Case({"param": {"enabled": True}}),
    "monitors.enabled": Case({**ALL, "module": {"enabled": False}}),
    "monitors.ops": Case({**ALL, "param": {"enabled": True, "ops": ["max"]}}),
    "monitors.eps": Case({**ALL, "param": {"enabled": True, "eps": 0.5}}),
    "monitors.targets": Case({**ALL, "module": {"enabled": True, "targets": ["fc1"]}}),
    "monitors.targets of param": Case({**ALL, "param": {"enabled": True, "targets": ["fc1"]}}),
}


@pytest.fixture
def seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Any:
    """What a monitored training leaves and says: files and lines."""
    count = 0

    def run(version: int, content: dict[str, Any]) -> Seen:
        nonlocal count
        count += 1
        place = tmp_path / str(count)
        place.mkdir()
        monkeypatch.chdir(place)
        monkeypatch.setenv("MONITOR_OUTPUT_DIR", str(place / "out"))
        (place / "config.json").write_text(json.dumps(content))
        log.forget_once()
        capsys.readouterr()
        found: Seen = {}
        torch.manual_seed(0)
        model = ModelM(0.5)
        optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
        try:
            if version == 1:
                monitor = TrainerMon("config.json", params_have_main_grad=False)
                monitor.set_monitor(model, grad_acc_steps=2, optimizer=optimizer)
            else:
                monitor = TrainerMonitorV2("config.json")
                monitor.start(model=model, optimizer=optimizer, grad_acc_steps=2)
            for _ in range(3):
                for _ in range(2):
                    (model(torch.randn(3, 4)).square().mean() / 2).backward()
                optimizer.step()
                optimizer.zero_grad()
            monitor.stop()
        except Exception as problem:
            found["refused"] = f"{type(problem).__name__}: {problem}".replace(str(place), "HERE")
        said = capsys.readouterr()
        found |= {f"said {plain(line, place)}": "" for line in (said.out + said.err).splitlines()}
        for file in sorted(place.rglob("*")):
            if file.is_file() and file.name != "config.json":
                text = plain(file.read_bytes().decode(errors="replace"), place)
                name = plain(str(file.relative_to(place)), place)
                found[f"file {name}"] = hashlib.sha256(text.encode()).hexdigest()
        return found

    return run


def plain(text: str, place: Path) -> str:
    """Without the moment and the place."""
    text = text.replace(str(place), "HERE")
    return re.sub(r"\w{3}\d\d_\d\d-\d\d-\d\d|\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d(\.\d+)?( \(\d+\))?", "TIME", text)


def differs(seen: Any, version: int, usual: dict[str, Any], changed: dict[str, Any]) -> list[str]:
    """What the change changes, beyond what differs between two equal runs."""
    first, second, found = seen(version, usual), seen(version, usual), seen(version, changed)
    assert "refused" not in first, first["refused"]
    stable = {name: value for name, value in first.items() if second.get(name) == value}
    gone = [name for name, value in stable.items() if found.get(name) != value]
    return gone + sorted(found.keys() - first.keys() - second.keys())


def test_every_field_has_a_row() -> None:
    assert V1.keys() == {one.name for one in fields(MonitorConfig)} - {"text"}


@pytest.mark.parametrize("name", V1)
def test_a_field_of_a_monitor_changes_something(seen: Any, name: str) -> None:
    case = V1[name]
    assert differs(seen, 1, case.more, {**case.more, name: case.value})


@pytest.mark.parametrize("name", V2)
def test_a_field_of_the_newer_monitor_changes_something(seen: Any, name: str) -> None:
    case, usual = V2[name], {"output_dir": "out", "monitors": ALL}
    assert differs(seen, 2, usual, {**usual, name.partition(".")[0]: case.value})
