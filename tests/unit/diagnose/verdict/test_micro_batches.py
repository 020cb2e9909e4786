"""Runs that give a model the same batch in other micro-batches are told how to be compared."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from unit.diagnose.dumps import Recording, Value, drawn

from msprobe.diagnose import compare_runs
from msprobe.messages import said


def write(folder: Path, *shares: tuple[int, int]) -> Path:
    """A run whose model takes these rows of a batch of eight, one share after the other."""
    whole = drawn("x", 8, 4)
    rec = Recording()
    for begin, end_ in shares:
        x = whole[begin:end_]
        with rec.module("act", "Tanh", [Value(x)]) as end:
            y = Value(np.tanh(x), True)
            rec.call("Torch.tanh", [Value(x)], y)
            end(y)
    rec.write(folder / "step0" / "rank")
    return folder


@pytest.mark.parametrize(
    ("here", "there", "text"),
    [
        (
            [(0, 8)],
            [(0, 4), (4, 8)],
            said(
                "batch-split-differs",
                said("micro-batches-of-size", "1", "", "8"),
                said("micro-batches-of-size", "2", "es", "4"),
            ),
        ),
        ([(4, 8), (0, 4)], [(0, 4), (4, 8)], said("micro-batches-reordered", "2")),
        ([(0, 4), (4, 8)], [(0, 4), (4, 8)], ""),
        ([(0, 4), (0, 4)], [(0, 4), (4, 8)], ""),
        ([(0, 4)], [(0, 4), (4, 8)], ""),
    ],
)
def test_other_micro_batches_of_one_batch_are_told(
    tmp_path: Path, here: list[tuple[int, int]], there: list[tuple[int, int]], text: str
) -> None:
    dumps = write(tmp_path / "one", *here), write(tmp_path / "other", *there)
    told = [note for note in compare_runs(*dumps).notes if "micro-batch" in note]
    assert [note.partition(";")[0] for note in told] == ([text] if text else [])
    assert all("--layout" in note for note in told)
    if text:
        layout = tmp_path / "layout.yaml"
        layout.write_text("candidate: {mesh: {all: 1}}")
        assert compare_runs(*dumps, layout=layout).status == "agree"
