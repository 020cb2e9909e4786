"""What users get wrong: each mistake is told with the field, what was found there, and what is allowed."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from support.coded_texts import raising

from msprobe.messages import said

ms = pytest.importorskip("mindspore", reason="MindSpore is not installed here; `make test-mindspore` runs these")
pytestmark = pytest.mark.mindspore

from mindspore import nn, ops  # noqa: E402
from support.mindspore_dumps import Dump, batch, needs_kernels  # noqa: E402

from msprobe.errors import InvalidInputError, MsprobeError, NotAvailableError, PathError  # noqa: E402
from msprobe.mindspore import PrecisionDebugger  # noqa: E402

Make = Callable[..., PrecisionDebugger]


@pytest.fixture
def make(tmp_path: Path) -> Iterator[Make]:
    """The debugger of a configuration file."""
    ms.set_context(mode=ms.PYNATIVE_MODE)
    PrecisionDebugger.reset()

    def from_file(task: str = "statistics", section: dict[str, Any] | None = None, **fields: Any) -> PrecisionDebugger:
        PrecisionDebugger.reset()
        content = {"task": task, "dump_path": str(tmp_path / "dump"), **fields, task: section or {}}
        file = tmp_path / "config.json"
        file.write_text(json.dumps({key: value for key, value in content.items() if value is not ...}))
        return PrecisionDebugger(str(file))

    yield from_file
    PrecisionDebugger.reset()
    ms.set_context(mode=ms.PYNATIVE_MODE)


@pytest.mark.parametrize("task", ["run_ut"])
def test_tasks_of_other_tools(make: Make, task: str) -> None:
    with raising(NotAvailableError, "config-mistake", task=task):
        make(task=task)


def test_files_that_cannot_be_a_configuration(tmp_path: Path) -> None:
    PrecisionDebugger.reset()
    with pytest.raises(PathError, match=r"absent\.json"):
        PrecisionDebugger(str(tmp_path / "absent.json"))
    (tmp_path / "config.yaml").write_text("{}")
    with pytest.raises(PathError, match=r"config\.yaml.*\.json"):
        PrecisionDebugger(str(tmp_path / "config.yaml"))
    assert PrecisionDebugger.existing() is None


CELL = nn.ReLU()


@pytest.mark.parametrize(
    ("level", "arguments", "words"),
    [
        ("L0", {}, said("level-needs-model", "L0", "cells")),
        ("mix", {}, said("level-needs-model", "mix", "cells")),
        ("L0", {"model": 3}, "model must be a mindspore.nn.Cell, or a list or tuple of them, found int"),
        ("L1", {"model": [CELL, 3]}, "model[1] must be a mindspore.nn.Cell, or a list or tuple of them, found int"),
        ("L1", {"token_range": [0, 1]}, said("token-range-needs-model")),
        ("L1", {"model": CELL, "token_range": [2, 1]}, "token_range must be"),
        ("L1", {"model": CELL, "token_range": 3}, "token_range must be"),
        ("L0", {"model": CELL, "rank_id": -1}, "rank_id must be an int from 0"),
        ("L0", {"model": []}, "empty list"),
    ],
)
def test_arguments_of_start(make: Make, level: str, arguments: dict[str, Any], words: str) -> None:
    debugger = make(level=level)
    with pytest.raises(InvalidInputError) as raised:
        debugger.start(**arguments)
    assert words in raised.value.message


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"level": "L1"}, "level L1 records calls, which a static graph (GRAPH_MODE) does not have; choose level L0"),
        ({"level": "mix"}, "level mix records calls"),
        ({"level": "L0", "task": "structure"}, said("graph-task-of-cells", "structure")),
        ({"level": "L2", "task": "overflow_check"}, 'task is "overflow_check"'),
        ({"level": "L0", "rank": [0]}, said("graph-rank-empty")),
        (
            {"level": "L0", "section": {"scope": ["Cell.a.A.forward.0", "Cell.b.B.forward.0"]}},
            said("graph-scope-empty"),
        ),
        ({"level": "L0", "section": {"list": ["Dense"]}}, said("graph-list-empty")),
        (
            {"level": "L0", "section": {"summary_mode": "md5"}},
            'summary_mode is "md5"',
        ),
        (
            {"level": "L0", "section": {"data_mode": ["input"]}},
            said("graph-data-mode-of-cells"),
        ),
    ],
)
def test_static_graphs(make: Make, fields: dict[str, Any], words: str) -> None:
    ms.set_context(mode=ms.GRAPH_MODE)
    debugger = make(**fields)
    with pytest.raises(InvalidInputError) as raised:
        debugger.start(CELL)
    assert words in raised.value.message


def test_calls_of_a_model_in_a_static_graph(make: Make) -> None:
    debugger = make(level="L0")
    ms.set_context(mode=ms.GRAPH_MODE)
    with raising(InvalidInputError, "token-range-of-static-graph", token_range="[0, 1]"):
        debugger.start(CELL, token_range=[0, 1])


def test_all_mistakes_of_a_static_graph_are_reported_at_once(make: Make) -> None:
    debugger = make(level="L0", task="tensor", rank=[1], section={"list": ["Dense"], "data_mode": ["output"]})
    ms.set_context(mode=ms.GRAPH_MODE)
    with pytest.raises(InvalidInputError, match=r"rank must be .*list must be .*data_mode must be"):
        debugger.start(CELL)


def test_methods_before_the_construction() -> None:
    PrecisionDebugger.reset()
    for call in (
        PrecisionDebugger.start,
        PrecisionDebugger.stop,
        PrecisionDebugger.step,
        PrecisionDebugger.forward_backward_dump_end,
        lambda: PrecisionDebugger.save(1, "x"),
        lambda: PrecisionDebugger.set_init_step(1),
        lambda: PrecisionDebugger.monitor(None),
        lambda: PrecisionDebugger.register_custom_api(ops, "tanh"),
    ):
        with raising(MsprobeError, "debugger-not-created"):
            call()


@needs_kernels
def test_kernels_of_several_names_and_their_overflows_can_be_asked_for(make: Make, tmp_path: Path) -> None:
    """mindstudio-probe refuses both; in the dynamic graph this records kernels on any device."""
    for task, wanted in (("tensor", {"Tanh", "Log"}), ("overflow_check", {"Log"})):
        debugger = make(task=task, level="L2", section={"list": ["Tanh", "Log"]})
        with debugger.recording():
            ops.log(ops.tanh(ops.abs(batch())) * 0)
        PrecisionDebugger.reset()
        assert {name.split(".")[1] for name in Dump(tmp_path / "dump").names()} == wanted
