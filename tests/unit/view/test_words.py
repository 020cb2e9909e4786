"""What the page says of a verdict is what the console says."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from msprobe.diagnose.findings import Finding, Verdict
from msprobe.view.words import verdict_in_words


def finding(number: int, **more: Any) -> Finding:
    name = f"Tensor.mul_.{number}.forward"
    return Finding(
        kind="argument", step=0, rank=0, direction="forward", entry=name, where=f"{name}, input.1",
        message=f"{name}: input.1 is {number}", **more,
    )  # fmt: skip


def test_findings_that_are_alike_are_reported_once_behind_the_first() -> None:
    found = [finding(0), *(finding(number) for number in range(1, 33))]
    told = verdict_in_words(Verdict("diverged", "a", "b", tuple(found)), lambda one: None)["findings"]
    assert [one["title"] for one in told] == [
        "Tensor.mul_.0.forward: input.1 is 0",
        {
            "en": "Tensor.mul_.1.forward: input.1 is 1 (32 alike)",
            "zh": "Tensor.mul_.1.forward: input.1 is 1（类似的共 32 条）",
        },
    ]


def test_a_finding_on_many_ranks_is_one_with_its_ranks() -> None:
    found = [replace(finding(0), rank=rank) for rank in range(9)]
    told = verdict_in_words(Verdict("diverged", "a", "b", tuple(found)), lambda one: one.rank)["findings"]
    assert [(one["title"], one["place"]) for one in told] == [
        ("Tensor.mul_.0.forward: input.1 is 0", 0),
        (
            {
                "en": "Tensor.mul_.0.forward: input.1 is 0 (on 8 ranks: 1-8)",
                "zh": "Tensor.mul_.0.forward: input.1 is 0（8 个 rank：1-8）",
            },
            1,
        ),
    ]
