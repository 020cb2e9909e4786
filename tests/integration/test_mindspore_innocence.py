"""Recording changes nothing: losses, gradients, weights, buffers and random numbers are those of the training alone."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest

ms = pytest.importorskip("mindspore", reason="MindSpore is not installed here; `make test-mindspore` runs these")
pytestmark = pytest.mark.mindspore

from mindspore import Tensor, ops  # noqa: E402
from support.mindspore_networks import NETWORKS, STEPS, Result, run  # noqa: E402

from msprobe.capture.mindspore import kernels, tensors  # noqa: E402
from msprobe.capture.mindspore.calls.surface import MINDSPORE  # noqa: E402
from msprobe.capture.mindspore.gradients import backward_graph as graph  # noqa: E402
from msprobe.mindspore import PrecisionDebugger  # noqa: E402


@cache
def alone(name: str) -> tuple[bytes, ...]:
    """The training without msprobe, which gives the same twice."""
    first, second = run(name), run(name)
    assert first == second, "the training itself is not deterministic"
    return tuple(first)


def recorded(name: str, folder: Path, mode: int = ms.PYNATIVE_MODE, **settings: Any) -> Result:
    PrecisionDebugger.reset()
    debugger = PrecisionDebugger(dump_path=str(folder), **settings)

    @contextlib.contextmanager
    def step(model: Any) -> Iterator[None]:
        debugger.start(model)
        yield
        debugger.stop()
        # What a static graph is compiled with stays until the end.
        roots = [] if mode == ms.GRAPH_MODE else model if isinstance(model, list) else [model]
        for root in roots:
            for _, cell in root.cells_and_names():
                assert not cell._forward_hook
                assert not cell._forward_pre_hook
            assert all(not parameter.hooks() for parameter in root.get_parameters())
        debugger.step()

    try:
        return run(name, step, mode)
    finally:
        PrecisionDebugger.reset()


SETTINGS = {
    "L0": {"level": "L0"},
    "L1": {"level": "L1"},
    "L2": {"level": "L2"},
    "mix": {"level": "mix", "summary_mode": "md5"},
    "tensor": {"level": "mix", "task": "tensor"},
    "all": {"level": "mix", "api_scope": "all"},
}


@pytest.mark.parametrize("settings", SETTINGS)
@pytest.mark.parametrize("name", NETWORKS)
def test_the_training_is_the_same_bit_for_bit(name: str, settings: str, tmp_path: Path) -> None:
    if settings == "L2" and not kernels.is_there():
        pytest.skip("this MindSpore does not tell of kernels")
    wanted = alone(name)
    functions = {(id(holder), api): getattr(holder, api) for holder, api, _ in MINDSPORE.apis(everything=True)}
    own, called = set(vars(Tensor)), ops.MatMul.__call__
    found = recorded(name, tmp_path, **SETTINGS[settings])
    assert tuple(found) == wanted
    assert all(getattr(holder, api) == functions[id(holder), api] for holder, api, _ in MINDSPORE.apis(everything=True))
    assert set(vars(Tensor)) == own
    assert ops.MatMul.__call__ is called
    assert list(tmp_path.rglob("dump_error_info.log")) == []
    for number in range(STEPS):
        data = json.loads((steps_in(tmp_path) / f"step{number}" / "rank" / "dump.json").read_text())["data"]
        assert any(".forward" in entry for entry in data)
        assert settings == "L2" or any(".backward" in entry for entry in data)


@pytest.mark.parametrize("name", NETWORKS)
def test_so_it_is_where_the_graph_cannot_be_read(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(graph, "is_readable", lambda: False)
    assert tuple(recorded(name, tmp_path, level="mix")) == alone(name)
    assert list(tmp_path.rglob("dump_error_info.log")) == []
    data = json.loads((steps_in(tmp_path) / "step0" / "rank" / "dump.json").read_text())["data"]
    assert any(".backward" in entry for entry in data)


def steps_in(folder: Path) -> Path:
    """Where a training with compiled cells has what runs step by step."""
    return folder / "pynative" if (folder / "pynative").is_dir() else folder


# Sparse gradients and two optimizers of models whose parameters have one name do not compile in MindSpore 2.10.
STATIC = [name for name in NETWORKS if name not in ("embedding", "two_optimizers")]


@pytest.mark.parametrize("name", STATIC)
def test_so_it_is_in_the_static_graph(name: str, tmp_path: Path) -> None:
    wanted = run(name, mode=ms.GRAPH_MODE)
    assert recorded(name, tmp_path, mode=ms.GRAPH_MODE, level="L0") == wanted
    assert list(tmp_path.rglob("dump_error_info.log")) == []
    data = json.loads((tmp_path / "step1" / "rank" / "dump.json").read_text())["data"]
    assert any(".forward." in entry for entry in data)
    assert any(".backward." in entry for entry in data)


def data_of(folder: Path, number: int) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((steps_in(folder) / f"step{number}" / "rank" / "dump.json").read_text())["data"]
    return found


@pytest.mark.parametrize("level", ["L0", "mix"])
@pytest.mark.parametrize("name", NETWORKS)
def test_values_read_at_the_end_of_the_step_are_those_of_the_moment(
    name: str, level: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recorded(name, tmp_path / "late", level=level, summary_mode="md5")
    # No type is held: each tensor is read where it is recorded.
    monkeypatch.setattr(tensors, "HELD", {})
    recorded(name, tmp_path / "at once", level=level, summary_mode="md5")
    for number in range(STEPS):
        late, at_once = data_of(tmp_path / "late", number), data_of(tmp_path / "at once", number)
        assert late.keys() == at_once.keys()
        assert [entry for entry in late if without_rows(late[entry]) != without_rows(at_once[entry])] == []


def without_rows(record: Any) -> Any:
    """A record without the numbers of rows, which are given as rows are made."""
    if isinstance(record, dict):
        return {key: without_rows(value) for key, value in record.items() if key != "row"}
    return [without_rows(value) for value in record] if isinstance(record, list) else record
