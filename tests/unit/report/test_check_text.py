"""The terminal text of what was found in one dump."""

from __future__ import annotations

import numpy as np
import pytest

from msprobe.diagnose.check import CHECKS, CheckResult
from msprobe.diagnose.findings import Finding
from msprobe.report.check_text import check_text


def finding(number: int = 0, **more: object) -> Finding:
    fields: dict[str, object] = {
        "kind": "overflow",
        "message": f"NaN is born in Torch.log.{number}.forward: logarithm of zero",
        "where": f"Torch.log.{number}.forward",
        "entry": f"Torch.log.{number}.forward",
        "module": "blocks.1.feed",
        "rank": 1,
        "step": 3,
        "direction": "forward",
        "order": number,
        "evidence": {
            "check": "overflow",
            "value": "nan",
            "inputs": [{"dtype": "torch.float32", "shape": [2, 3], "Max": 1.0, "Min": 0.0, "zero": 2}],
            "reached": {"0": "Distributed.all_reduce.0.forward"},
        },
    }
    return Finding(**{**fields, **more})  # type: ignore[arg-type]


def result(*findings: Finding, notes: tuple[str, ...] = ()) -> CheckResult:
    status = "clean" if not findings else "harmless" if all(one.harmless for one in findings) else "found"
    names = [check.name for check in CHECKS]
    summary = {"steps": 1, "records": 10, "findings": len(findings), "checks": names}
    return CheckResult(status, "dumps/run", findings, notes, summary)  # type: ignore[arg-type]


def test_nothing_found_says_what_was_checked() -> None:
    text = check_text(result())
    assert text.startswith("NOTHING FOUND\n  dump  dumps/run\n")
    assert f"all {len(CHECKS)} checks" in text


def test_the_first_finding_in_full() -> None:
    text = check_text(result(finding()))
    assert text.startswith("FOUND at step 3, rank 1, forward pass\n")
    for words in (
        "blocks.1.feed",
        "float32[2, 3] max 1, min 0, 2 zeros",
        "it reaches rank 0 through Distributed.all_reduce",
        "to do",
    ):
        assert words in text
    assert "check: overflow" not in text


def test_harmless_is_said() -> None:
    assert check_text(result(finding(harmless=True))).startswith("HARMLESS at step 3")


def test_many_findings_are_counted() -> None:
    text = check_text(result(*(finding(number) for number in range(40))))
    assert "11. overflow, step 3, rank 1" in text
    assert "and 29 more" in text
    assert len(text.splitlines()) < 80


@pytest.mark.parametrize("width", [60, 80, 110])
def test_lines_keep_to_the_width(width: int) -> None:
    text = check_text(result(finding(), finding(1), notes=("a note " * 30,)), ["check.json"], width)
    assert max(map(len, text.splitlines())) <= width


def test_what_files_say_cannot_drive_the_terminal() -> None:
    evil = "\x1b[2J\x07\u202ebad"
    text = check_text(
        result(
            finding(message=evil, where=evil, entry=evil, module=evil, alternatives=(evil,), stack=(evil,)),
            finding(evidence={"check": evil, evil: evil, "inner": {evil: evil}, "list": [evil]}),
            notes=(evil,),
        ),
        [evil],
    )
    assert not any(letter in text for letter in "\x1b\x07\u202e")


def test_evidence_of_arrays_is_shown() -> None:
    measured = {"check": "clearing", "means": np.array([0.5, 0.25]), "none": np.array([])}
    text = check_text(result(finding(evidence=measured)))
    assert "0.25" in text
    assert "none" not in text


@pytest.mark.parametrize(("certain", "words"), [(True, "seen in the values"), (False, "seen in the number of zeros")])
def test_what_a_mask_was_seen_in_is_said_in_words(certain: bool, words: str) -> None:
    leaf = {"dtype": "torch.float32", "shape": [2, 3], "Max": 1.0}
    evidence = {"check": "attention", "certain": certain, "probabilities": [leaf, leaf], "cause": "of mine"}
    text = check_text(result(finding(evidence=evidence)))
    assert words in text
    assert "probability 1: float32[2, 3]" in text
    assert "certain" not in text
    assert "of mine" not in text
