"""Records for the checks, written by hand, and what one check says of them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

from msprobe.diagnose.check import CHECKS, check_run
from msprobe.diagnose.findings import Finding
from support.hand_made import tensor, write_part


def some(seed: int, *shape: int, scale: float = 1.0, **more: Any) -> dict[str, Any]:
    """A tensor of normal numbers, which ``seed`` tells from others."""
    values = scale * np.random.default_rng(seed).standard_normal(shape)
    return of(values, f"xxh3:{seed}-{shape}-{scale}", **more)


def of(values: Any, digest: str, **more: Any) -> dict[str, Any]:
    values = np.asarray(values, dtype=np.float64)
    numbers = {"Max": values.max(), "Min": values.min(), "Mean": values.mean(), "Norm": np.linalg.norm(values)}
    statistics = {key: float(number) for key, number in numbers.items()}
    return {**tensor(*values.shape), **statistics, "requires_grad": False, "digest": digest, **more}


def plain(value: Any) -> dict[str, Any]:
    return {"type": type(value).__name__, "value": value}


def call(inputs: list[Any], *outputs: Any, **more: Any) -> dict[str, Any]:
    record = {"input_args": inputs, "input_kwargs": more.pop("keywords", {}), "output": list(outputs)}
    return {**record, **more}


def module(inputs: list[Any], output: Any, **more: Any) -> dict[str, Any]:
    return {**call(inputs, output), "parameters": more.pop("parameters", {}), **more}


def write(folder: Path, data: dict[str, Any], step: int = 0, rank: str = "rank", parents: Any = None) -> None:
    path = folder / f"step{step}" / rank
    write_part(path, data, construct=parents)
    file = path / "dump.json"
    content = json.loads(file.read_text())
    content["msprobe"] = {"version": "0", "complete": True}
    file.write_text(json.dumps(content))


def found(folder: Path, name: str) -> list[Finding]:
    chosen = [check for check in CHECKS if check.name == name]
    assert chosen, name
    return list(check_run(folder, chosen).findings)


def one(folder: Path, name: str) -> Finding:
    (finding,) = found(folder, name)
    assert finding.evidence["check"] == name
    return finding


def optimizer(weights: dict[str, tuple[Any, Any, Any]], lr: float = 0.1, **more: Any) -> dict[str, Any]:
    """``weights``: name -> before, gradient, after."""
    return {
        "input_args": [],
        "input_kwargs": {name: {"weight": old, "grad": grad} for name, (old, grad, _) in weights.items()},
        "output": [{name: {"weight": new} for name, (_, _, new) in weights.items()}],
        "groups": [{"params": list(weights), "lr": plain(lr)}],
        **more,
    }


def of_ranks(folder: Path, make: Any, step: int = 0) -> None:
    for rank in range(3):
        write(folder, make(rank), step, f"rank{rank}")
