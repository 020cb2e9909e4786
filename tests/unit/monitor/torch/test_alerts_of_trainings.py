"""Alerts of a training that is watched: acceptance checks 16 and 17."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

from torch import nn
from unit.monitor.torch.monitored import PARAMETERS, SIX, monitored, train_m


def alerts(folder: Path) -> dict[str, Any]:
    path = folder / "out" / "anomaly_detected" / "rank0" / "anomaly.json"
    found: dict[str, Any] = json.loads(path.read_text()) if path.exists() else {}
    return found


def test_gradients_that_are_suddenly_larger(tmp_path: Path) -> None:
    """Eight alerts at step 3: norm and mean of four gradients. A NaN later does not silence the rule."""

    def disturb(step: int, model: nn.Module) -> None:
        for at, one in enumerate(model.parameters()):
            assert one.grad is not None
            if step in (3, 6):
                one.grad.fill_(1.0).mul_(100)
            elif step == 5 and at == 0:
                one.grad[0, 0] = math.nan
            else:
                one.grad.fill_(1.0)

    rule = {"rule_name": "AnomalyTurbulence", "args": {"threshold": 0.5, "quantities": ["grad_reduced"]}}
    config = {"wg_distribution": True, "ops": SIX, "alert": {"rules": [rule], "dump": True}}
    monitored(tmp_path, config, train_m(steps=8, before_step=disturb))
    found = list(alerts(tmp_path).values())
    steps = [one["step"] for one in found]
    assert steps.count(3) == 8
    assert {one["tag_name"].split("/")[0] for one in found if one["step"] == 3} == {f"0:{name}" for name in PARAMETERS}
    assert not {0, 1, 2} & set(steps)
    assert steps.count(6) == 8


def test_the_first_gradient_that_is_nan(tmp_path: Path) -> None:
    def spoil(step: int, model: nn.Module) -> None:
        if step == 4:
            weight = model.get_parameter("fc1.weight")
            assert weight.grad is not None
            weight.grad[0, 0] = math.nan

    config = {
        "wg_distribution": True,
        "param_distribution": True,
        "mv_distribution": True,
        "ops": ["norm"],
        "alert": {"rules": [{"rule_name": "AnomalyNan"}], "dump": True},
    }
    monitored(tmp_path, config, train_m(steps=6, before_step=spoil))
    found = list(alerts(tmp_path).values())
    first = min(found, key=lambda one: one["step"])
    assert (first["step"], first["tag_name"]) == (4, "0:fc1.weight/rank0/post_grad")
