"""One run in lockstep names every wrong call, and nothing of a healthy training."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from support.coded_texts import names_of, raising
from support.command_line import call

import msprobe
from msprobe.errors import InvalidInputError
from msprobe.listeners import Changer, Changes, Result, Wants
from msprobe.lockstep import account_files
from msprobe.lockstep.comparing import has_verdict
from msprobe.lockstep.verdict import judge_lockstep
from msprobe.pytorch import PrecisionDebugger
from msprobe.view.opening import open_source

from .trainings import entries, in_lockstep, record, train

ALL = ("gate", "write", "gelu", "backward", "lr", "smooth")

SORTS: dict[str, dict[str, Any]] = {
    "plain": {},
    "several passes": {"passes": 2},
    "checkpoint": {"checkpointed": True},
    "bfloat16": {"dtype": torch.bfloat16},
    "autocast": {"autocast": True},
    "dropout": {"dropout": 0.3},
}


@pytest.fixture(autouse=True)
def _no_debugger_is_left() -> Any:
    yield
    PrecisionDebugger.reset()


@pytest.mark.parametrize(("sort", "level"), [*((sort, "mix") for sort in SORTS), ("several passes", "L1")])
def test_a_healthy_training_agrees_and_every_planted_bug_is_named_in_one_run(
    sort: str, level: str, tmp_path: Path
) -> None:
    reference = record(partial(train, **SORTS[sort]), tmp_path / "reference", level)

    healthy = in_lockstep(partial(train, **SORTS[sort]), reference, tmp_path / "healthy")

    assert healthy.status == "agree"
    assert not healthy.findings
    assert "results_replaced" not in healthy.summary["lockstep"]
    verdict = in_lockstep(partial(train, ALL, **SORTS[sort]), reference, tmp_path / "wrong")
    named = entries(verdict)
    assert verdict.status == "diverged"
    assert verdict.exit_code == 1
    assert {
        "Tensor.add_.0.forward",
        "Functional.gelu.0.forward",
        "Functional.gelu.1.forward",
        "Functional.cross_entropy.0.forward",
        "Function._WrongBackward.0.forward",
        "Optimizer.AdamW.0.forward",
    } <= named
    if sort not in ("bfloat16", "autocast"):
        # There a fiftieth is within what calls of one side alone may do by rounding.
        assert "Tensor.__mul__.0.forward" in named
    # What an optimizer with another setting calls is no bug of its own.
    assert not [name for name in named if name.startswith("Tensor.addcdiv_")]


def test_the_training_goes_on_with_the_losses_and_weights_of_the_reference(tmp_path: Path) -> None:
    reference = record(train, tmp_path / "reference")
    in_lockstep(partial(train, ALL), reference, tmp_path / "wrong")

    healthy, wrong = (
        json.loads((tmp_path / side / "step1/rank/dump.json").read_text())["data"] for side in ("reference", "wrong")
    )

    for name in ("Module.head.Linear.forward.0", "Functional.linear.0.forward"):
        assert wrong[name]["input_args"][0]["Norm"] == healthy[name]["input_args"][0]["Norm"]
    weights, others = (one["Optimizer.AdamW.0.forward"]["input_kwargs"] for one in (wrong, healthy))
    for name, own in weights.items():
        for part in ("weight", "grad", "exp_avg", "exp_avg_sq"):
            assert own[part]["Norm"] == others[name][part]["Norm"], (name, part)


def test_other_random_numbers_are_put_right_and_not_judged(tmp_path: Path) -> None:
    reference = record(partial(train, dropout=0.3), tmp_path / "reference")

    verdict = in_lockstep(partial(train, dropout=0.3, seed=7), reference, tmp_path / "other")

    assert verdict.status == "agree"
    assert any(
        names_of([note]) == ["random-not-judged"] and "Functional.dropout.0.forward" in note for note in verdict.notes
    )


def test_a_wrong_kernel_is_named_by_its_result_alone(tmp_path: Path) -> None:
    reference = record(train, tmp_path / "reference")
    called: list[str] = []

    class Kernel(Changer):
        """A kernel that is off by a thousandth, and nothing else tells."""

        wants = Wants(kinds=("call",), names=("Functional.layer_norm.1",))
        changes = Changes(names=("Functional.layer_norm.1",), results=True)

        def after(self, event: Any, result: Any) -> Result:
            called.append(event.name)
            return Result(result.detach() * 1.001, written=True)

    def with_kernel() -> None:
        PrecisionDebugger.add(Kernel())
        train()

    verdict = in_lockstep(with_kernel, reference, tmp_path / "wrong")

    assert called
    assert entries(verdict) == {"Functional.layer_norm.1.forward"}
    assert verdict.findings[0].kind == "computation"
    assert verdict.findings[0].evidence["steps"] == [0, 1]


def test_calls_without_a_partner_are_reported_and_left_alone(tmp_path: Path) -> None:
    reference = record(train, tmp_path / "reference")

    verdict = in_lockstep(partial(train, ("gate",)), reference, tmp_path / "wrong")

    assert verdict.summary["lockstep"]["without_partner"] == 4
    assert any(
        names_of([note]) == ["calls-without-partner"] and "Tensor.__mul__.0.forward" in note for note in verdict.notes
    )


def test_without_values_of_optimizers_calls_still_get_the_reference_s_weights(tmp_path: Path) -> None:
    reference = record(train, tmp_path / "reference", optimizer=None)

    verdict = in_lockstep(partial(train, ("lr",)), reference, tmp_path / "wrong")

    assert all(one.kind in ("optimizer", "weights") for one in verdict.findings)
    assert "Optimizer.AdamW.0.forward" in entries(verdict)


def test_the_last_rank_to_end_judges_and_writes_the_verdict(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    reference = record(train, tmp_path / "reference")
    config = tmp_path / "config.json"
    config.write_text(json.dumps({"task": "lockstep", "dump_path": "own", "lockstep": {"reference": "reference"}}))
    PrecisionDebugger(str(config))
    train(("gelu",))
    PrecisionDebugger.reset()

    content = json.loads((tmp_path / "own" / "verdict.json").read_text())

    assert content["status"] == "diverged"
    assert content["findings"][0]["entry"] == "Functional.gelu.0.forward"
    assert (content["candidate"], content["reference"]) == (str((tmp_path / "own").resolve()), str(reference.resolve()))
    assert (tmp_path / "own" / "verdict.json").stat().st_mode & 0o777 == 0o640
    # `compare` and `view` of that dump say the same: in lockstep nothing reaches the loss, and it would be harmless.
    assert msprobe.compare(tmp_path / "own", reference).status == "diverged"
    assert open_source([tmp_path / "own"]).overview()["verdict"]["status"] == "diverged"
    (tmp_path / "own" / "verdict.json").unlink()
    assert not has_verdict(tmp_path / "own")


def test_a_dump_that_was_not_recorded_in_lockstep_is_no_candidate(tmp_path: Path) -> None:
    reference = record(train, tmp_path / "reference")
    with raising(InvalidInputError, "no-lockstep-dump"):
        judge_lockstep(reference, reference)
    (tmp_path / "reference" / "lockstep_rank.json").write_text('{"counts": [1]}')
    with raising(InvalidInputError, "lockstep-file-broken"):
        account_files.read(reference)


@pytest.mark.parametrize(
    ("words", "code"),
    [(["--finding", "x"], "U302"), (["--finding", "2"], "K106"), (["empty.json"], "K105")],
)
def test_a_finding_that_there_is_not_is_one_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: list[str], code: str
) -> None:
    monkeypatch.chdir(tmp_path)
    for name, count in (("verdict.json", 1), ("empty.json", 0)):
        content = {"reference": "dump", "findings": [{"kind": "computation"}] * count}
        (tmp_path / name).write_text(json.dumps(content))
    verdict = [] if words[0].endswith("json") else ["verdict.json"]
    done = call("confirm", *verdict, *words, "--", "train.py")
    assert done.returncode == 2
    assert done.stderr.endswith(f"[{code}]\n")
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize(("recorded", "made"), [(2, 1), (1, 2)])
def test_of_trainings_of_different_lengths_the_common_steps_are_judged(
    recorded: int, made: int, tmp_path: Path
) -> None:
    reference = record(partial(train, ends=recorded), tmp_path / "reference")

    verdict = in_lockstep(partial(train, ("gelu",), ends=made), reference, tmp_path / "wrong")

    assert [one.kind for one in verdict.findings if one.entry is None] == ["step_count"] * (recorded > made)
    assert entries(verdict) - {"None"} == {"Functional.gelu.0.forward", "Functional.gelu.1.forward"}
    assert verdict.summary["lockstep"]["steps"] == 1
