"""What stands on the modules of a model while recording, and that nothing does afterwards."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import torch
from torch import nn

from msprobe.pytorch import PrecisionDebugger

DICTIONARIES = (
    "_forward_pre_hooks",
    "_forward_pre_hooks_with_kwargs",
    "_forward_hooks",
    "_forward_hooks_with_kwargs",
    "_forward_hooks_always_called",
)


class OwnHooks(nn.Linear):
    """A module that counts who adds hooks to it."""

    added = 0

    def register_forward_hook(self, *args: Any, **kwargs: Any) -> Any:
        OwnHooks.added += 1
        return super().register_forward_hook(*args, **kwargs)


def counts(module: nn.Module) -> list[int]:
    return [len(getattr(module, name)) for name in DICTIONARIES]


def test_hooks_come_and_go_with_recording(tmp_path: Path) -> None:
    model = nn.Sequential(nn.Linear(4, 4), OwnHooks(4, 4))
    OwnHooks.added = 0
    seen: list[str] = []
    handle = model[0].register_forward_hook(lambda *args: seen.append("user"))
    PrecisionDebugger.reset()
    debugger = PrecisionDebugger(dump_path=str(tmp_path), level="L0", task="statistics")
    for step in range(3):
        debugger.start(model)
        assert counts(model[0]) == [1, 1, 2, 1, 1]
        assert counts(model[1]) == [1, 1, 1, 1, 1]
        copied = copy.deepcopy(model)
        model(torch.ones(2, 4)).sum().backward()
        debugger.stop()
        debugger.step()
        copied(torch.ones(2, 4))  # its hooks do nothing
        assert counts(model[0]) == [0, 0, 1, 0, 0]
        assert counts(model[1]) == [0] * 5
        assert OwnHooks.added == step + 1
    PrecisionDebugger.reset()
    handle.remove()
    assert seen == ["user"] * 6
    for file in tmp_path.glob("step*/*/dump.json"):
        names = [name for name in json.loads(file.read_text())["data"] if name.startswith("Module.")]
        assert names == [
            "Module.0.Linear.forward.0",
            "Module.0.Linear.parameters_grad",
            "Module.1.OwnHooks.forward.0",
            "Module.1.OwnHooks.parameters_grad",
            "Module.1.OwnHooks.backward.0",
            "Module.0.Linear.backward.0",
        ]


def test_gradients_of_parameters_that_were_moved_are_seen(tmp_path: Path) -> None:
    model = nn.Sequential(nn.Linear(4, 4))
    PrecisionDebugger.reset()
    debugger = PrecisionDebugger(dump_path=str(tmp_path), level="L0", task="statistics")
    for dtype in (torch.float32, torch.float64, torch.float32):
        model.to(dtype)
        model.zero_grad()
        debugger.start(model)
        model(torch.ones(2, 4, dtype=dtype)).sum().backward()
        debugger.stop()
        debugger.step()
    PrecisionDebugger.reset()
    for step, dtype in enumerate(("torch.float32", "torch.float64", "torch.float32")):
        (file,) = tmp_path.glob(f"step{step}/*/dump.json")
        entry = json.loads(file.read_text())["data"]["Module.0.Linear.parameters_grad"]
        assert {key: value["dtype"] for key, (value,) in entry.items()} == {"weight": dtype, "bias": dtype}
