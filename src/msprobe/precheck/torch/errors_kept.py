"""``-save_error_data``: arguments and results of calls that failed, as ``.pt`` files."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch

from msprobe.paths import FILE_MODE, make_folder
from msprobe.precheck.side.trees import leaves_of
from msprobe.precheck.torch.inputs import Inputs
from msprobe.precheck.torch.machine import Outcome
from msprobe.store.tensor_names import safe_file_name


def save(folder: Path, key: str, inputs: Inputs, bench: Outcome, device: Outcome) -> None:
    """Write what one failing call was given, and what both sides gave; what is no tensor takes a number only."""
    make_folder(folder)
    for name, value in _all(key, inputs, bench, device):
        if isinstance(value, torch.Tensor):
            path = folder / safe_file_name(f"{name}.pt")
            torch.save(value.detach().contiguous().clone(), path)
            os.chmod(path, FILE_MODE)


def _all(key: str, inputs: Inputs, bench: Outcome, device: Outcome) -> Iterator[tuple[str, Any]]:
    for place, value in enumerate(leaves_of(inputs.args)):
        yield f"{key}.forward.input.{place}", value
    for word, argument in inputs.kwargs.items():
        leaves = leaves_of(argument)
        for place, value in enumerate(leaves):
            yield f"{key}.forward.input.{word}" + (f".{place}" if len(leaves) > 1 else ""), value
    for place, value in enumerate(leaves_of(inputs.gradients or [])):
        yield f"{key}.backward.input.{place}", value
    for side, outcome in (("bench", bench), ("device", device)):
        for place, value in enumerate(outcome.outputs):
            yield f"{key}.forward.output.{side}.{place}", value
        for place, value in enumerate(outcome.gradients.values()):
            yield f"{key}.backward.output.{side}.{place}", value
