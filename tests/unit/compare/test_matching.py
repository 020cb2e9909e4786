from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from support.hand_made import backward, call, write_part

from msprobe.compare.matching import DIFFERENT, FAMILY, SAME, agreement, match, match_records
from msprobe.compare.rows import Rows, _Collector
from msprobe.report.row_partners import records_as_verdict

LEAF = {
    "type": "torch.Tensor",
    "dtype": "torch.float32",
    "shape": [2],
    "Max": 1.0,
    "Min": 1.0,
    "Mean": 1.0,
    "Norm": 1.0,
}


def rows_of(records: dict[str, dict[str, object]]) -> Rows:
    collector = _Collector("dump.json")
    for name, record in records.items():
        collector.add(name, record)
    return collector.finish()


def calls(names: Sequence[str], **leaf: object) -> Rows:
    """A record with one input and one output for each name."""
    content = {**LEAF, **leaf}
    return rows_of({name: {"input_args": [content], "input_kwargs": {}, "output": [content]} for name in names})


def pairs(candidate: Rows, reference: Rows, partner: np.ndarray) -> dict[str, str]:  # type: ignore[type-arg]
    return {candidate.name[row]: reference.name[other] for row, other in enumerate(partner.tolist()) if other >= 0}


def test_rows_pair_by_name_in_any_order() -> None:
    ours, theirs = calls(["a", "b", "only"]), calls(["other", "b", "a"])
    found = match(ours, theirs)
    assert pairs(ours, theirs, found.partner) == {
        name: name for name in ("a.input.0", "a.output.0", "b.input.0", "b.output.0")
    }
    assert [theirs.name[row] for row in found.reference_only] == ["other.input.0", "other.output.0"]
    assert found.matched.tolist() == [True, True, True, True, False, False]


def test_equal_names_pair_in_their_order() -> None:
    twice = {"input_args": [LEAF], "input_kwargs": {"0": LEAF}, "output": []}
    found = match(rows_of({"f": twice}), rows_of({"f": twice}))
    assert found.partner.tolist() == [0, 1]


def test_agreement_of_types_and_shapes() -> None:
    cases = [
        ("torch.float32", "torch.float32", SAME),
        ("torch.bfloat16", "torch.float64", FAMILY),
        ("torch.int32", "torch.int64", DIFFERENT),
        ("torch.float32", "torch.int64", DIFFERENT),
        ("Float16", "BFloat16", FAMILY),
    ]
    for ours, theirs, wanted in cases:
        a, b = calls(["f"], dtype=ours), calls(["f"], dtype=theirs)
        assert agreement(a, b, match(a, b)).dtype.tolist() == [wanted, wanted], (ours, theirs)
    a, b = calls(["f"], dtype="Int32"), calls(["f"], dtype="torch.int64", shape=[3])
    found = agreement(a, b, match(a, b), cross_framework=True)
    assert found.dtype.tolist() == [SAME, SAME]
    assert not found.shape.any()
    assert not found.null.any()


def test_rows_of_records_that_answer_to_each_other_pair_by_their_place() -> None:
    ours, theirs = calls(["Torch.add.1.forward", "Torch.exp.0.forward"]), calls(["Torch.add.0.forward"])
    found = match_records(ours, theirs, {"Torch.add.1.forward": "Torch.add.0.forward", "Torch.exp.0.forward": "gone"})
    assert found.partner.tolist() == [0, 1, -1, -1]
    assert found.fuzzy.tolist() == [True, True, False, False]
    assert not match_records(ours, ours, {name: name for name in ours.entries}).fuzzy.any()


def test_sheets_of_two_dumps_pair_as_the_verdict(tmp_path: Path) -> None:
    """An extra call shifts nothing, and backward calls go the way of their forward call."""
    ours = ["Torch.add.0.forward", "Torch.mul.0.forward", "Torch.add.1.forward", "Torch.add.1.backward"]
    theirs = ["Torch.mul.0.forward", "Torch.add.0.forward", "Torch.add.0.backward"]
    parts = [
        write_part(tmp_path / name / "step0" / "rank", {one: backward() if "back" in one else call() for one in side})
        for name, side in (("own", ours), ("other", theirs))
    ]
    found = records_as_verdict(*parts)
    assert "Torch.add.0.forward" not in found
    assert found["Torch.add.1.forward"] == "Torch.add.0.forward"
    assert found["Torch.add.1.backward"] == "Torch.add.0.backward"
    assert found["Torch.mul.0.forward"] == "Torch.mul.0.forward"
