from __future__ import annotations

import json
from pathlib import Path

import pytest
from support.coded_texts import mentions
from support.row_by_row import for_each

from msprobe.errors import InvalidInputError
from msprobe.precheck.executors import executor_of
from msprobe.precheck.settings import Settings, load_settings
from msprobe.precheck.side.words import Executor, Fault


@for_each(
    ("text", "executor"),
    [
        ("cpu", Executor("cpu", "cpu")),
        ("cuda:1", Executor("cuda:1", "cuda:1")),
        ("cpu+mkldnn=off+threads=1", Executor("cpu+mkldnn=off+threads=1", "cpu", mkldnn=False, threads=1)),
        ("cpu+dtype=double", Executor("cpu+dtype=double", "cpu", dtype="float64")),
        ("inject:scale=1e-3", Executor("inject:scale=1e-3", "auto", fault=Fault("scale", 1e-3))),
        ("cpu+inject:nan@5", Executor("cpu+inject:nan@5", "cpu", fault=Fault("nan", place=5))),
        ("plugin:pkg.mod:run", Executor("plugin:pkg.mod:run", "cpu", plugin=("pkg.mod", "run"))),
    ],
)
def test_what_an_executor_is_asked_for(text: str, executor: Executor) -> None:
    assert executor_of(text) == executor


@for_each(
    "text",
    ["gpu", "cuda:x", "cpu+threads=0", "cpu+fast", "inject:scale", "inject:nan@-1", "plugin:os", "", "cpu+dtype=x"],
)
def test_what_no_executor_is_called_is_refused_in_one_sentence(text: str) -> None:
    with pytest.raises(InvalidInputError, match="--candidate"):
        executor_of(text)


def test_the_section_of_26_2_is_that_of_8_1_1(tmp_path: Path) -> None:
    section = {"white_list": ["relu", "linear"], "black_list": ["relu"], "precision": 6}
    found = []
    for name in ("run_ut", "acc_check"):
        path = tmp_path / f"{name}.json"
        path.write_text(json.dumps({name: section}))
        found.append(load_settings(str(path)))
    assert found[0] == found[1]
    selection = found[1].selection
    assert "black_list" in selection.refuse("Functional.relu.0")
    assert selection.refuse("Functional.linear.0") == ""
    assert "white_list" in selection.refuse("Torch.matmul.0")


def test_what_nothing_reads_of_the_settings_is_reported(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "config.json"
    path.write_text(json.dumps({"task": "tensor", "run_ut": {"white_lists": ["relu"]}}))
    assert load_settings(str(path)).selection == Settings().selection
    shown = capsys.readouterr().out
    assert "run_ut.white_lists" in shown
    assert '"white_list"' in shown
    path.write_text(json.dumps({"task": "tensor"}))
    load_settings(str(path))
    assert mentions(capsys.readouterr().out, "config-without-section", title="run_ut")
