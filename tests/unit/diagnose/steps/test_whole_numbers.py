"""Whole numbers cast to a type that cannot hold them are told, where the dump proves it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from unit.diagnose.dumps import Recording, Value, rounded

from msprobe.diagnose import compare_runs
from msprobe.diagnose.check import check_run

Work = Callable[[Recording], None]


def positions(count: int, dtype: str, api: str = "Tensor.to", step: int = 1) -> Work:
    """Positions that are counted, get a dimension more, and are cast."""

    def work(recording: Recording) -> None:
        numbers = np.arange(0, count * step, step)
        counted = Value(numbers, dtype="int64")
        recording.call("Torch.arange", [count], counted)
        wide = Value(numbers[:, None], dtype="int64")
        recording.call("Tensor.unsqueeze", [counted, 1], wide)
        cast = Value(rounded(numbers[:, None].astype(np.float32), dtype), dtype=dtype)
        recording.call(api, [wide], cast)
        recording.call("Torch.cos", [cast], cast.of(np.cos(cast.array)))

    return work


def dump(folder: Path, work: Work) -> Path:
    recording = Recording()
    work(recording)
    return recording.write(folder, level="L1")


def found(folder: Path, work: Work) -> list[str]:
    """The entries that ``check`` tells of whole numbers."""
    verdict = check_run(dump(folder, work))
    return [one.entry or "" for one in verdict.findings if "whole numbers" in one.message]


@pytest.mark.parametrize(
    ("dtype", "count", "is_told"),
    [
        *(("bfloat16", 257, False), ("bfloat16", 258, True), ("bfloat16", 1001, True)),
        *(("float16", 2049, False), ("float16", 2050, True), ("float32", 4096, False)),
    ],
)
def test_positions_are_told_from_the_first_that_the_type_lacks(
    tmp_path: Path, dtype: str, count: int, is_told: bool
) -> None:
    # 1000, the largest of 1001 positions, is a number of bfloat16; 999 is none.
    assert found(tmp_path / "dump", positions(count, dtype)) == (["Tensor.to.0.forward"] if is_told else [])


@pytest.mark.parametrize("api", ["Tensor.bfloat16", "Tensor.type", "Tensor.__mul__"])
def test_whatever_call_casts_them(tmp_path: Path, api: str) -> None:
    assert found(tmp_path / "dump", positions(300, "bfloat16", api)) == [f"{api}.0.forward"]


def test_numbers_made_in_the_type_itself_are_told(tmp_path: Path) -> None:
    def work(recording: Recording) -> None:
        made = Value(rounded(np.arange(300, dtype=np.float32), "bfloat16"), dtype="bfloat16")
        recording.call("Torch.arange", [300], made)

    assert found(tmp_path / "dump", work) == ["Torch.arange.0.forward"]


def test_numbers_that_may_all_be_held_are_not_told(tmp_path: Path) -> None:
    """Lengths and masks: nobody counted them, and the largest came out as it was."""

    def work(recording: Recording) -> None:
        lengths = np.array([[512], [1024], [300]])
        cast = Value(rounded(lengths.astype(np.float32), "bfloat16"), dtype="bfloat16")
        recording.call("Tensor.to", [Value(lengths, dtype="int64")], cast)

    assert found(tmp_path / "dump", work) == []


def test_compare_tells_the_side_that_does_it_alone(tmp_path: Path) -> None:
    """Another type throughout is a setting of the run, and no finding; what it does to positions is one."""
    one, other = dump(tmp_path / "one", positions(300, "bfloat16")), dump(tmp_path / "other", positions(300, "float32"))
    for sides, name in (((one, other), "candidate"), ((other, one), "reference")):
        verdict = compare_runs(*sides)
        assert verdict.status == "diverged"
        told = [finding for finding in verdict.findings if finding.evidence.get("cause") == "rounded_numbers"]
        assert [(finding.kind, finding.entry) for finding in told] == [("dtype", "Tensor.to.0.forward")]
        assert (told[0].code, told[0].arguments["side"]) == ("D223", name)
        assert told[0].evidence["exact_up_to"] == 256.0
    assert compare_runs(one, dump(tmp_path / "same", positions(300, "bfloat16"))).status == "agree"
