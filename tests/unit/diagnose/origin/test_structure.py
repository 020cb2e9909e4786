from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from support.coded_texts import names_of, pieces_of
from unit.diagnose.comparing import agrees, first, told
from unit.diagnose.dumps import Recording, Value
from unit.diagnose.training import Plan, train

from msprobe.diagnose import compare_runs
from msprobe.diagnose.findings import Verdict
from msprobe.messages import said


def structure(data: dict[str, Any]) -> dict[str, Any]:
    """The records as task structure writes them: without numbers."""
    text = json.dumps(data)
    found: dict[str, Any] = json.loads(text, object_hook=_without_numbers)
    return found


def _without_numbers(leaf: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in leaf.items() if key not in ("Max", "Min", "Mean", "Norm", "digest")}


def compare(folder: Path, *plans: Plan, both: bool = True) -> Verdict:
    """The verdict of a candidate and a reference; ``both``: neither has values, else the candidate alone has none."""
    folders = []
    for number, plan in enumerate(plans):
        bare = both or number == 0
        path = train(folder / str(number), replace(plan, edit=structure) if bare else plan)
        if bare:
            for file in path.glob("*/*/dump.json"):
                file.write_text(json.dumps({**json.loads(file.read_text()), "task": "structure"}))
        folders.append(path)
    return compare_runs(*folders)


def calling(rec: Recording, x: Value) -> Value:
    """Two calls that the other side does not make."""
    rec.call("Torch.abs", [x], x)
    rec.call("Tensor.sqrt", [x], x)
    return x


@pytest.mark.parametrize("both", [True, False])
def test_the_same_calls_agree_in_structure(tmp_path: Path, both: bool) -> None:
    verdict = compare(tmp_path, Plan(results={"blocks.1.tanh": lambda x: x * 2}), Plan(), both=both)
    assert (verdict.status, verdict.findings) == ("agree", ())
    assert verdict.summary["values_recorded"] is False
    assert verdict.notes == (said("structure-only"),)


@pytest.mark.parametrize("candidate", [True, False])
@pytest.mark.parametrize("both", [True, False])
def test_calls_of_one_side_are_a_finding(tmp_path: Path, candidate: bool, both: bool) -> None:
    plans = [Plan(before={"blocks.1.tanh": calling}), Plan()]
    verdict = compare(tmp_path, *(plans if candidate else plans[::-1]), both=both)
    found = first(verdict)
    assert told(verdict) == [("structure", "Torch.abs.0.forward")]
    assert found.evidence["calls"] == ["Torch.abs.0.forward", "Tensor.sqrt.0.forward"]
    assert found.name == ("extra-calls" if candidate else "missing-calls")
    assert "changes-not-recorded" in pieces_of(found.message)


def test_rows_in_two_places_are_two_findings(tmp_path: Path) -> None:
    verdict = compare(tmp_path, Plan(before={"blocks.0.tanh": calling, "blocks.1.tanh": calling}), Plan())
    assert told(verdict) == [("structure", "Torch.abs.0.forward"), ("structure", "Torch.abs.1.forward")]


def test_a_module_of_one_side_is_told_once(tmp_path: Path) -> None:
    verdict = compare(tmp_path, Plan(blocks=3), Plan())
    # Its parameters are in the optimizer, too.
    assert [finding.kind for finding in verdict.findings] == ["structure", "optimizer"]
    assert "Module.blocks." in str(first(verdict).entry)


def test_another_argument_is_a_finding(tmp_path: Path) -> None:
    verdict = compare(tmp_path, Plan(arguments={"blocks.1.dropout": {1: 0.2}}), Plan())
    assert told(verdict) == [("argument", "Functional.dropout.1.forward")]
    first(verdict)


def test_calls_that_compute_nothing_are_none(tmp_path: Path) -> None:
    def detach(rec: Recording, x: Value) -> Value:
        rec.call("Tensor.contiguous", [x], x)
        return x

    assert compare(tmp_path, Plan(before={"blocks.1.tanh": detach}), Plan()).status == "agree"


def test_with_values_such_calls_are_no_finding(tmp_path: Path) -> None:
    one, other = train(tmp_path / "a", Plan(before={"blocks.1.tanh": calling})), train(tmp_path / "b", Plan())
    verdict = compare_runs(one, other)
    assert agrees(verdict)
    assert names_of(verdict.notes[:1]) == ["extra-calls-without-effect"]


@pytest.mark.parametrize("wrapped", ["candidate", "reference"])
@pytest.mark.parametrize("level", ["mix", "L0"])
def test_a_module_around_what_both_do_is_no_difference(tmp_path: Path, wrapped: str, level: str) -> None:
    around, bare = Plan(called=lambda name: f"model.{name}", around="model", level=level), Plan(level=level)
    assert compare(tmp_path, *((around, bare) if wrapped == "candidate" else (bare, around))).status == "agree"


def test_what_a_module_around_does_itself_is_told(tmp_path: Path) -> None:
    around = Plan(called=lambda name: f"model.{name}", around="model", before={"head.linear": calling})
    found = first(compare(tmp_path, around, Plan()))
    assert (found.kind, found.entry) == ("structure", "Torch.abs.0.forward")
    assert found.evidence["calls"] == ["Torch.abs.0.forward", "Tensor.sqrt.0.forward"]
