"""What could not be compared is told, and then the verdict is no plain AGREE."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from support.coded_texts import mentions, names_of
from unit.diagnose.dumps import Recording, Value, drawn
from unit.diagnose.training import Plan, train

from msprobe.cli import main
from msprobe.diagnose import compare_runs
from msprobe.diagnose.findings import Verdict
from msprobe.messages import arguments_of, said
from msprobe.report.phrases import headline


def pair(folder: Path, *plans: Plan) -> tuple[Path, Path]:
    """Two recordings of one training, with a plan for each rank."""
    return train(folder / "one", *plans), train(folder / "other", *plans)


def renew(folder: Path, step: int, plan: Plan, rank: str = "rank") -> None:
    """Record one step anew, in another way."""
    again = train(folder.parent / f"again {folder.name} {step}", plan)
    shutil.rmtree(folder / f"step{step}" / rank)
    shutil.copytree(again / f"step{step}" / "rank", folder / f"step{step}" / rank)


def write(recording: Recording, folder: Path) -> None:
    """Put a recording in the place of another; an empty one is a step in which nothing was recorded."""
    shutil.rmtree(folder)
    recording.write(folder)


def status(verdict: Verdict, folder: Path, capsys: pytest.CaptureFixture[str], *more: str) -> int:
    """The exit status of the command, whose first line is the headline."""
    found = main(["compare", str(folder / "one"), str(folder / "other"), *more])
    assert capsys.readouterr().out.splitlines()[0] == headline(verdict)
    return found


class TestSteps:
    def test_a_level_that_changes_in_the_middle(self, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        """The steps after it are compared all the same."""
        one, other = pair(tmp_path, Plan(steps=4))
        renew(one, 1, Plan(steps=4, level="L0"))
        for call in json.loads((one / "step1" / "rank" / "dump.json").read_text())["data"]:
            assert not call.startswith("Torch.")
        renew(other, 1, Plan(steps=4, level="L1"))
        verdict = compare_runs(one, other)
        assert (verdict.status, verdict.exit_code) == ("agree", 2)
        assert headline(verdict).startswith("AGREE in ")
        assert said("share-comparable", "3 of 4 steps") in headline(verdict)
        assert names_of(verdict.notes[:1]) == ["not-compared"]
        assert verdict.summary["steps_compared"] == 3
        assert verdict.summary["not_compared"] == {"steps": 1, "parts": 1, "of_parts": 4}
        assert status(verdict, tmp_path, capsys) == 2
        assert status(verdict, tmp_path, capsys, "--fail-on", "never") == 0

    def test_a_difference_after_a_step_that_cannot_be_compared_is_found(self, tmp_path: Path) -> None:
        one, other = pair(tmp_path, Plan(steps=4))
        renew(one, 1, Plan(steps=4, level="L0"))
        renew(other, 1, Plan(steps=4, level="L1"))
        renew(one, 3, Plan(steps=4, arguments={"blocks.1.mul": {1: 0.25}}))
        verdict = compare_runs(one, other)
        assert (verdict.status, verdict.findings[0].step) == ("diverged", 3)
        assert names_of(verdict.notes[:1]) == ["not-compared"]

    def test_a_level_by_which_the_rest_can_be_compared(self, tmp_path: Path) -> None:
        one, other = pair(tmp_path, Plan(steps=3))
        renew(one, 1, Plan(steps=3, level="L1"))
        verdict = compare_runs(one, other)
        assert (verdict.status, verdict.exit_code) == ("agree", 0)
        assert headline(verdict).startswith("AGREE in ")
        assert said("share-of-calls") in headline(verdict)
        assert any(note.startswith("step 1: levels differ, L1 in the candidate") for note in verdict.notes)

    def test_a_step_without_any_pair(self, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        pair(tmp_path, Plan(steps=3))
        for name, api in (("one", "Torch.sin"), ("other", "Torch.cos")):
            rec = Recording()
            rec.call(api, [Value(drawn("x", 3))], Value(drawn(api, 3)))
            write(rec, tmp_path / name / "step1" / "rank")
        verdict = compare_runs(tmp_path / "one", tmp_path / "other")
        assert headline(verdict).startswith("AGREE in ")
        assert said("share-comparable", "2 of 3 steps") in headline(verdict)
        assert said("not-compared", "step 1 is", said("no-calls-match")) in verdict.notes
        assert status(verdict, tmp_path, capsys) == 2

    def test_steps_in_which_nothing_was_recorded(self, tmp_path: Path) -> None:
        one, other = pair(tmp_path, Plan(steps=12))
        for step in range(2, 10):
            for side in (one, other):
                write(Recording(), side / f"step{step}" / "rank")
        verdict = compare_runs(one, other)
        assert headline(verdict).startswith("AGREE in ")
        assert said("share-comparable", "4 of 12 steps") in headline(verdict)
        assert verdict.notes == (
            said("not-compared", "step 2; step 3; step 4; step 5; step 6 and 3 more are", said("nothing-recorded")),
        )

    def test_a_rank_without_any_pair(self, tmp_path: Path) -> None:
        one, other = pair(tmp_path, Plan(steps=2), Plan(steps=2))
        for side in (one, other):
            write(Recording(), side / "step1" / "rank1")
        verdict = compare_runs(one, other)
        assert headline(verdict).startswith("AGREE in ")
        assert said("share-comparable", said("some-ranks-of-steps", 3, 4)) in headline(verdict)
        assert said("not-compared", "step 1, rank 1 is", said("nothing-recorded")) in verdict.notes

    def test_what_is_harmless_says_its_share(self, tmp_path: Path) -> None:
        one, other = pair(tmp_path, Plan(steps=3))
        renew(one, 0, Plan(steps=3, arguments={"blocks.1.dropout": {1: 0.1000001}}))
        for side in (one, other):
            write(Recording(), side / "step2" / "rank")
        verdict = compare_runs(one, other)
        assert (verdict.status, verdict.exit_code) == ("harmless", 2)
        assert headline(verdict).startswith("HARMLESS in ")
        assert said("share-comparable", "2 of 3 steps") in headline(verdict)


class TestRanks:
    def test_without_partner_are_the_share(self, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        one, _ = pair(tmp_path, *[Plan(steps=2)] * 3)
        for step in (0, 1):
            shutil.rmtree(one / f"step{step}" / "rank1")
        verdict = compare_runs(one, tmp_path / "other")
        assert headline(verdict).startswith("AGREE in ")
        assert said("share-of-ranks", 2, 3) in headline(verdict)
        assert verdict.notes == (said("ranks-on-one-side", "1", "reference", ""),)
        assert status(verdict, tmp_path, capsys) == 2
        assert status(verdict, tmp_path, capsys, "--fail-on", "never") == 0
        assert status(verdict, tmp_path, capsys, "--fail-on", "step_count") == 1

    def test_of_one_step_alone(self, tmp_path: Path) -> None:
        one, other = pair(tmp_path, *[Plan(steps=3)] * 2)
        shutil.rmtree(one / "step2" / "rank0")
        verdict = compare_runs(one, other)
        assert headline(verdict).startswith("AGREE in ")
        assert said("share-of-ranks-in-steps") in headline(verdict)
        assert verdict.notes == (said("ranks-on-one-side", "0", "reference", " in step 2"),)
        assert [(found.kind, found.step) for found in verdict.findings] == [("step_count", 2)]

    def test_a_step_in_which_no_rank_answers_is_no_other_layout(self, tmp_path: Path) -> None:
        """Rank 0 of one side and rank 1 of the other are left: these are no twins."""
        one, other = pair(tmp_path, *[Plan(steps=3)] * 2)
        shutil.rmtree(one / "step1" / "rank1")
        shutil.rmtree(other / "step1" / "rank0")
        verdict = compare_runs(one, other)
        assert (verdict.status, verdict.exit_code) == ("agree", 2)
        assert headline(verdict).startswith("AGREE in ")
        assert said("share-comparable", "2 of 3 steps") in headline(verdict)
        assert said("not-compared", "step 1 is", said("no-rank-in-common")) in verdict.notes


class TestTensorFiles:
    def files(self, folder: Path, *names: str) -> list[Path]:
        found = [path for name in names for path in sorted(folder.glob(f"*/*/dump_tensor_data/{name}*"))]
        assert found
        return found

    @pytest.mark.parametrize("digests", [True, False])
    def test_broken_and_missing_ones_are_told(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str], digests: bool
    ) -> None:
        plan = {"steps": 2, "values": True, "digests": digests}
        one = train(tmp_path / "one", Plan(**plan, noise=2e-7))
        train(tmp_path / "other", Plan(**plan))
        whole = compare_runs(one, tmp_path / "other")
        assert headline(whole).startswith("AGREE: ")
        missing, broken = self.files(one, "Torch.tanh.0.forward.output.0")[:2]
        missing.unlink()
        broken.write_bytes(broken.read_bytes()[:-7])
        verdict = compare_runs(one, tmp_path / "other")
        assert (verdict.status, verdict.exit_code) == ("agree", 2)
        assert headline(verdict).startswith(f"AGREE{said('share-read')}")
        assert verdict.summary["unread_files"] == 2
        (note,) = (note for note in verdict.notes if "tensor files" in note)
        assert mentions(note, "tensor-files-unread", side="candidate", files=said("tensor-files", 2))
        assert arguments_of(note)["why"].startswith(f"step 0: {missing.name}; step 1: {broken.name}")
        assert status(verdict, tmp_path, capsys) == 2

    def test_that_nothing_needs_are_not_missed(self, tmp_path: Path) -> None:
        """Digests say it all where they agree."""
        one, other = pair(tmp_path, Plan(values=True))
        shutil.rmtree(one / "step0" / "rank" / "dump_tensor_data")
        verdict = compare_runs(one, other)
        assert headline(verdict).startswith("AGREE: ")
        assert verdict.exit_code == 0

    def test_of_an_interrupted_dump_may_have_been_on_their_way(self, tmp_path: Path) -> None:
        one, other = pair(tmp_path, Plan(values=True, digests=False))
        file = one / "step0" / "rank" / "dump.json"
        content: dict[str, Any] = json.loads(file.read_text())
        content["msprobe"]["complete"] = False
        file.write_text(json.dumps(content))
        self.files(one, "Torch.tanh.1.forward.output.0")[0].unlink()
        verdict = compare_runs(one, other)
        assert headline(verdict).startswith(said("agree-as-far", "AGREE", ""))
        assert "unread_files" not in verdict.summary


def test_a_second_healthy_run_that_lacks_steps_is_told(tmp_path: Path) -> None:
    one, other = pair(tmp_path, Plan(steps=3))
    healthy = train(tmp_path / "healthy", Plan(noise=2e-7))
    verdict = compare_runs(one, other, noise=healthy)
    assert verdict.notes == (said("healthy-run-lacks-ranks", "2", "3"),)
