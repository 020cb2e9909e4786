from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from unit.diagnose.comparing import agrees, compare, edited, first, told
from unit.diagnose.dumps import Recording, Value
from unit.diagnose.training import Plan, train

from msprobe.diagnose import compare_runs
from msprobe.diagnose.findings import Verdict
from msprobe.messages import said

STEP = "Optimizer.SGD.0.forward"


def unrecorded(data: dict[str, Any]) -> None:
    """The step is taken, after stop()."""
    del data[STEP]


def no_step(**more: Any) -> Plan:
    """A training that takes no step."""
    return Plan(settings={"lr": 0.0}, edit=edited(unrecorded), **more)


@pytest.mark.parametrize("more", [{}, {"digests": False}, {"level": "L0"}, {"level": "L1"}])
@pytest.mark.parametrize("side", ["candidate", "reference"])
@pytest.mark.parametrize("steps", [1, 2])
def test_a_step_of_one_side_alone_is_a_finding(tmp_path: Path, more: dict[str, Any], side: str, steps: int) -> None:
    plans = [Plan(steps=steps, **more), no_step(steps=steps, **more)]
    verdict = compare(tmp_path, *(plans if side == "candidate" else plans[::-1]))
    found = first(verdict)
    assert told(verdict)[0] == ("optimizer", STEP)
    assert (found.step, found.direction, found.evidence["only_in"]) == (0, "optimizer", side)
    assert found.evidence["cause"] == "no_step"
    assert len(found.evidence["parameters"]) == 7
    assert (found.evidence.get("side") == "reference") is (side == "reference")
    assert said("and-more-parameters", '"embedding.weight", "head.weight"', "5") in found.message


def test_a_step_that_was_only_not_recorded_is_harmless(tmp_path: Path) -> None:
    """The weights of the next step tell; the last step is believed what the ones before showed."""
    verdict = compare(tmp_path, Plan(steps=3, edit=edited(unrecorded)), Plan(steps=3))
    found = first(verdict, "harmless")
    assert told(verdict) == [("optimizer", STEP)]
    assert (found.step, verdict.summary["steps_compared"], verdict.exit_code) == (0, 3, 0)


def test_neither_side_recorded_its_step(tmp_path: Path) -> None:
    plan = Plan(edit=edited(unrecorded))
    assert agrees(compare(tmp_path, plan, plan))


def test_a_step_written_by_hand_is_a_step(tmp_path: Path) -> None:
    def by_hand(rec: Recording, gradient: Value) -> Value:
        """What the by-hand optimizer does to one weight."""
        weight = next(iter(rec.data["Module.head.Linear.forward.0"]["parameters"].values()))
        rec.call("Tensor.sub_", [gradient], gradient)
        name = [*rec.data][-1]
        rec.data[name]["input_args"].insert(0, weight)
        return gradient

    verdict = compare(tmp_path, Plan(before={"step": by_hand}, edit=edited(unrecorded)), Plan())
    assert not blames_steps(verdict)


def without_backward(data: dict[str, Any]) -> None:
    """An evaluation."""
    for name in [*data]:
        if "backward" in name or "parameters_grad" in name:
            del data[name]
    data.pop(STEP, None)


@pytest.mark.parametrize(
    ("candidate", "reference"),
    [
        (Plan(edit=edited(without_backward)), Plan()),
        (Plan(edit=edited(unrecorded), level="L0"), Plan()),
        (Plan(edit=edited(unrecorded), ours=False), Plan()),
        (Plan(edit=edited(unrecorded)), Plan(ours=False)),
        (Plan(edit=edited(unrecorded)), Plan(values=True)),
    ],
    ids=["an evaluation", "another level", "of another tool", "against another tool", "another task"],
)
def test_what_one_side_may_not_have_seen_is_no_finding(tmp_path: Path, candidate: Plan, reference: Plan) -> None:
    assert not blames_steps(compare(tmp_path, candidate, reference))


def test_nothing_is_said_of_the_step_after_an_interruption(tmp_path: Path) -> None:
    one, other = train(tmp_path / "one", Plan(edit=edited(unrecorded))), train(tmp_path / "other", Plan())
    assert blames_steps(compare_runs(one, other))
    file = one / "step0" / "rank" / "dump.json"
    content = json.loads(file.read_text())
    content["msprobe"]["complete"] = False
    file.write_text(json.dumps(content))
    assert not blames_steps(compare_runs(one, other))


def blames_steps(verdict: Verdict) -> bool:
    return any(finding.evidence.get("cause") == "no_step" for finding in verdict.findings)
