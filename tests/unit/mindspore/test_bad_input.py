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


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"task": "nope"}, ['"task": found "nope"', '"statistics", "tensor"']),
        ({"level": "L3"}, ['"level": found "L3"', '"L0", "L1", "L2", "mix", "debug"']),
        ({"async_dump": "yes"}, ['"async_dump": found "yes"', "true or false"]),
        ({"section": {"list": "x"}}, ['"statistics.list": found "x"', "a list of texts"]),
        ({"section": {"data_mode": "all"}}, ['"statistics.data_mode": found "all"', '["all"]']),
        ({"section": {"data_mode": ["foo"]}}, ['found ["foo"]', '"forward", "backward", "input", "output"']),
        ({"section": {"data_mode": ["all", "input"]}}, ['["all", "input"]', said("all-stands-alone")]),
        ({"rank": "0"}, ['"rank": found "0"', "a list of numbers 0..1000000 and of ranges"]),
        ({"step": [-1]}, ['"step[0]": found -1', "0..1000000"]),
        ({"step": ["4-2"]}, ['"step[0]": found "4-2"', "ranges"]),
        ({"step": [True]}, ['"step[0]": found true', "numbers 0..1000000"]),
        ({"task": "tensor", "async_dump": True}, ['"async_dump": found true', said("async-without-list")]),
        ({"section": {"summary_mode": "xx"}}, ['"statistics.summary_mode": found "xx"', '"statistics", "md5"']),
        ({"section": {"summary_mode": ["foo"]}}, ['found ["foo"]', "'foo'", '"max", "min", "mean", "l2norm"']),
        ({"task": "tensor", "section": {"file_format": "pt"}}, ['"tensor.file_format": found "pt"', '"npy", "bin"']),
        ({"section": {"device": "npu"}}, ['"statistics.device": found "npu"', '"host", "device"']),
        ({"section": {"precision": "middle"}}, ['"statistics.precision": found "middle"', '"low", "high"']),
        (
            {"task": "overflow_check", "section": {"overflow_nums": 0}},
            ['"overflow_check.overflow_nums": found 0', "above 0, or -1"],
        ),
        ({"task": "overflow_check", "section": {"overflow_nums": "1"}}, ['found "1"', "a whole number above 0"]),
        (
            {"task": "overflow_check", "section": {"check_mode": "x"}},
            ['"overflow_check.check_mode": found "x"', '"all", "aicore", "atomic"'],
        ),
        ({"api_scope": "some"}, ['"api_scope": found "some"', '"all", "listed"']),
        ({"dump_path": ...}, [said("dump-path-missing")]),
        (
            {"task": "free_benchmark", "section": {"pert_mode": "x", "handler_type": "y", "fuzz_level": "L0"}},
            [
                '"free_benchmark.pert_mode": found "x"',
                '"add_noise"',
                'found "y"; allowed: "check", "fix"',
                'allowed: "L1"',
            ],
        ),
        (
            {"task": "free_benchmark", "section": {"fuzz_device": "tpu", "fuzz_stage": "z"}},
            ['"npu", "cpu"', '"forward"'],
        ),
    ],
)
def test_configurations(make: Make, fields: dict[str, Any], words: list[str]) -> None:
    with pytest.raises(InvalidInputError) as raised:
        make(**fields)
    for word in ("config.json", *words):
        assert word in raised.value.message


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


def test_a_static_graph_without_a_model(make: Make) -> None:
    debugger = make(level="L0")
    ms.set_context(mode=ms.GRAPH_MODE)
    with raising(InvalidInputError, "level-needs-model", level="L0", what="cells"):
        debugger.start()


def test_calls_of_a_model_in_a_static_graph(make: Make) -> None:
    debugger = make(level="L0")
    ms.set_context(mode=ms.GRAPH_MODE)
    with raising(InvalidInputError, "token-range-of-static-graph", token_range="[0, 1]"):
        debugger.start(CELL, token_range=[0, 1])


def test_all_mistakes_of_a_static_graph_are_told_at_once(make: Make) -> None:
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
        debugger.start()
        ops.log(ops.tanh(ops.abs(batch())) * 0)
        debugger.stop()
        debugger.step()
        PrecisionDebugger.reset()
        assert {name.split(".")[1] for name in Dump(tmp_path / "dump").names()} == wanted
