"""Facts of findings: what is weighed are their fields, what is written are JSON values."""

from __future__ import annotations

import ast
import json
import math
from pathlib import Path
from typing import get_args

import pytest

import msprobe.diagnose
from msprobe.diagnose.differences.records import Difference
from msprobe.diagnose.evidence import (
    Because,
    Cause,
    Fact,
    Listed,
    NamedFact,
    OneSide,
    OtherArguments,
    ResultFact,
    SeenFact,
    Setting,
    as_json,
    because,
)
from msprobe.diagnose.findings import Finding, plain
from msprobe.messages import TOPICS

ROOT = Path(msprobe.diagnose.__file__).parent
TENSOR = {
    "type": "torch.Tensor",
    "dtype": "torch.float32",
    "shape": [2],
    "Max": 1.0,
    "Min": 0.0,
    "Mean": 0.5,
    "Norm": 1,
}
SEEN = SeenFact(Difference("input.0", "value", TENSOR, {**TENSOR, "Max": 2.0}, 0.5))
EVERY: list[Fact] = [
    SEEN,
    ResultFact(0.5, 0.1, "output.0", 0.0),
    OtherArguments((Difference("input.eps", "argument", 1e-5, 1e-6),)),
    OneSide(("Torch.abs.0.forward",), ()),
    Because("clipping"),
    Setting(0.1, 0.2, "lr"),
    NamedFact("parameter", "norm.weight"),
    Listed("parameters", [f"p{number}" for number in range(300)]),
]


def test_every_kind_of_fact_can_be_written():
    assert {type(fact) for fact in EVERY} == set(get_args(Fact))
    for fact in EVERY:
        assert json.loads(json.dumps(plain(as_json([fact]))))


def test_facts_are_written_under_the_documented_names():
    told = as_json([ResultFact(0.5, 0.1, "output.0", 0.0), *because("random"), *because(None), SEEN])
    assert list(told) == [
        *("slot", "difference", "inputs_differ_by", "explained", "cause"),
        *("relative_difference", "candidate", "reference"),
    ]
    assert told["reference"]["Max"] == 2.0
    assert "slot" not in as_json([ResultFact(0.5, 0.1)])
    assert len(as_json([EVERY[7]])["parameters"]) == 200


@pytest.mark.parametrize(("found", "expected"), [(0.1, True), (0.2, False), (math.inf, False)])
def test_a_result_is_explained_up_to_what_rounding_may_do(found, expected):
    assert ResultFact(found, 0.1).is_explained is expected


def test_a_finding_knows_its_facts():
    finding = Finding("argument", "text", "where", facts=tuple(EVERY))
    assert finding.fact(ResultFact) == EVERY[1]
    assert finding.cause == "clipping"
    assert Finding("argument", "text", "where").fact(ResultFact) is None
    more = finding.with_facts("another", NamedFact("effect", 1.0), NamedFact("effect_explained", 0.5))
    assert more.message == "another"
    assert more.evidence == {"effect": 1.0, "effect_explained": 0.5}


def test_what_to_do_is_said_of_known_causes_only():
    assert {name.partition(":")[2] for name in TOPICS if name.startswith("cause:")} <= set(get_args(Cause)) | {
        "gradient_factor"
    }


def test_nothing_is_decided_by_what_was_written():
    """Comparing reads no evidence of a finding, and asks for no words of one: facts have fields."""
    asked = ("startswith", "endswith", "find", "count", "split", "partition", "get")
    found = []
    for path in sorted(ROOT.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            read = node.func if isinstance(node, ast.Call) else node.value if isinstance(node, ast.Subscript) else None
            if isinstance(read, ast.Attribute) and read.attr in asked:
                read = read.value
            if isinstance(read, ast.Attribute) and read.attr in ("evidence", "message"):
                found.append(f"{path.relative_to(ROOT)}:{node.lineno}: {ast.unparse(node)}")
    # A check has one finding for each line of the program.
    assert [one for one in found if not one.startswith("check/run.py")] == []
