"""Between layouts single calls are not compared; another argument of theirs stands in both dumps and is told."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.coded_texts import names_of
from unit.diagnose.dumps import Recording, Value, drawn

from msprobe.diagnose import compare_runs
from msprobe.messages import said


def write(folder: Path, ranks: int, arguments: dict[str, Any]) -> Path:
    """An activation of a batch that is divided among the ranks."""
    whole = drawn("x", 8, 4)
    for rank, x in enumerate(np.split(whole, ranks)):
        rec = Recording()
        with rec.module("act", "GELU", [Value(x)]) as end:
            y = Value(np.tanh(x), True)
            rec.call("Functional.gelu", [Value(x)], y, keywords=arguments)
            rec.call("Tensor.view", [y, [len(x) * 4]], y.of(y.array.reshape(-1)))
            end(y)
        rec.write(folder / "step0" / (f"rank{rank}" if ranks > 1 else "rank"))
    return folder


@pytest.mark.parametrize(("here", "told"), [("tanh", True), ("none", False)])
def test_another_argument_of_a_call_is_told_in_a_note(tmp_path: Path, here: str, told: bool) -> None:
    arguments = {"approximate": here, "batch": 8, "inplace": here == "tanh"}
    one = write(tmp_path / "one", 2, arguments)
    verdict = compare_runs(one, write(tmp_path / "other", 1, {"approximate": "none", "batch": 4, "inplace": False}))
    assert verdict.status == "agree"
    notes = [note for note in verdict.notes if names_of([note]) == ["arguments-not-compared"]]
    differs = said("argument-differs-in-layout", "Functional.gelu", "act", "input.approximate", '"tanh"', '"none"')
    assert notes == ([said("arguments-not-compared", differs, "")] if told else [])
