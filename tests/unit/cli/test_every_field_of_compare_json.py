"""A field of compare.json that is accepted does something, or a line says that it does not."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from hostile import made
from python_calamine import CalamineWorkbook
from support.command_line import call

from msprobe.compare.compare_file import CompareFile


@dataclass(frozen=True)
class Case:
    """A value, with ``more`` fields on both sides; ``words``: before the command, or the command."""

    value: Any
    more: dict[str, Any] = field(default_factory=dict)
    words: tuple[str, ...] = ("-f", "pytorch", "compare")


MINDSPORE = ("-f", "mindspore", "compare")
COMPARED = {
    "npu_path": Case("C"),
    "bench_path": Case("C"),
    "stack_path": Case("stack"),
    # A line for each tensor whose file is there.
    "is_print_compare_log": Case(False, {"npu_path": "A of values", "bench_path": "B of values"}),
    "rank_id": Case([0], words=MINDSPORE),
    "step_id": Case([0]),
    "common": Case(True, words=MINDSPORE),
    "common beside rank_id": Case(True, {"rank_id": [0]}, MINDSPORE),
    "map_dict": Case({"a": "b"}),
}
GRAPHS = {
    # The other fields of `compare` are passed over: one file serves both commands.
    "npu_path": Case("C"),
    "bench_path": Case("C"),
    "parallel_merge": Case({"npu": {"rank_size": 2, "tp": 2, "pp": 1}, "bench": {"rank_size": 2, "tp": 2, "pp": 1}}),
    "parallel_merge of one side": Case({"npu": {"rank_size": 2, "tp": 2, "pp": 1}}),
    "own": Case(1),
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Dumps A and B, and one with a call more, C."""
    one = {"Module.a.A.forward.0": made.record(), "Functional.relu.0.forward": made.record()}
    for side, data in (("A", one), ("B", one), ("C", {**one, "Functional.gelu.0.forward": made.record()})):
        place = made.dump(tmp_path / side, data).parent
        # The module alone: this is what a graph begins with.
        tree = {name: None if name.startswith("Module") else "Module.a.A.forward.0" for name in data}
        (place / "construct.json").write_text(json.dumps(tree))
    (tmp_path / "values").mkdir()
    made.two_dumps(tmp_path / "values")
    (tmp_path / "stack.json").write_text(json.dumps({"0": [list(one), ["line 1"]]}))
    return tmp_path


def seen(folder: Path, words: tuple[str, ...], content: dict[str, Any], turn: str) -> dict[str, object]:
    """The status, the lines, and the kinds of files of a command."""
    paths = {"C": str(folder / "C" / "step0" / "rank" / "dump.json"), "stack": str(folder / "stack.json")}
    for side in "AB":
        paths[f"{side} of values"] = str(folder / "values" / side / "step0" / "rank" / "dump.json")
    if "graph" in words:
        paths["C"] = str(folder / "C" / "step0" / "rank")
    content = {name: paths.get(str(value), value) for name, value in content.items()}
    (folder / "compare.json").write_text(json.dumps(content))
    out = folder / turn
    ended = call(*words, "-i", folder / "compare.json", "-o", out)
    lines = (ended.stdout + ended.stderr).replace(turn, "OUT").splitlines()
    plain = {re.sub(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d \(\d+\)|\d{14}", "TIME", line) for line in lines}
    return {"status": ended.returncode, "lines": plain, "files": sorted(contents(out))}


def contents(folder: Path) -> Iterator[str]:
    """The words of the files below, without those that name a moment or a folder."""
    for file in folder.rglob("*"):
        if file.suffix == ".xlsx":
            yield str(CalamineWorkbook.from_path(file).get_sheet_by_index(0).to_python())
        elif file.is_file():
            yield re.sub(r'"[^"]*out-\d[^"]*"', "", file.read_text())


def differs(folder: Path, case: Case, name: str, usual: dict[str, Any]) -> bool:
    usual = {**usual, **case.more}
    first, second = (seen(folder, case.words, usual, turn) for turn in ("out-1", "out-2"))
    assert first == second
    return first != seen(folder, case.words, {**usual, name.partition(" ")[0]: case.value}, "out-3")


def test_every_field_has_a_row() -> None:
    assert {name for name in COMPARED if " " not in name} == set(CompareFile.model_fields)


@pytest.mark.parametrize("name", COMPARED)
def test_a_field_changes_something(folder: Path, name: str) -> None:
    usual = {f"{side}_path": str(folder / at / "step0/rank/dump.json") for side, at in (("npu", "A"), ("bench", "B"))}
    assert differs(folder, COMPARED[name], name, usual)


@pytest.mark.parametrize("name", GRAPHS)
def test_a_field_for_graphs_changes_something(folder: Path, name: str) -> None:
    usual = {f"{side}_path": str(folder / at / "step0" / "rank") for side, at in (("npu", "A"), ("bench", "B"))}
    case = GRAPHS[name]
    assert differs(folder, Case(case.value, case.more, ("-f", "pytorch", "graph")), name, usual)
