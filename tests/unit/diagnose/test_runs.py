from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from unit.diagnose.comparing import agrees, compare, edited, first, told
from unit.diagnose.dumps import Recording, Value, drawn
from unit.diagnose.training import Plan, train

from msprobe.diagnose import compare_runs
from msprobe.diagnose.runs import parts_in_common
from msprobe.errors import MsprobeError
from msprobe.messages import said
from msprobe.report.phrases import headline

TANH = "blocks.1.tanh"


def off(factor: float) -> Any:
    return lambda array: array * np.float32(factor)


@pytest.mark.parametrize(
    "more",
    [
        {},
        {"digests": False},
        {"values": True},
        {"ours": False},
        {"level": "L0"},
        {"level": "L1"},
        {"tied": True},
        {"recompute": True},
        {"steps": 3},
        {"dtype": "bfloat16"},
        {"wrapper": "blocks.1"},
        {"states": {}},
    ],
    ids=str,
)
def test_a_run_agrees_with_itself(tmp_path: Path, more: dict[str, Any]) -> None:
    verdict = compare(tmp_path, Plan(**more), Plan(**more))
    assert agrees(verdict)
    assert verdict.summary["same"] == verdict.summary["pairs"] > 10
    assert verdict.summary["largest_effect"] == 0.0
    assert verdict.notes == ()


@pytest.mark.parametrize(
    "more",
    [{"digests": False}, {"values": True}, {"ours": False}, {"level": "L1"}, {"noise": 2e-7}, {"recompute": True}],
    ids=str,
)
@pytest.mark.parametrize("turned", [False, True])
def test_healthy_runs_that_were_recorded_otherwise_agree(tmp_path: Path, more: dict[str, Any], turned: bool) -> None:
    plans = [Plan(**more), Plan()]
    assert agrees(compare(tmp_path, *(plans[::-1] if turned else plans)))


class TestRanks:
    def test_the_first_rank_at_fault_goes_first(self, tmp_path: Path) -> None:
        plans = [Plan(), Plan(results={TANH: off(1.01)})]
        verdict = compare(tmp_path, plans, [Plan(), Plan()])
        found = first(verdict)
        assert (found.kind, found.entry, found.rank) == ("computation", "Torch.tanh.1.forward", 1)
        assert verdict.summary["ranks"] == 2
        # What the other rank receives of it comes later, and is never a calculation of its own.
        assert {(one.kind, one.rank) for one in verdict.findings[1:]} <= {("collective", 0)}

    def test_what_happens_earlier_on_another_rank_goes_first(self, tmp_path: Path) -> None:
        plans = [Plan(results={"blocks.1.linear": off(1.01)}), Plan(results={"blocks.0.tanh": off(1.01)})]
        verdict = compare(tmp_path, plans, [Plan(), Plan()])
        assert [(one.entry, one.rank) for one in verdict.findings[:2]] == [
            ("Torch.tanh.0.forward", 1),
            ("Functional.linear.1.forward", 0),
        ]

    def test_the_result_of_a_communication(self, tmp_path: Path) -> None:
        plans = [Plan(), Plan(results={"reduce head.bias": off(1.1)})]
        verdict = compare(tmp_path, plans, [Plan(), Plan()])
        found = first(verdict)
        assert told(verdict) == [("collective", "Distributed.all_reduce.1.forward")]
        assert found.rank == 1

    def test_a_communication_that_one_side_leaves_out(self, tmp_path: Path) -> None:
        plan = Plan(left_out=frozenset(["reduce head.bias"]))
        verdict = compare(tmp_path, [plan, plan], [Plan(), Plan()])
        assert {one.kind for one in verdict.findings} == {"structure"}
        assert first(verdict).entry == "Distributed.all_reduce.1.forward"
        assert first(verdict).ranks == (0, 1)

    def test_of_one_side_alone_are_told(self, tmp_path: Path) -> None:
        train(tmp_path / "one", Plan(), Plan())
        train(tmp_path / "other", Plan(), Plan())
        shutil.rmtree(tmp_path / "other" / "step0" / "rank1")
        verdict = compare_runs(tmp_path / "one", tmp_path / "other")
        assert verdict.status == "agree"
        assert verdict.notes == (said("ranks-on-one-side", "1", "candidate", ""),)
        assert [(one.kind, one.harmless) for one in verdict.findings] == [("step_count", True)]


class TestSteps:
    def test_are_taken_in_order_and_the_first_that_diverges_ends(self, tmp_path: Path) -> None:
        change = edited(lambda data: None)

        def second(data: dict[str, Any]) -> None:
            leaf = data["Torch.tanh.1.forward"]["output"][0]
            seen.append(leaf["Norm"])
            if len(seen) == 2:
                leaf |= {"Norm": leaf["Norm"] * 1.5, "Max": 7.0, "digest": "xxh3:0123456789abcdef"}

        seen: list[float] = []
        plan = Plan(steps=3, edit=edited(second), level="L1")
        verdict = compare(tmp_path, plan, Plan(steps=3, edit=change, level="L1"))
        assert verdict.summary["steps_in_common"] == 3
        assert verdict.status in ("harmless", "diverged")
        assert {one.step for one in verdict.findings} == {1}

    def test_an_effect_may_show_in_the_step_after(self, tmp_path: Path) -> None:
        """The optimizer was not recorded: what differs in its results is seen in the next forward pass."""

        def gone(data: dict[str, Any]) -> None:
            del data["Optimizer.SGD.0.forward"]

        def norm(rec: Recording, x: Value) -> Value:
            rec.call("Tensor.uniform", [x], x.of(drawn("other", 3)))
            return x

        plan = Plan(steps=2, before={TANH: norm}, updated={"head.bias": off(1.1)}, edit=edited(gone))
        verdict = compare(tmp_path, plan, Plan(steps=2, edit=edited(gone)))
        assert {one.step for one in verdict.findings} == {1}
        assert {one.kind for one in verdict.findings} == {"weights"}

    def test_of_one_side_alone_are_told(self, tmp_path: Path) -> None:
        verdict = compare(tmp_path, Plan(steps=3), Plan(steps=2))
        assert (verdict.status, verdict.exit_code) == ("agree", 2)
        (found,) = verdict.findings
        assert (found.kind, found.message, found.harmless) == (
            "step_count",
            said("steps-on-one-side", "step", "2 is", "candidate"),
            True,
        )
        assert headline(verdict) == f"AGREE in {said('share-of-steps', 2, 3)}: {said('nothing-differs', 'recorded')}"

    def test_none_in_common(self, tmp_path: Path) -> None:
        verdict = compare(tmp_path, Plan(steps=2, first_step=5), Plan(steps=2))
        assert (verdict.status, verdict.exit_code) == ("incomparable", 2)
        assert verdict.notes[-1] == said("no-step-in-common")

    def test_a_single_one_answers_to_a_single_one(self, tmp_path: Path) -> None:
        def same(data: dict[str, Any]) -> Any:
            return json.loads((tmp_path / "same" / "step0" / "rank" / "dump.json").read_text())["data"]

        train(tmp_path / "same")
        verdict = compare(tmp_path, Plan(first_step=7, edit=same))
        assert (verdict.status, verdict.findings) == ("agree", ())
        assert verdict.notes == (said("steps-renumbered", "7", "0"),)


def test_no_call_in_common(tmp_path: Path) -> None:
    for name, api in (("one", "Torch.sin"), ("other", "Torch.cos")):
        rec = Recording()
        rec.call(api, [Value(drawn("x", 3))], Value(drawn(api, 3)))
        rec.write(tmp_path / name / "step0" / "rank")
    verdict = compare_runs(tmp_path / "one", tmp_path / "other")
    assert (verdict.status, verdict.exit_code) == ("incomparable", 2)
    assert verdict.notes == (said("no-call-in-common"),)


def test_an_empty_step(tmp_path: Path) -> None:
    Recording().write(tmp_path / "one" / "step0" / "rank")
    verdict = compare_runs(train(tmp_path / "other"), tmp_path / "one")
    assert verdict.status == "incomparable"


def test_a_dump_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(MsprobeError, match="nowhere"):
        compare_runs(train(tmp_path / "one"), tmp_path / "nowhere")


def test_an_interrupted_dump_is_compared_as_far_as_it_goes(tmp_path: Path) -> None:
    one, other = train(tmp_path / "one", Plan(results={TANH: off(1.01)})), train(tmp_path / "other")
    file = one / "step0" / "rank" / "dump.json"
    whole = json.loads(file.read_text())
    whole["data"] = dict([*whole["data"].items()][:20])
    whole["msprobe"]["complete"] = False
    file.write_text(json.dumps(whole))
    verdict = compare_runs(one, other)
    assert first(verdict).entry == "Torch.tanh.1.forward"
    assert verdict.notes == (said("interrupted-in-step", "candidate", "0"),)


def interrupt(folder: Path, kept: int) -> int:
    """Leave so many records of a dump, as if it had been killed there; returns how many there were."""
    file = folder / "step0" / "rank" / "dump.json"
    whole = json.loads(file.read_text())
    count = len(whole["data"])
    whole["data"] = dict([*whole["data"].items()][:kept])
    whole["msprobe"]["complete"] = False
    file.write_text(json.dumps(whole))
    return count


@pytest.mark.parametrize("turned", [False, True])
def test_an_interrupted_healthy_dump_agrees_as_far_as_it_goes(tmp_path: Path, turned: bool) -> None:
    """Wherever it ends: between modules, inside of one, in the backward pass."""
    one, other = train(tmp_path / "one"), train(tmp_path / "other")
    side = "reference" if turned else "candidate"
    for kept in range(42, 0, -1):
        count = interrupt(one, kept)
        verdict = compare_runs(*((other, one) if turned else (one, other)))
        assert (verdict.status, verdict.summary["interrupted"]) == ("agree", [side]), (kept, told(verdict))
        # What comes after the end is no call of one side alone.
        assert len(verdict.notes) == 1, (kept, verdict.notes)
        assert verdict.summary["pairs"] == kept
    assert count == 2
    interrupt(one, 1)
    text = said("agree-as-far", "AGREE", f"{said('records-compared-as', 1, 43, f'the {side}')}was interrupted")
    assert headline(compare_runs(*((other, one) if turned else (one, other)))) == text


def test_two_interrupted_dumps_agree_as_far_as_both_go(tmp_path: Path) -> None:
    folders = [train(tmp_path / "one"), train(tmp_path / "other")]
    for kept, folder in zip((15, 20), folders, strict=True):
        interrupt(folder, kept)
    verdict = compare_runs(*folders)
    assert verdict.summary["interrupted"] == ["candidate", "reference"]
    both = "the candidate and the reference"
    assert said("records-compared-as", 15, 20, both) in headline(verdict)


def test_what_parts_before_an_interruption_parts(tmp_path: Path) -> None:
    plan = Plan(results={"blocks.1.linear": lambda array: array * np.float32(1.1)})
    one, other = train(tmp_path / "one", plan), train(tmp_path / "other")
    interrupt(one, 15)
    assert told(compare_runs(one, other)) == [("computation", "Functional.linear.1.forward")]


def test_without_construct_json_calls_are_compared_as_one_row(tmp_path: Path) -> None:
    one, other = train(tmp_path / "one"), train(tmp_path / "other")
    (one / "step0" / "rank" / "construct.json").unlink()
    for pair in ((one, other), (other, one)):
        verdict = compare_runs(*pair)
        assert (verdict.status, verdict.summary["candidate_only"], verdict.summary["reference_only"]) == ("agree", 0, 0)
        assert "has no construct.json" in verdict.notes[0]


def test_progress_gets_each_rank_of_each_step(tmp_path: Path) -> None:
    places: list[str] = []
    compare(tmp_path, [Plan(steps=2), Plan(steps=2)], [Plan(steps=2), Plan(steps=2)], progress=places.append)
    assert places == [said("job-of-jobs", f"step {n // 2}, rank {n % 2}", n + 1, 4) for n in range(4)]


def test_parts_in_common(tmp_path: Path) -> None:
    one, other = train(tmp_path / "one", Plan(steps=2)), train(tmp_path / "other", Plan(steps=3))
    pairs = parts_in_common(one, other)
    assert [(left.steps, right.steps) for left, right in pairs] == [([0], [0]), ([1], [1])]
    assert [left.ranks() for left, _ in pairs] == [["rank"], ["rank"]]
