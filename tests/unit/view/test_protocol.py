"""What the server answers is what :mod:`msprobe.view.protocol` declares, and so is what the page takes it for."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from browser.stand_in_server import StandIn
from protocol_types import FILE, protocol_types
from support.protocol_answers import all_misfits, misfits
from unit.diagnose.training import Plan, train
from unit.view.pages import LARGER, opened, pair

from msprobe.view.dumps import Dumps
from msprobe.view.protocol import Embedded, MatchesAnswer, Overview
from msprobe.view.single_file import embedded


def misfits_of(source: Dumps) -> list[str]:
    return all_misfits(lambda question, **values: getattr(source, question)(**values))


def test_the_types_of_the_page_are_made_from_the_declarations() -> None:
    assert FILE.read_text("utf-8") == protocol_types(), "run `python tests/protocol_types.py`"


def test_answers_of_ranks_and_steps_are_as_declared(tmp_path: Path) -> None:
    wrong = Plan(results=LARGER, values=True, steps=2, left_out=frozenset({"blocks.1.tanh"}))
    runs = pair(tmp_path, [Plan(values=True, steps=2), wrong], [Plan(values=True, steps=3)] * 2)
    for file in tmp_path.rglob("dump.json"):
        content = json.loads(file.read_bytes())
        leaf = {"type": "torch.Tensor", "dtype": "torch.float32", "shape": [2], "Max": 1.0, "Min": 1.0, "Mean": 1.0}
        call = {"input_args": [leaf, {"type": "int", "value": 1}], "input_kwargs": {}, "output": [leaf]}
        content["data"]["Distributed.all_reduce.0.forward"] = call
        file.write_text(json.dumps(content))
    with opened(*runs) as shown:
        assert misfits_of(shown) == []
        name = shown.place(0)["names"][0]
        assert not [*misfits(shown.match(0, name, name, False), MatchesAnswer)]
        assert not [*misfits(shown.match(0, name, None, False), MatchesAnswer)]
        shown.wait()
        assert not [*misfits(json.loads(json.dumps(embedded(shown))), Embedded)]


def test_answers_of_a_single_run_are_as_declared(tmp_path: Path) -> None:
    broken = train(tmp_path / "run", Plan(results={"blocks.1.tanh": lambda x: x * np.float32(np.nan)}, steps=2))
    with opened(broken) as shown:
        assert misfits_of(shown) == []
        assert not [*misfits(json.loads(json.dumps(embedded(shown))), Embedded)]


@pytest.mark.parametrize("single", [False, True])
def test_made_up_answers_of_browser_tests_are_as_declared(single: bool) -> None:
    stand_in = StandIn(rows=300, single=single)
    assert all_misfits(lambda question, **values: stand_in.answer(question, values)) == []


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"more": 1}, "['more']"),
        ({"kind": "triple"}, "overview.kind: 'triple'"),
        ({"format": 1.0}, "overview.format: 1.0"),
        ({"curve_complete": None}, "overview.curve_complete: None"),
        ({"notes": [{"en": "in English"}]}, "overview.notes[0]"),
    ],
)
def test_what_is_not_as_declared_is_named(change: dict[str, Any], words: str) -> None:
    (misfit,) = misfits({**StandIn(rows=300).overview, **change}, Overview, "overview")
    assert words in misfit
