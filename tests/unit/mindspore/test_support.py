"""What a configuration may ask of a static graph, by how MindSpore runs it. The device is made believe."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from typing import Any

import pytest
from support.coded_texts import raising

from msprobe.messages import said

ms = pytest.importorskip("mindspore", reason="MindSpore is not installed here; `make test-mindspore` runs these")
pytestmark = pytest.mark.mindspore

from support.mindspore_dumps import Recorder, batch, needs_kernels, record  # noqa: E402

from msprobe.capture.mindspore import support  # noqa: E402
from msprobe.capture.mindspore.graphs import execution, graph_kernels  # noqa: E402
from msprobe.capture.mindspore.graphs.graph_kernels import GraphKernels  # noqa: E402
from msprobe.config.load import load_settings  # noqa: E402
from msprobe.errors import InvalidInputError, NotAvailableError  # noqa: E402
from msprobe.statistics_table import KEYS  # noqa: E402

__all__ = ["record"]

Believe = Callable[[str, str], None]


@pytest.fixture
def believe(monkeypatch: pytest.MonkeyPatch) -> Believe:
    """Make it believe in a device and a level of the compiler, in GRAPH_MODE."""

    def choose(device: str, level: str) -> None:
        facts = {"mode": ms.GRAPH_MODE, "device_target": device, "jit_config": {"jit_level": level}}
        monkeypatch.setattr(execution.mindspore, "get_context", facts.__getitem__)

    return choose


@pytest.mark.parametrize(
    ("device", "level", "wanted"),
    [("Ascend", "O2", "ge"), ("Ascend", "O1", "kernels"), ("CPU", "O2", "kernels"), ("Ascend", "", "kernels")],
)
def test_by_which_compiler_a_graph_runs(believe: Believe, device: str, level: str, wanted: str) -> None:
    believe(device, level)
    assert execution.backend() == wanted


@pytest.mark.parametrize(
    ("device", "jit_level", "fields", "words"),
    [
        ("CPU", "O0", {"level": "L1"}, "level L1 records calls"),
        ("CPU", "O0", {"level": "mix"}, "level mix records calls"),
        ("Ascend", "O2", {"level": "L0"}, said("l0-with-o2")),
        ("CPU", "O0", {"level": "L0", "task": "structure"}, 'task is "structure"'),
        ("CPU", "O0", {"level": "L0", "summary_mode": ["max", "md5"]}, 'summary_mode is "md5"'),
        ("CPU", "O0", {"level": "L0", "summary_mode": "xxh3"}, 'summary_mode is "xxh3"'),
        (
            "CPU",
            "O0",
            {"level": "L2", "task": "overflow_check"},
            said("graph-overflow-needs-o2", "O0", "CPU"),
        ),
        ("Ascend", "O1", {"level": "L2", "task": "overflow_check"}, said("graph-overflow-needs-o2", "O1", "Ascend")),
        ("Ascend", "O2", {"level": "L2", "task": "nan_check"}, 'task is "nan_check"'),
        ("CPU", "O0", {"level": "L2", "data_mode": ["forward"]}, said("graph-data-mode-of-kernels")),
        ("CPU", "O0", {"level": "L2", "summary_mode": "xor"}, 'summary_mode is "xor"'),
        ("CPU", "O0", {"level": "L2", "summary_mode": ["max", "zeros"]}, said("graph-summary-unknown", '"zeros"')),
    ],
)
def test_what_cannot_be_is_reported_with_field_value_and_what_is_allowed(
    believe: Believe, tmp_path: Any, device: str, jit_level: str, fields: dict[str, Any], words: str
) -> None:
    settings = load_settings(None, dump_path=str(tmp_path), **fields)
    believe(device, jit_level)
    with pytest.raises(InvalidInputError) as raised:
        support.check_graph_settings(settings)
    assert words in raised.value.message


def test_cells_of_graphs_that_cannot_call_python(believe: Believe, tmp_path: Any) -> None:
    settings = load_settings(None, dump_path=str(tmp_path), level="L0")
    believe("Ascend", "O1")
    with raising(NotAvailableError, "l0-of-static-graph", device="Ascend"):
        support.check_graph_settings(settings)
    believe("CPU", "O1")
    support.check_graph_settings(settings)


def test_what_fails_is_not_dumped_on_the_cpu(believe: Believe, tmp_path: Any) -> None:
    settings = load_settings(None, dump_path=str(tmp_path), level="L2", task="exception_dump")
    believe("CPU", "O0")
    with raising(NotAvailableError, "exception-dump-on-cpu"):
        support.check_graph_settings(settings)
    believe("Ascend", "O2")
    support.check_graph_settings(settings)


@pytest.mark.parametrize(
    ("device", "jit_level", "fields", "words"),
    [
        ("CPU", "O2", {}, said("o2-only-on-ascend", "CPU")),
        ("CPU", "O0", {"device": "device"}, "no effect: device"),
        ("CPU", "O0", {"task": "tensor", "file_format": "bin"}, "no effect: file_format"),
        ("Ascend", "O2", {"task": "overflow_check", "step": [1]}, "no effect: step"),
        ("Ascend", "O2", {"task": "tensor", "list": ["MatMul", "a/b"]}, said("kernel-list-by-full-name", '"MatMul"')),
        ("CPU", "O0", {"tensor_list": ["a"]}, "no effect: tensor_list"),
    ],
)
def test_what_has_no_effect_is_reported_in_one_line(
    believe: Believe, tmp_path: Any, capsys: Any, device: str, jit_level: str, fields: dict[str, Any], words: str
) -> None:
    settings = load_settings(None, dump_path=str(tmp_path), level="L2", **fields)
    believe(device, jit_level)
    support.check_graph_settings(settings)
    support.check_graph_settings(settings)
    printed = capsys.readouterr().out
    assert printed.count(words) == 1
    assert len(printed.splitlines()) == 1


@pytest.mark.parametrize(
    ("jit_level", "fields", "name", "for_acl"),
    [
        ("O2", {"task": "tensor"}, "kernel_graph_dump.json", True),
        ("O2", {"task": "tensor", "list": ["Default/a"]}, "kernel_graph_dump.json", False),
        ("O2", {"task": "overflow_check"}, "kernel_graph_overflow_check.json", True),
        ("O2", {"task": "exception_dump"}, "kernel_graph_exception_check.json", True),
        ("O1", {"task": "statistics"}, "kernel_kbyk_dump.json", False),
    ],
)
def test_the_file_is_there_and_the_environment_leads_to_it_until_the_end(
    believe: Believe,
    tmp_path: Any,
    monkeypatch: pytest.MonkeyPatch,
    jit_level: str,
    fields: dict[str, Any],
    name: str,
    for_acl: bool,
) -> None:
    told: list[Any] = []
    monkeypatch.setattr(graph_kernels, "_call_dump", lambda *args: told.append(args))
    monkeypatch.setattr(graph_kernels, "wait_for_all", lambda: None)
    monkeypatch.setenv("MS_ACL_DUMP_CFG_PATH", "/before")
    monkeypatch.delenv("MINDSPORE_DUMP_CONFIG", raising=False)
    settings = load_settings(None, dump_path=str(tmp_path / "dump"), level="L2", **fields)
    believe("Ascend", jit_level)
    dump = GraphKernels(settings)
    file = tmp_path / "dump" / name
    assert json.loads(file.read_text())["common_dump_settings"]["path"] == str(tmp_path / "dump")
    assert os.environ["MINDSPORE_DUMP_CONFIG"] == str(file)
    assert os.environ.get("MS_ACL_DUMP_CFG_PATH") == (str(file) if for_acl else None)
    dump.start()
    dump.stop()
    dump.step()
    dump.close()
    assert [one[0] for one in told] == ["_dump_set_dynamic", "_dump_start", "_dump_stop", "_dump_step"]
    assert "MINDSPORE_DUMP_CONFIG" not in os.environ
    assert os.environ["MS_ACL_DUMP_CFG_PATH"] == "/before"


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"task": "tensor", "file_format": "bin"}, "no effect: file_format"),
        ({"device": "device"}, "no effect: device"),
        ({"task": "overflow_check", "check_mode": "aicore"}, "no effect: check_mode"),
    ],
)
def test_the_dynamic_graph_says_what_it_does_not_listen_to(
    record: Recorder, capsys: Any, fields: dict[str, Any], words: str
) -> None:
    debugger = record(level="L1", **fields)
    for _ in range(2):
        with debugger.recording():
            batch() + 1
    record.end()
    assert capsys.readouterr().out.count(words) == 1


def test_chosen_statistics(record: Recorder) -> None:
    for kinds, keys in (
        (["max", "l2norm"], {"Max", "Norm"}),
        (["mean", "md5", "min"], {"Mean", "Min", "md5"}),
        (["md5"], {"md5"}),
        (["zeros", "max", "kurtosis"], {"Max", "Kurtosis", "Zeros"}),
    ):
        with record(level="L1", summary_mode=kinds).recording():
            batch() + 1
        (described,) = record.end().data()["Tensor.__add__.0.forward"]["output"]
        assert set(described) & {*KEYS, "md5"} == keys
        assert all(described[key] is not None for key in keys)
    with raising(InvalidInputError, "kernel-statistics-at-level", counted='"nan count"'):
        record(level="L1", summary_mode=["max", "nan count"])


@needs_kernels
def test_statistics_that_only_kernels_of_static_graphs_have(record: Recorder) -> None:
    debugger = record(level="L2", summary_mode=["nan count"])
    with raising(InvalidInputError, "kernel-statistics-at-start", counted='"nan count"'):
        debugger.start()
