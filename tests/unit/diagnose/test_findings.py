from __future__ import annotations

import json
import math
from typing import Any, get_args

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.row_by_row import for_each

from msprobe.diagnose.findings import KINDS, Finding, FindingKind, Status, Verdict, plain
from msprobe.messages import explained


@pytest.mark.parametrize(("status", "code"), [("agree", 0), ("harmless", 0), ("diverged", 1), ("incomparable", 2)])
def test_exit_codes(status: Status, code: int) -> None:
    assert Verdict(status, "a", "b").exit_code == code


def test_every_kind_is_explained() -> None:
    assert set(KINDS) == set(get_args(FindingKind))
    meanings = [explained(f"kind:{kind}", "meaning") for kind in KINDS]
    assert all(text and not text.endswith(".") for text in meanings)


def test_the_form_of_a_verdict() -> None:
    finding = Finding("argument", "x is 1", where="x", entry="Torch.x.0.forward", stack=("f",), alternatives=("y",))
    found = Verdict("diverged", "a", "b", (finding, finding), ("note",), {"pairs": 3}).to_json()
    fields = "version status candidate reference summary coverage notes messages findings"
    assert [*found] == fields.split()
    assert found["summary"] == {"pairs": 3, "kinds": {"argument": 2}}
    assert [*found["findings"][0]] == [
        "rank", "step", "direction", "kind", "harmless", "where", "entry", "module", "order",
        "code", "name", "message", "arguments", "evidence", "stack", "alternatives",
    ]  # fmt: skip
    assert found["findings"][0]["stack"] == ["f"]


@for_each(
    ("value", "expected"),
    [
        (math.nan, "NaN"),
        (math.inf, "Infinity"),
        (-math.inf, "-Infinity"),
        (np.float32("nan"), "NaN"),
        (np.int64(3), 3),
        ((1, [math.nan]), [1, ["NaN"]]),
        ({1: {"a": math.inf}}, {"1": {"a": "Infinity"}}),
        (None, None),
        (True, True),
        ("NaN", "NaN"),
        (object, str(object)),
    ],
)
def test_values_become_json(value: Any, expected: Any) -> None:
    assert plain(value) == expected


LEAF = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5)


@given(
    st.recursive(
        LEAF, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3)
    )
)
def test_all_evidence_is_json(evidence: Any) -> None:
    verdict = Verdict("diverged", "a", "b", (Finding("data", "m", where="w", evidence={"e": evidence}),))
    text = json.dumps(verdict.to_json(), allow_nan=False)
    assert json.loads(text)["findings"][0]["kind"] == "data"


def test_counts_are_found_by_their_former_names() -> None:
    """``verdict.json`` had ``victim`` and ``guilty``; programs that read these still do."""
    summary = Verdict("diverged", "a", "b", summary={"explained": 4, "unexplained": 2}).to_json()["summary"]
    assert summary == {"explained": 4, "unexplained": 2, "victim": 4, "guilty": 2, "kinds": {}}
    assert Verdict("incomparable", "a", "b").to_json()["summary"] == {"kinds": {}}
