"""A configuration check in the callback of a trainer: each training has its own, also after one that failed."""

from __future__ import annotations

import zipfile
from pathlib import Path

import torch
from torch import nn

from msprobe.config_check.trainers import CheckedTraining


def digests(pack: Path) -> bytes:
    with zipfile.ZipFile(pack) as file:
        names = [name for name in file.namelist() if "weights" in name]
        assert names
        return b"".join(file.read(name) for name in sorted(names))


def test_a_second_training_is_checked_after_one_that_failed(tmp_path: Path) -> None:
    drawing = torch.rand
    pack = tmp_path / "pack.zip"
    checked = CheckedTraining(str(pack))
    first, second = nn.Linear(2, 2), nn.Linear(2, 2)
    checked.begin(first, {"lr": 1}, calls_model=False)
    # Ended by an exception that nobody tells of.
    checked.begin(second, {"lr": 2}, calls_model=False)
    torch.rand(1)
    checked.note(torch.ones(1, 2))
    checked.end()
    of_second = digests(pack)
    assert torch.rand is drawing
    checked.begin(first, {"lr": 1}, calls_model=False)
    assert torch.rand is not drawing
    checked.note(torch.ones(1, 2))
    checked.end()
    assert torch.rand is drawing
    assert digests(pack) != of_second
