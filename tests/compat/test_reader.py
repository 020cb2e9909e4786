"""Our reader opens the published package's dumps, and reads ours the same way."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from agreement import FLOAT32_TOLERANCE, TOLERANCE
from conftest import Recorded
from dumps import OURS, Rank, Setting
from explained import may_be_missing

from msprobe.store.reader import open_dump
from msprobe.store.values import read_pt

SETTINGS = [("L0", "statistics"), ("L1", "statistics"), ("mix", "statistics"), ("L1", "md5")]


def tensors_in(value: Any) -> int:
    """How many tensor descriptions a record holds; those under our own keys do not count."""
    if isinstance(value, dict):
        if "dtype" in value and "shape" in value:
            return 1
        return sum(tensors_in(item) for key, item in value.items() if key != "msprobe")
    if isinstance(value, list):
        return sum(tensors_in(item) for item in value)
    return 0


@pytest.mark.parametrize(("level", "summary_mode"), SETTINGS)
@pytest.mark.parametrize("program", ["toy", "transformer"])
def test_everything_in_their_files_is_read(
    version: str, program: str, level: str, summary_mode: str, recorded: Recorded
) -> None:
    steps = recorded(Setting(version, program, level, summary_mode=summary_mode))
    dump = open_dump(steps[0].folder.parent.parent)
    assert dump.steps == [0, 1]
    for number, rank in enumerate(steps):
        part = dump.part(number)
        assert part.complete
        assert {key: part.header[key] for key in ("task", "level", "framework")} == {
            key: rank.dump[key] for key in ("task", "level", "framework")
        }
        assert dict(part.records()) == rank.data
        assert part.names() == list(rank.data)
        assert part.parents() == rank.construct
        assert {name: part.stack(name) for name in rank.stacks} == rank.stacks
        assert len(part.tensors()) == sum(tensors_in(entry) for entry in rank.data.values())


def test_a_step_a_rank_and_a_file_can_be_opened(version: str, recorded: Recorded) -> None:
    rank = recorded(Setting(version, "toy", "L1"))[0]
    for path in (rank.folder.parent, rank.folder, rank.folder / "dump.json"):
        assert open_dump(path).part().names() == list(rank.data)


@pytest.mark.parametrize("program", ["toy", "transformer"])
def test_their_tensor_files_are_read_without_torch(version: str, program: str, recorded: Recorded) -> None:
    part = open_dump(recorded(Setting(version, program, "L1", task="tensor"))[0].folder).part()
    names = [name for name in part.tensors().data_name if name is not None]
    assert names
    for name in names:
        path = part.tensor_path(name)
        expected = torch.load(path, weights_only=True)
        found = read_pt(path)
        assert found.array.shape == tuple(expected.shape)
        assert np.array_equal(found.array, expected.numpy(), equal_nan=expected.is_floating_point())


@pytest.mark.parametrize("program", ["toy", "transformer", "autocast"])
@pytest.mark.parametrize("level", ["L0", "L1", "mix"])
def test_the_same_rows_come_out_of_both_dumps(version: str, program: str, level: str, recorded: Recorded) -> None:
    setting = Setting(version, program, level)
    reference, ours = recorded(setting)[0], recorded(replace(setting, tool=OURS))[0]
    left, right = rows(reference, setting), rows(ours, setting)
    assert left
    missing = sorted(set(left) - set(right))
    assert not missing
    for key, (dtype, shape, top, low) in left.items():
        other = right[key]
        assert other[:2] == (dtype, shape), key
        tolerance = TOLERANCE.get(dtype, FLOAT32_TOLERANCE) * max(abs(top), abs(low), 1e-7)
        for expected, found in zip((top, low), other[2:], strict=True):
            assert found == pytest.approx(expected, abs=tolerance) or math.isnan(expected), key


Row = tuple[str, Any, float, float]


def rows(rank: Rank, setting: Setting) -> dict[tuple[str, str], Row]:
    """(entry, slot) -> dtype, shape, max, min; without what explained.py lets be missing."""
    table = open_dump(rank.folder).part().tensors()
    return {
        (unnumbered(entry), slot): (table.dtype[i], table.shape[i], float(table.max[i]), float(table.min[i]))
        for i, (entry, slot) in enumerate(zip(table.entry, table.slot, strict=True))
        if not may_be_missing(setting, entry, {})
    }


def unnumbered(entry: str) -> str:
    """26.2.0 numbers parameter gradients; 8.1.1 and ours do not."""
    head, found, _ = entry.partition(".parameters_grad")
    return head + found
