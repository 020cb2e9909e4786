"""Trainings whose gradients are set by hand, recorded by the probe, and a reader of its files that is not ours."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import nn

from msprobe.pytorch import PrecisionDebugger


class Weights(nn.Module):
    """Parameters of these names and shapes; a name may hold anything but a dot."""

    def __init__(self, **shapes: Sequence[int]) -> None:
        super().__init__()
        for name, shape in shapes.items():
            self.register_parameter(name, nn.Parameter(torch.zeros(tuple(shape))))


def configured(folder: Path, top: Mapping[str, Any] | None = None, **section: Any) -> str:
    """The path of a configuration that writes to ``folder/out``."""
    file = folder / "config.json"
    content = {"task": "grad_probe", "dump_path": str(folder / "out"), **(top or {}), "grad_probe": section}
    file.write_text(json.dumps(content))
    return str(file)


@contextmanager
def probing(folder: Path, model: Any, top: Mapping[str, Any] | None = None, **section: Any) -> Iterator[Path]:
    """Watch ``model`` in this block; the folder of rank 0."""
    debugger = PrecisionDebugger(configured(folder, top, **section))
    try:
        debugger.monitor(model)
        yield folder / "out" / "rank0"
        debugger.stop()
    finally:
        PrecisionDebugger.reset()


def step(optimizer: torch.optim.Optimizer, **gradients: Any) -> None:
    """Set gradients by the places of parameters (``p0``, ``p1``) and step."""
    parameters = [one for group in optimizer.param_groups for one in group["params"]]
    for place, value in gradients.items():
        parameter = parameters[int(place[1:])]
        parameter.grad = value if isinstance(value, torch.Tensor) or value is None else torch.tensor(value)
    optimizer.step()


def probe_one(folder: Path, *gradients: Any, top: Mapping[str, Any] | None = None, **section: Any) -> Path:
    """Steps of one parameter ``w`` with these gradients; the folder of rank 0."""
    first = torch.as_tensor(gradients[0])
    model = Weights(w=tuple(first.shape)).to(first.dtype)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
    with probing(folder, model, top, **section) as rank:
        for gradient in gradients:
            step(optimizer, p0=torch.as_tensor(gradient))
    return rank


def read(file: Path) -> list[dict[str, str]]:
    """The rows of a csv, by the names of its columns; the form of the file is checked."""
    data = file.read_bytes()
    assert data.startswith(b"\xef\xbb\xbf")
    assert data.endswith(b"\r\n")
    assert data.count(b"\n") == data.count(b"\r\n")
    lines = list(csv.reader(io.StringIO(data.decode("utf-8-sig"), newline="")))
    assert all(len(line) == len(lines[0]) for line in lines)
    return [dict(zip(lines[0], line, strict=True)) for line in lines[1:]]


def files(folder: Path) -> set[str]:
    """All files below, but for run.json."""
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file() and path.name != "run.json"}
