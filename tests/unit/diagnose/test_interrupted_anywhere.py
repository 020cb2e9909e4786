"""A dump that ends anywhere in its last step is not accused of what it had no time to do."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from unit.diagnose.real_pairs import Training, record_training

from msprobe.diagnose import compare_runs


def training(batches: int = 1, limit: float = 0.01, stops_at: int = 2) -> Training:
    """A training of so many micro-batches. ``limit``: of the norm of gradients. ``stops_at``: the step of which the
    first micro-batch alone is done.
    """
    model = nn.Sequential(nn.Linear(8, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Linear(16, 4))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)

    def step(number: int) -> None:
        optimizer.zero_grad()
        for batch in range(1 if number == stops_at else batches):
            seed = torch.Generator().manual_seed(number + 100 * batch)
            model(torch.randn(6, 8, generator=seed)).pow(2).mean().backward()
        nn.utils.clip_grad_norm_(model.parameters(), limit)
        optimizer.step()

    return model, step


def cut(data: dict[str, Any], names: list[str], passes: list[dict[str, Any]]) -> dict[str, Any]:
    """What is there of a step when these records have been written. ``passes``: the gradients of parameters after each
    backward pass; they are written after the last call that adds to them.
    """
    found = {name: data[name] for name in names}
    for name, record in data.items():
        stem = name.removesuffix(".parameters_grad")
        if stem != name and any(one.startswith(f"{stem}.forward") for one in names):
            done = sum(one.startswith(f"{stem}.backward") for one in names[: -1 if len(passes) > 1 else None])
            found[name] = passes[done - 1][name] if done else {key: [None] for key in record}
    return found


def data_of(dump: Path) -> dict[str, Any]:
    content: dict[str, Any] = json.loads((dump / "step1" / "rank" / "dump.json").read_text())
    return content


def in_order(data: dict[str, Any]) -> list[str]:
    """The names of the records, in the order in which they were written."""
    return sorted((name for name in data if "msprobe" in data[name]), key=lambda name: data[name]["msprobe"]["order"])


def write_part(folder: Path, whole: Path, content: dict[str, Any], data: dict[str, Any]) -> Path:
    """A copy of a dump whose last step was interrupted when ``data`` had been written."""
    shutil.rmtree(folder, ignore_errors=True)
    # A journal that became json files goes a moment later; it holds all records, and what it holds counts.
    shutil.copytree(whole, folder, ignore=shutil.ignore_patterns("*.journal"))
    last = folder / "step1" / "rank"
    left = {**content, "msprobe": {**content["msprobe"], "complete": False}, "data": data}
    (last / "dump.json").write_text(json.dumps(left))
    return folder


@pytest.mark.parametrize(("batches", "limit"), [(1, 0.01), (1, 100.0), (2, 100.0)])
@pytest.mark.parametrize("level", ["mix", "L0", "L1"])
def test_no_end_is_an_accusation(tmp_path: Path, level: str, batches: int, limit: float) -> None:
    whole = record_training(tmp_path / "whole", lambda: training(batches, limit), steps=2, level=level)
    half = record_training(tmp_path / "half", lambda: training(batches, limit, stops_at=1), steps=2, level=level)
    content = data_of(whole)
    data = content["data"]
    passes = [data_of(half)["data"], data][-batches:]
    names = in_order(data)
    for end in range(1, len(names), max(1, len(names) // 24)):
        part = write_part(tmp_path / "part", whole, content, cut(data, names[:end], passes))
        for pair in ((part, whole), (whole, part)):
            verdict = compare_runs(*pair)
            assert (verdict.status, verdict.findings) == ("agree", ()), (names[end - 1], verdict.findings)
            assert verdict.summary["candidate_only"] + verdict.summary["reference_only"] > 0


def test_a_wrong_gradient_is_found_in_a_dump_that_ends_after_it(tmp_path: Path) -> None:
    whole = record_training(tmp_path / "whole", training, steps=2)
    content = data_of(whole)
    data = content["data"]
    names = in_order(data)
    data["Module.3.Linear.parameters_grad"]["weight"][0].update(Max=5.0, Norm=9.0)
    data = cut(data, names[: names.index("Module.0.Linear.backward.0")], [data])
    verdict = compare_runs(write_part(tmp_path / "part", whole, content, data), whole)
    assert verdict.status == "diverged"
    assert verdict.findings[0].entry == "Module.3.Linear.parameters_grad"


def test_a_step_that_ends_in_its_forward_pass_has_no_loss_and_no_gradients_to_compare(tmp_path: Path) -> None:
    whole = record_training(tmp_path / "whole", training, steps=2)
    content = data_of(whole)
    part = write_part(tmp_path / "part", whole, content, cut(content["data"], in_order(content["data"])[:3], []))
    last = [path / "step1" for path in (part, whole)]
    assert compare_runs(*last).summary["effect_on"] == []
    assert compare_runs(part, whole).summary["effect_on"] == ["loss", "gradients", "weights"]
