from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.coded_texts import mentions, names_of
from unit.diagnose.comparing import agrees, compare, edited, first, told
from unit.diagnose.training import WORDS, Plan, train

from msprobe.diagnose import compare_runs
from msprobe.messages import arguments_of, code_of, said
from msprobe.report.phrases import headline

LOSS = "Functional.mse_loss.0.forward"
ERROR = "RuntimeError: Expected target size [4, 97], got [4, 32]"


def raising(goes_on: bool) -> Callable[[Any], Any]:
    """The loss raises; nothing comes after it, or the program catches the error."""

    def change(data: dict[str, Any]) -> None:
        data[LOSS] |= {"error": ERROR, "output": [None]}
        if not goes_on:
            names = list(data)
            for name in names[names.index(LOSS) + 1 :]:
                del data[name]

    return edited(change)


def test_the_call_that_ended_the_candidate_by_an_error_is_told(tmp_path: Path) -> None:
    verdict = compare(tmp_path, Plan(edit=raising(goes_on=False)))
    found = first(verdict)
    assert (found.kind, found.entry, verdict.exit_code) == ("error", LOSS, 1), told(verdict)
    assert code_of(found.message)[1] == "call-raised-in-candidate"
    assert arguments_of(found.message)["call"] == LOSS
    assert arguments_of(found.message)["error"] == ERROR


def test_an_error_of_both_sides_or_one_that_is_caught_is_no_end(tmp_path: Path) -> None:
    for number, (one, other) in enumerate([(False, False), (True, True)]):
        verdict = compare(tmp_path / str(number), Plan(edit=raising(one)), Plan(edit=raising(other)))
        assert agrees(verdict), told(verdict)
    verdict = compare(tmp_path / "caught", Plan(edit=raising(goes_on=True)))
    assert "error" not in {finding.kind for finding in verdict.findings}


@pytest.mark.parametrize("turned", [False, True])
def test_a_step_that_holds_several_because_step_was_left_out(tmp_path: Path, turned: bool) -> None:
    def several(data: dict[str, Any]) -> None:
        for number in (1, 2):
            data[f"Optimizer.SGD.{number}.forward"] = data["Optimizer.SGD.0.forward"]

    plans = [Plan(edit=edited(several)), Plan(steps=3)]
    verdict = compare(tmp_path, *(plans[::-1] if turned else plans))
    found = next(finding for finding in verdict.findings if not finding.harmless)
    side, other = ("reference", "candidate") if turned else ("candidate", "reference")
    assert (verdict.status, found.kind) == ("diverged", "step_count"), told(verdict)
    updates = {"side": side, "updates": 3, "step": 0, "other_side": other, "other_updates": 1, "steps": 1}
    assert mentions(found.message, "step-left-out", **updates)


def test_several_optimizers_in_each_step_are_none_left_out(tmp_path: Path) -> None:
    def two(data: dict[str, Any]) -> None:
        data["Optimizer.SGD.1.forward"] = data["Optimizer.SGD.0.forward"]

    verdict = compare(tmp_path, Plan(edit=edited(two)), Plan(edit=edited(two), steps=3))
    assert verdict.status == "agree", told(verdict)


@pytest.mark.parametrize(("one", "other"), [("L0", "L1"), ("L1", "L0")])
def test_levels_that_record_other_calls_cannot_be_compared(tmp_path: Path, one: str, other: str) -> None:
    verdict = compare(tmp_path, Plan(level=one), Plan(level=other))
    assert (verdict.status, verdict.exit_code) == ("incomparable", 2)
    assert names_of(verdict.notes[:1]) == ["levels-not-comparable"]
    assert said("no-call-in-common") not in verdict.notes


def test_operators_are_not_compared_with_calls(tmp_path: Path) -> None:
    dumps = train(tmp_path / "a", Plan(level="L2")), train(tmp_path / "b", Plan())
    assert compare_runs(*dumps).status == "incomparable"
    assert compare_runs(dumps[0], dumps[0]).status == "agree"


def test_levels_of_which_one_holds_the_other_are_compared_with_a_note(tmp_path: Path) -> None:
    verdict = compare(tmp_path, Plan(), Plan(level="L1"))
    assert verdict.status == "agree"
    assert any(mentions(note, "levels-differ", candidate="mix", reference="L1") for note in verdict.notes)


def test_two_models_are_asked_about(tmp_path: Path) -> None:
    others = {"loss": "Functional.l1_loss", "embedding": "Functional.one_hot", "head.linear": "Torch.matmul"}
    for block in range(2):
        others |= {f"blocks.{block}.{one}": f"Torch.{one}_other" for one in ("linear", "tanh", "dropout", "mul", "add")}
    verdict = compare(tmp_path, Plan(renamed=others, level="L1"), Plan(level="L1"))
    assert "hardly-any-call-matches" in names_of(verdict.notes), verdict.notes
    assert (verdict.status, verdict.exit_code) == ("agree", 2)
    other = Plan(renamed=others, level="L1", data=lambda tokens: (tokens + 1) % WORDS)
    verdict = compare(tmp_path / "apart", other, Plan(level="L1"))
    assert (verdict.status, verdict.exit_code) == ("incomparable", 2), told(verdict)
    assert mentions(headline(verdict), "hardly-any-call-matches")
    assert not any("hardly" in note for note in compare(tmp_path / "same", Plan(level="L1"), Plan(level="L1")).notes)


def test_modules_alone_are_compared_with_the_modules_of_a_recording_of_all_calls(tmp_path: Path) -> None:
    off = Plan(level="L0", results={"blocks.1.linear": lambda array: array * np.float32(1.1)})
    verdict = compare(tmp_path, off, Plan())
    assert first(verdict).entry == "Module.blocks.1.fc.Linear.forward.0", told(verdict)
    assert not any(finding.kind == "structure" for finding in verdict.findings)
