"""What is recorded of a training of the zoo is what a bystander with hooks of his own sees: every pass of every module,
its results, the gradients that come back; and a dump compared with its twin, or checked alone, raises no alarm.

The training itself is the one that `test_innocence.py` proves to be undisturbed.
"""

from __future__ import annotations

import json
import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import torch
import zoo
from innocence_run import Recorder, Setting, run
from torch import nn

from msprobe.diagnose import compare_runs
from msprobe.diagnose.check import check_run

pytestmark = pytest.mark.usefixtures("one_thread")

zoo.load_all()
NAMES = [
    "peft_lora_checkpointing",
    "peft_adapters_merged_and_switched",
    "peft_direct_preference",
    "trl_supervised_fine_tuning",
    "trl_preference_optimisation",
    "diffusers_unet_checkpointing",
    "geometric_graph_networks",
    "kernels_called_by_address",
    "batches_prepared_by_a_thread",
    "generation_inside_a_training",
    "autocast_bfloat16_transformer",
]
STEPS = [0, 1]
Statistics = tuple[float, float, float]


@dataclass
class Pass:
    """One pass of a module: statistics of its results, and of the gradients that came back to them."""

    outputs: list[Statistics | None] = field(default_factory=list)
    gradients: dict[int, Statistics] = field(default_factory=dict)


class Bystander:
    """Watches the modules of a training through forward hooks of torch and hooks on tensors."""

    def __init__(self) -> None:
        self.steps: list[dict[str, list[Pass]]] = [defaultdict(list)]
        self._handles: list[Any] = []
        self._under_way: list[Pass] = []

    def start(self, models: nn.Module | Sequence[nn.Module]) -> None:
        several = not isinstance(models, nn.Module)
        for number, model in enumerate(models if several else [models]):
            for path, module in model.named_modules():
                if not path:
                    continue  # the model itself is recorded only if that is asked for
                place = f"{number}.{path}" if several else path
                name = f"Module.{place}.{type(module).__name__}"
                self._handles.append(module.register_forward_pre_hook(lambda *_, n=name: self._enter(n)))
                self._handles.append(module.register_forward_hook(self._leave, always_call=True))

    def _enter(self, name: str) -> None:
        self._under_way.append(Pass())
        self.steps[-1][name].append(self._under_way[-1])

    def _leave(self, module: nn.Module, inputs: object, output: object) -> None:
        seen = self._under_way.pop()
        for place, value in enumerate(output if type(output) in (tuple, list) else [output]):
            seen.outputs.append(statistics(value) if isinstance(value, torch.Tensor) else None)
            if isinstance(value, torch.Tensor) and value.grad_fn is not None:
                value.register_hook(lambda g, at=place: seen.gradients.__setitem__(at, statistics(g)))

    def stop(self) -> None:
        while self._handles:
            self._handles.pop().remove()

    def step(self) -> None:
        self.steps.append(defaultdict(list))

    def save(self, value: object, name: str) -> None: ...

    def close(self) -> None:
        self.steps.pop()


def statistics(tensor: torch.Tensor) -> Statistics | None:
    """Largest, smallest and norm; None if there is nothing to compare."""
    with torch.no_grad():
        numbers = tensor.detach()
        if not numbers.is_floating_point() or not numbers.numel() or not numbers.isfinite().all():
            return None
        return numbers.max().item(), numbers.min().item(), numbers.norm().item()


def recorded(info: object) -> Statistics | None:
    if not isinstance(info, dict) or not isinstance(info.get("Max"), float):
        return None
    return info["Max"], info["Min"], info["Norm"]


def same(seen: Statistics | None, found: Statistics | None) -> bool:
    if seen is None or found is None:
        return seen is None
    return all(math.isclose(a, b, rel_tol=1e-5, abs_tol=1e-30) for a, b in zip(seen, found, strict=True))


def faults(step: dict[str, list[Pass]], data: dict[str, Any]) -> list[str]:
    """Where the records of a step are not what the bystander saw."""
    found = []
    for name, passes in step.items():
        if f"{name}.forward.{len(passes)}" in data:
            found.append(f"{name}: a pass more than the {len(passes)} there were")
        for number, seen in enumerate(passes):
            record = data.get(f"{name}.forward.{number}")
            if record is None:
                found.append(f"{name}: pass {number} is missing")
                continue
            for place, numbers in enumerate(seen.outputs):
                if numbers is not None and not same(numbers, recorded(record["output"][place])):
                    found.append(f"{name}.forward.{number}: output {place} was {numbers}: {record['output'][place]}")
        found += _faults_of_gradients(name, passes, data)
    return found


def _faults_of_gradients(name: str, passes: list[Pass], data: dict[str, Any]) -> list[str]:
    """A backward pass need not have the number of its forward pass: what came back is looked for in all of them."""
    backward = [data[key]["input"] for key in data if key.startswith(f"{name}.backward.")]
    found = []
    for seen in passes:
        for place, numbers in seen.gradients.items():
            if not any(place < len(leaves) and same(numbers, recorded(leaves[place])) for leaves in backward):
                found.append(f"{name}: the gradient {numbers} of output {place} is in none of {len(backward)} records")
    return found


@pytest.mark.parametrize("name", NAMES)
def test_a_dump_holds_what_a_bystander_sees_and_agrees_with_its_twin(name: str, tmp_path: Path) -> None:
    bystander = Bystander()
    run(name, bystander)
    for folder in ("one", "twin"):
        (tmp_path / folder).mkdir()
        run(name, Recorder(tmp_path / folder, Setting("mix", top={"step": STEPS})))
    found = []
    for number in STEPS:
        step = bystander.steps[number]
        dump = json.loads((tmp_path / f"one/dump/step{number}/rank/dump.json").read_text())
        found += [f"step {number}: {fault}" for fault in faults(step, dump["data"])]
    assert sum(map(len, bystander.steps[1].values())) >= 2, "the bystander saw nothing"
    assert not found, f"{len(found)} faults\n" + "\n".join(found[:15])
    verdict = compare_runs(tmp_path / "one/dump", tmp_path / "twin/dump")
    assert verdict.status == "agree", [str(finding)[:300] for finding in verdict.findings]
    # Frozen parameters in an optimizer and a batch that comes again are remarks, and true of some of them.
    assert [finding for finding in check_run(tmp_path / "one/dump").findings if not finding.harmless] == []
