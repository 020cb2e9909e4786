"""Metrics that users bring along."""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np
import pytest
from support.coded_texts import raising
from support.hand_made import tensor, write_part

from msprobe.cli import main
from msprobe.compare.own_metrics import load_own_metrics
from msprobe.errors import InvalidInputError, PathError

MEAN = """
import numpy as np

def column_name():
    return 'Mean error'

def compare(n, b):
    return np.abs(n - b).mean()
"""
X = np.array([1.0, 2.0, 3.0], np.float32)


def file(folder: Path, text: str, name: str = "alg_mean.py") -> Path:
    path = folder / name
    path.write_text(text)
    return path


def test_a_file_adds_a_column(tmp_path: Path) -> None:
    found = load_own_metrics([file(tmp_path, MEAN)])
    assert found.columns == ("Mean error",)
    assert found.measure(X, X + 1) == (1.0,)


@pytest.mark.parametrize(
    ("result", "cell"),
    [("3", 3.0), ("'far'", "far"), ("(0.5, 'a message')", 0.5), ("('far', '')", "far"), ("None", "unsupported")],
)
def test_a_metric_is_a_number_or_a_text_alone_or_with_a_message(tmp_path: Path, result: str, cell: object) -> None:
    text = f"def column_name():\n    return 'x'\n\ndef compare(n, b):\n    return {result}\n"
    assert load_own_metrics([file(tmp_path, text)]).measure(X, X) == (cell,)


def test_a_metric_that_fails_is_reported_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = load_own_metrics([file(tmp_path, "def column_name():\n    return 'x'\n\ndef compare(n, b):\n    1 / 0\n")])
    assert found.measure(X, X) == found.measure(X, X) == ("unsupported",)
    told = capsys.readouterr().out
    assert told.count("compare() fails: ZeroDivisionError: division by zero") == 1


def test_other_shapes_are_not_handed_over(tmp_path: Path) -> None:
    assert load_own_metrics([file(tmp_path, MEAN)]).measure(X, X[:2]) == ("unsupported",)


@pytest.mark.parametrize(
    ("text", "name", "told"),
    [
        (MEAN, "mean.py", "must be called alg_NAME.py"),
        ("def column_name(:", "alg_x.py", "cannot be run: SyntaxError"),
        ("raise ValueError('a\\nb')", "alg_x.py", "cannot be run: ValueError: a b"),
        ("def column_name():\n    return 'x'\n", "alg_x.py", r"has no function compare\(\)"),
        ("def compare(n, b):\n    return 0\n", "alg_x.py", r"has no function column_name\(\)"),
        (MEAN.replace("'Mean error'", "3"), "alg_x.py", "must return a text, found 3"),
        (MEAN.replace("return 'Mean error'", "raise KeyError('k')"), "alg_x.py", r"column_name\(\) fails: KeyError"),
        (MEAN.replace("Mean error", "Cosine"), "alg_x.py", 'column "Cosine" already exists'),
    ],
)
def test_a_file_that_is_no_metric_is_refused_with_the_reason(tmp_path: Path, text: str, name: str, told: str) -> None:
    with pytest.raises(InvalidInputError, match=told):
        load_own_metrics([file(tmp_path, text, name)], ["Cosine"])


def test_a_missing_file_is_reported(tmp_path: Path) -> None:
    with raising(PathError, "file-missing"):
        load_own_metrics([tmp_path / "alg_x.py"])


@pytest.mark.parametrize("form", ["8.1.1", "26.2"])
def test_the_command_puts_the_column_behind_all_others(tmp_path: Path, form: str) -> None:
    name = "Torch.a.0.forward.input.0.npy"
    for side, values in (("a", X), ("b", X + 1)):
        data = {"Torch.a.0.forward": {"input_args": [tensor(3, data_name=name), {"type": "int", "value": 1}]}}
        write_part(tmp_path / side, data, task="tensor")
        (tmp_path / side / "dump_tensor_data").mkdir()
        np.save(tmp_path / side / "dump_tensor_data" / name, values)
    a, b = tmp_path / "a/dump.json", tmp_path / "b/dump.json"
    asked = file(tmp_path, f'{{"npu_path": "{a}", "bench_path": "{b}"}}', "compare.json")
    words = ["-i", str(asked), "--csv", "-c"] if form == "8.1.1" else ["-tp", str(a), "-gp", str(b)]
    out = tmp_path / "out"
    assert main(["compare", *words, "-o", str(out), "--metric", str(file(tmp_path, MEAN))]) == 0
    (sheet,) = out.iterdir()
    with open(sheet, newline="") as stream:
        reader = csv.DictReader(stream)
        rows = list(reader)
    assert list(rows[0])[-1] == "Mean error"
    assert [row["Mean error"] for row in rows] == ["1.0", "unsupported"]
