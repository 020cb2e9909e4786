"""Trainings with a mistake that public threads describe, beside the right one: `monitor diff` finds its step, and none
where the same is computed otherwise. A comment names the project and the subject."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from msprobe.monitor.locate import HALF, first_bad_step
from msprobe.monitor.measurements import StepMetrics
from msprobe.monitor.sketch import Sketch, Sketcher
from msprobe.pytorch import TrainerMon

CONFIG = {
    "targets": {},
    "wg_distribution": True,
    "param_distribution": True,
    "ur_distribution": True,
    "ops": ["norm", "projection"],
    "format": "api",
}
STEPS, LATER = 20, 8


@dataclass
class Kept:
    """A sink that keeps sketches."""

    found: list[Sketch] = field(default_factory=list)
    sketcher: Sketcher = field(default_factory=Sketcher)

    def write(self, metrics: StepMetrics) -> None:
        self.found.append(self.sketcher.sketch(metrics))

    def open(self, run: Any) -> None: ...
    def flush(self) -> None: ...
    def close(self) -> None: ...


class Model(nn.Module):
    """An embedding, two layers with norms, a head."""

    def __init__(self) -> None:
        super().__init__()
        self.tokens = nn.Embedding(30, 16)
        self.one, self.two, self.head = nn.Linear(16, 24), nn.Linear(24, 16), nn.Linear(16, 30)
        self.first, self.last = nn.LayerNorm(16), nn.LayerNorm(16)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = self.tokens(x)
        h = h + self.two(F.gelu(self.one(self.first(h))))
        return self.head(self.last(h))  # type: ignore[no-any-return]


#: What a training does otherwise, by name: see ``train``.
Ways = Mapping[str, Any]


def groups(model: nn.Module, decayed: bool) -> list[dict[str, Any]]:
    flat = [p for p in model.parameters() if p.dim() < 2]
    return [
        {"params": [p for p in model.parameters() if p.dim() > 1], "weight_decay": 0.1},
        {"params": flat, "weight_decay": 0.1 if decayed else 0.0},
    ]


def train(folder: Path, ways: Ways) -> list[Sketch]:
    """One training; its sketches. Its schedule falls, its gradients are clipped, each step has two micro-batches."""
    torch.manual_seed(0)
    model = Model().to(torch.bfloat16 if ways.get("type") == "bfloat16" else torch.float32)
    made: dict[str, Any] = {"lr": 2e-3, "betas": (0.9, 0.99), "eps": 1e-8, **ways.get("optimizer", {})}
    sort = ways.get("sort", torch.optim.AdamW)
    if sort is torch.optim.SGD:
        made = {"lr": 0.05, "momentum": 0.9, **ways.get("optimizer", {})}
    parts = groups(model, "decayed" in ways)
    if "left_out" in ways:
        parts[0]["params"] = [p for p in parts[0]["params"] if p is not model.two.weight]
    optimizer = sort(parts, **made)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 0.9**step)
    (folder / "m.json").write_text(json.dumps(CONFIG))
    kept = Kept()
    monitor = TrainerMon(folder / "m.json", sinks=[kept])
    monitor.set_monitor(model, optimizer=optimizer)
    for step in range(STEPS):
        rows = torch.randint(0, 30, (8, 7), generator=torch.Generator().manual_seed(step))
        if step == LATER and "shuffled" in ways:
            rows = torch.randint(0, 30, (8, 7), generator=torch.Generator().manual_seed(99))
        if not ("kept_gradients" in ways and step >= LATER):
            optimizer.zero_grad(set_to_none="zeroed" not in ways)
        for part in rows.chunk(ways.get("parts", 2)):
            with torch.autocast("cpu", torch.bfloat16, enabled=ways.get("type") == "autocast"):
                result = model(part[:, :-1]).flatten(0, 1)
            labels = part[:, 1:].flatten()
            if "smoothed" in ways and step >= LATER:
                loss = F.cross_entropy(result, labels, label_smoothing=0.1)
            elif "summed" in ways:
                loss = F.cross_entropy(result, labels, reduction="sum") / labels.numel()
            else:
                loss = F.cross_entropy(result, labels)
            (loss * ways.get("scale", 1.0) / (1 if "undivided" in ways else ways.get("parts", 2))).backward()
        if "scale" in ways and "scaled_clipping" not in ways:
            for p in model.parameters():
                p.grad = None if p.grad is None else p.grad / ways["scale"]
        if "each_alone" in ways:
            for p in model.parameters():
                nn.utils.clip_grad_norm_([p], 0.3)
        else:
            nn.utils.clip_grad_norm_(model.parameters(), ways.get("limit", 0.3), foreach=ways.get("foreach"))
        if "scale" in ways and "scaled_clipping" in ways:
            for p in model.parameters():
                p.grad = None if p.grad is None else p.grad / ways["scale"]
        if step == LATER and "cold" in ways:
            optimizer.state.clear()
        if step == LATER and "reset" in ways:
            for group in optimizer.param_groups:
                group["lr"] = made["lr"]
        monitor.note(loss=float(loss.detach()))
        optimizer.step()
        if "no_schedule" not in ways or step < LATER:
            schedule.step()
        with torch.no_grad():
            if "clamped" in ways and step >= LATER:
                model.head.weight.clamp_(-0.15, 0.15)
            if "reloaded" in ways and step == LATER:
                model.last.weight.fill_(1.0)
    monitor.stop()
    return kept.found


@cache
def right(folder: Path, sort: Any, type_: str) -> list[Sketch]:
    return train(folder, {"sort": sort, "type": type_})


def found_in(folder: Path, ways: Ways, type_: str) -> Any:
    rounding = HALF["bfloat16"] if type_ == "bfloat16" else 0.0
    return first_bad_step(
        right(folder, ways.get("sort", ADAM), type_), train(folder, {**ways, "type": type_}), {}, rounding
    )


ADAM, SGD = torch.optim.AdamW, torch.optim.SGD
#: (what is done otherwise, the step from which it is there)
WRONG: dict[str, tuple[Ways, int]] = {
    # IntelLabs/distiller 145, ultralytics/yolov5 292: resuming resets the learning rate
    "a rate that is reset": ({"reset": True, "no_schedule": True}, LATER),
    # pytorch 60265: the schedule does not go on
    "a schedule that stops": ({"no_schedule": True}, LATER + 1),
    # LibreYOLO 277, CodefyUI 147: moments are thrown away
    "cold moments": ({"cold": True}, LATER),
    "cold momentum": ({"cold": True, "sort": SGD}, LATER),
    # nanoGPT, oumi 341, fastai2 519: decay of norms and biases
    "norms are decayed": ({"decayed": True}, 0),
    # many: micro-batches that are not divided
    "undivided": ({"undivided": True, "limit": 1e9, "sort": SGD}, 0),
    # pytorch's page on scalers: gradients are clipped before they are unscaled
    "scaled gradients are clipped": ({"scale": 128.0, "scaled_clipping": True, "sort": SGD}, 0),
    # many: each gradient is clipped alone
    "each gradient alone": ({"each_alone": True, "sort": SGD}, 0),
    # PaddlePaddle 67895: gradients are not cleared
    "gradients are kept": ({"kept_gradients": True}, LATER),
    # many: a parameter that no optimizer has
    "a parameter is left out": ({"left_out": True}, 0),
    # tenstorrent/tt-metal 48716: another beta2
    "another beta2": ({"optimizer": {"betas": (0.9, 0.999)}}, 0),
    # MindSpore's pages: another epsilon
    "another epsilon": ({"optimizer": {"eps": 1e-4}}, 0),
    "Nesterov": ({"optimizer": {"nesterov": True}, "sort": SGD}, 0),
    # many: a smoothing that begins later
    "a smoothed loss": ({"smoothed": True}, LATER),
    # many: data in another order behind a resume
    "other data": ({"shuffled": True}, LATER),
    # weights are written to behind a step
    "clamped weights": ({"clamped": True}, LATER + 1),
    "a norm is loaded anew": ({"reloaded": True}, LATER + 1),
}


@pytest.mark.parametrize("type_", ["float32", "autocast"])
@pytest.mark.parametrize("name", WRONG)
def test_the_step_of_a_mistake_is_found(folder: Path, name: str, type_: str) -> None:
    ways, at = WRONG[name]
    found = found_in(folder, ways, type_)
    assert found is not None
    assert at <= found.step <= at + 8, (found.step, found.what[:3])


#: What is computed otherwise and is the same.
SAME: dict[str, Ways] = {
    "one batch": {"parts": 1},
    "four micro-batches": {"parts": 4},
    "a sum that is divided": {"summed": True},
    "gradients are zeroed": {"zeroed": True},
    "a loop over parameters": {"foreach": False, "optimizer": {"foreach": False}},
    "a fused optimizer": {"optimizer": {"fused": True}},
    "a scaled loss": {"scale": 128.0},
    "the same again": {},
    "one batch, momentum": {"parts": 1, "sort": SGD},
    "a scaled loss, momentum": {"scale": 1000.0, "sort": SGD},
}


@pytest.mark.parametrize("type_", ["float32", "autocast", "bfloat16"])
@pytest.mark.parametrize("name", SAME)
def test_what_is_computed_otherwise_has_no_bad_step(folder: Path, name: str, type_: str) -> None:
    found = found_in(folder, SAME[name], type_)
    assert found is None, found.what[:3]
