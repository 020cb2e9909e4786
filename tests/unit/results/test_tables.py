"""Tables: what their columns hold is written down, and the rows that count are shown."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pandas
import pytest
from support.coded_texts import mentions, raising
from unit.diagnose.training import Plan, train

import msprobe
from msprobe.errors import InvalidInputError
from msprobe.results import Table, columns

GUIDE = (Path(__file__).parents[3] / "docs" / "python.md").read_text()
TABLES: dict[str, dict[str, str]] = {
    "v.call_table()": columns.CALLS,
    "v.tensor_table()": columns.TENSOR_PAIRS,
    "v.step_table()": columns.STEP_PAIRS,
    "v.table": columns.FINDINGS,
    "run[0].table": columns.TENSORS,
    "run.step_table()": columns.STEPS,
}


def larger(array: np.ndarray) -> np.ndarray:
    return array * np.float32(1.5)


@pytest.fixture(scope="module")
def names(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The names that the guide uses."""
    folder = tmp_path_factory.mktemp("runs")
    new = train(folder / "new", Plan(steps=2, values=True, results={"blocks.1.tanh": larger}))
    old = train(folder / "old", Plan(steps=2, values=True))
    found = {"new": new, "old": old, "msprobe": msprobe, "pandas": pandas}
    return {**found, "v": msprobe.compare(new, old), "run": msprobe.open(new)}


@pytest.mark.parametrize("line", TABLES)
def test_the_guide_says_what_every_column_holds(names: dict[str, Any], line: str) -> None:
    table = eval(line, names)
    assert table.names == tuple(TABLES[line])
    assert table.meanings == TABLES[line]
    section = next(part for part in GUIDE.split("\n### ")[1:] if part.startswith(f"`{line}`"))
    assert dict(re.findall(r"^\| `(\w+)` \| (.+) \|$", section, re.MULTILINE)) == TABLES[line]


@pytest.mark.parametrize("name", ["call_table", "tensor_table", "step_table"])
def test_the_docstring_names_every_column(names: dict[str, Any], name: str) -> None:
    for result in [names["v"], *([names["run"]] if name == "step_table" else [])]:
        told = re.findall(r"``(\w+)``", getattr(type(result), name).__doc__)
        for column in getattr(result, name)().names:
            assert column.removeprefix("reference_") in told, column


QUESTIONS = re.findall(r"^\| ([^|`]+) \| `(.+)` \|$", GUIDE, re.MULTILINE)


@pytest.mark.parametrize("line", [line for _, line in QUESTIONS])
def test_the_answers_of_the_guide_work(names: dict[str, Any], line: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert len(QUESTIONS) >= 15
    if line.startswith("assert"):
        with pytest.raises(AssertionError, match="DIVERGED"):
            exec(line, names)
        return
    answer = eval(line, dict(names))
    if isinstance(answer, Table):
        # There is no NaN, and both make the same calls.
        assert (len(answer) > 0) == ("not_finite" not in line and "only" not in line)
    elif answer is not None:
        assert len(answer) > 0 or "overflow" in line
    else:
        assert "kind       computation" in capsys.readouterr().out


def test_what_the_guide_answers_is_right(names: dict[str, Any]) -> None:
    v, run = names["v"], names["run"]
    assert v.findings[0].entry == "Torch.tanh.1.forward"
    assert v.findings[0].source.startswith("/home/me/train.py:")
    unexplained = v.call_table().where(status="unexplained")
    assert "Torch.tanh.1.forward" in unexplained["name"]
    assert set(v.call_table().in_module("blocks.1")["module"]) == {"blocks.1", "blocks.1.fc"}
    (row,) = v.tensor_table().where(name="Torch.tanh.1.forward", slot="output.0")
    assert (row["status"], row["group"]) == ("unexplained", "output")
    assert row["difference"] == pytest.approx(1 / 3, rel=1e-3)
    assert row["norm"] == pytest.approx(1.5 * row["reference_norm"])
    assert row["units"] == pytest.approx(row["difference"] / np.finfo(np.float32).eps, rel=1e-3)
    steps = v.step_table()
    assert steps["loss"] == run.step_table()["loss"]
    assert steps["loss"] != steps["reference_loss"]
    assert None not in steps["gradient_norm"]


def test_rows_that_findings_name_are_shown_first_then_the_worst(names: dict[str, Any]) -> None:
    table = names["v"].call_table()
    html = table._repr_html_()
    cells = [re.findall(r"<td>(.*?)</td>", row) for row in html.split("<tr>")[2:]]
    assert len(cells) == 10
    shown = [table.rows[int(one[0])] for one in cells]
    assert [one[1] for one in cells] == [one["name"] for one in shown]
    assert shown[0]["name"] == names["v"].findings[0].entry
    assert shown[0]["finding"] == 0
    others = [one for one in shown if one["finding"] is None]
    assert [one["status"] for one in others] == sorted((one["status"] for one in others), reverse=True)
    explained = [one["output_delta"] for one in others if one["status"] == "explained"]
    assert explained == sorted(explained, reverse=True)
    assert mentions(html, "rows-shown-leading", count=10, total=len(table))
    assert str(table).splitlines()[1].startswith(f"{cells[0][0]} ")


def test_where_chooses_rows_and_keeps_what_is_looked_at_first() -> None:
    table = Table({"n": range(30), "even": [n % 2 == 0 for n in range(30)]}, leading=[7, 28, 3])
    even = table.where(even=True, n=lambda n: n > 9)
    assert even["n"] == tuple(range(10, 30, 2))
    assert even.leading == (9,)
    with raising(InvalidInputError, "columns-missing", columns="n, even"):
        table.where(m=1)
    with pytest.raises(InvalidInputError, match="no column 'module'"):
        table.in_module("blocks")
    with raising(KeyError, "column-missing", name="m", columns="n, even"):
        table["m"]


def test_a_module_is_not_the_one_whose_name_begins_alike() -> None:
    table = Table({"module": ["layers.3", "layers.30", "layers.3.mlp", None, "layers"]})
    assert table.in_module("layers.3")["module"] == ("layers.3", "layers.3.mlp")


def test_a_difference_without_size_is_infinite_in_tables(tmp_path: Path) -> None:
    broken = train(tmp_path / "new", Plan(results={"blocks.0.tanh": lambda array: array * np.float32(np.nan)}))
    v = msprobe.compare(broken, train(tmp_path / "old", Plan()))
    (call,) = v.call_table().where(name="Torch.tanh.0.forward")
    assert (call["output_delta"], call["not_finite"], call["norm"]) == (np.inf, True, None)
    (tensor,) = v.tensor_table().where(name="Torch.tanh.0.forward", group="output")
    assert (tensor["difference"], tensor["units"]) == (np.inf, None)
    assert np.isnan(tensor["max"])
    assert msprobe.open(broken)[0].table.leading, "what is not finite is shown first"
