"""What the core promises, kept by every adapter: numpy alone, PyTorch, MindSpore."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conformance.worlds import NAMES, World, world

from msprobe.store.values import read_values

VALUES = [[0.5, -1.25], [2.0, 0.0]]


@pytest.fixture(params=NAMES)
def at(request: pytest.FixtureRequest) -> World:
    try:
        return world(request.param)
    except Exception as problem:
        if isinstance(problem, ImportError) or "needs MindSpore" in str(problem):
            pytest.skip(f"{request.param} is not installed here")
        raise


class Run:
    """Records a few steps and reads what was written."""

    def __init__(self, at: World, folder: Path) -> None:
        self.at = at
        self.folder = folder
        self.end: Callable[[], None] = lambda: None

    def __call__(self, work: Callable[[], Any], steps: int = 1, model: Any = None, **settings: Any) -> list[Any]:
        debugger, self.end = self.at.debugger(self.folder, **{"level": "L1", **settings})
        found = []
        for _ in range(steps):
            debugger.start(model) if model is not None else debugger.start()
            try:
                found.append(work())
            finally:
                debugger.stop()
            debugger.step()
        self.finish()
        return found

    def finish(self) -> None:
        end, self.end = self.end, lambda: None
        end()

    def file(self, name: str = "dump.json", step: int = 0) -> dict[str, Any]:
        found: dict[str, Any] = json.loads((self.folder / f"step{step}" / "rank" / name).read_text())
        return found

    def data(self, step: int = 0) -> dict[str, Any]:
        found: dict[str, Any] = self.file(step=step)["data"]
        return found

    def value(self, name: str) -> Any:
        return read_values(self.folder / "step0" / "rank" / "dump_tensor_data" / name).array


@pytest.fixture
def run(at: World, tmp_path: Path) -> Iterator[Run]:
    made = Run(at, tmp_path / "dump")
    yield made
    made.finish()


def test_numbers_of_calls_begin_at_zero_in_every_step(at: World, run: Run) -> None:
    x = at.tensor(VALUES)
    run(lambda: [at.tanh(x), at.tanh(x)], steps=2)
    for step in (0, 1):
        assert list(run.data(step)) == [f"{at.tanh_key}.0.forward", f"{at.tanh_key}.1.forward"]


def test_a_record_describes_arguments_and_results(at: World, run: Run) -> None:
    x = at.tensor(VALUES)
    (result,) = run(lambda: at.tanh(x))
    entry = run.data()[f"{at.tanh_key}.0.forward"]
    (given,), (got,) = entry["input_args"], entry["output"]
    assert entry["input_kwargs"] == {}
    assert given["shape"] == [2, 2]
    assert given["dtype"].lower().endswith("float32")
    assert [given[key] for key in ("Max", "Min", "Mean")] == [2.0, -1.25, 0.3125]
    assert given["Norm"] == pytest.approx(np.linalg.norm(VALUES))
    assert got["Max"] == pytest.approx(float(at.array(result).max()))


def test_results_are_the_same_with_and_without(at: World, run: Run) -> None:
    x = at.tensor(VALUES)
    without = [at.array(at.tanh(x)).tobytes(), at.array(at.concat([x, x])).tobytes()]
    (inside,) = run(lambda: [at.array(at.tanh(x)).tobytes(), at.array(at.concat([x, x])).tobytes()])
    assert inside == without
    assert [at.array(at.tanh(x)).tobytes(), at.array(at.concat([x, x])).tobytes()] == without


def test_nothing_is_recorded_outside_of_start_and_stop(at: World, run: Run) -> None:
    x = at.tensor(VALUES)
    at.tanh(x)
    run(lambda: at.tanh(x))
    at.tanh(x)
    assert list(run.data()) == [f"{at.tanh_key}.0.forward"]


def test_of_nested_calls_the_outermost_counts(at: World, run: Run) -> None:
    x = at.tensor(VALUES)
    run(lambda: at.outer(x))
    assert list(run.data()) == [f"{at.outer_key}.0.forward"]


def test_tensors_in_containers_have_their_place_in_the_names_of_files(at: World, run: Run) -> None:
    x, y = at.tensor(VALUES), at.tensor([[9.0, 8.0]])
    run(lambda: at.concat([x, y]), task="tensor")
    entry = run.data()[f"{at.concat_key}.0.forward"]
    names = [part["data_name"] for part in entry["input_args"][0]]
    assert names == [f"{at.concat_key}.0.forward.input.0.{i}{at.file_ending}" for i in (0, 1)]
    assert run.value(names[1]).tolist() == [[9.0, 8.0]]
    assert run.value(entry["output"][0]["data_name"]).tolist() == [*VALUES, [9.0, 8.0]]


def test_what_was_recorded_stays_when_the_tensor_is_written_to(at: World, run: Run) -> None:
    x = at.tensor(VALUES)

    def work() -> None:
        at.tanh(x)
        x[0] = 7.0

    run(work, task="tensor")
    assert run.value(f"{at.tanh_key}.0.forward.input.0{at.file_ending}").tolist() == VALUES
    assert at.array(x)[0].tolist() == [7.0, 7.0]


def test_a_call_that_raises_raises_and_is_recorded(at: World, run: Run) -> None:
    with pytest.raises((TypeError, ValueError, RuntimeError)):
        run(lambda: at.refused(at.tensor(VALUES)))
    run.finish()
    assert run.data()[f"{at.concat_key}.0.forward"]["error"]


def test_what_fails_in_the_recorder_costs_a_value_and_not_the_program(
    at: World, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    x = at.tensor(VALUES)
    debugger, run.end = at.debugger(run.folder, level="L1")

    def fails(*args: Any, **kwargs: Any) -> Any:
        raise RuntimeError("as asked")

    debugger.start()
    monkeypatch.setattr(*at.reading(debugger), fails)
    result = at.array(at.tanh(x))
    debugger.stop()
    debugger.step()
    run.finish()
    assert np.allclose(result, np.tanh(VALUES))
    assert "as asked" in (run.folder / "step0/rank/dump_error_info.log").read_text()


def test_stacks_lead_to_the_caller(at: World, run: Run) -> None:
    x = at.tensor(VALUES)
    run(lambda: at.tanh(x))
    ((names, frames),) = run.file("stack.json").values()
    assert names == [f"{at.tanh_key}.0.forward"]
    assert any("at.tanh(x)" in frame for frame in frames)
    assert not any("/msprobe/capture/" in frame for frame in frames)


def test_only_the_steps_that_are_asked_for(at: World, run: Run) -> None:
    x = at.tensor(VALUES)
    run(lambda: at.tanh(x), steps=3, step=[1])
    assert [folder.name for folder in sorted(run.folder.iterdir())] == ["step1"]


def test_only_the_entries_that_are_asked_for(at: World, run: Run) -> None:
    x = at.tensor(VALUES)
    run(lambda: [at.tanh(x), at.concat([x, x])], list=["tanh"])
    assert list(run.data()) == [f"{at.tanh_key}.0.forward"]


def test_an_interval_of_calls(at: World, run: Run) -> None:
    x = at.tensor(VALUES)
    names = [f"{at.tanh_key}.1.forward", f"{at.tanh_key}.2.forward"]
    run(lambda: [at.tanh(x) for _ in range(5)], scope=names)
    assert list(run.data()) == names


def test_directions_and_sides(at: World, run: Run) -> None:
    x = at.tensor(VALUES)
    run(lambda: at.tanh(x), data_mode=["forward", "output"])
    entry = run.data()[f"{at.tanh_key}.0.forward"]
    assert "input_args" not in entry
    assert len(entry["output"]) == 1


def test_modules_and_calls_lie_in_each_other(at: World, run: Run) -> None:
    model, x = at.model(), at.tensor(VALUES)
    run(lambda: model(x), model=model, level="mix")
    entry = f"{at.module_key}.forward.0"
    assert run.data()[entry]["input_args"][0]["shape"] == [2, 2]
    assert "parameters" in run.data()[entry]
    parents = run.file("construct.json")
    assert parents[entry] is None
    assert entry in [parent for child, parent in parents.items() if child != entry]


def test_modules_alone(at: World, run: Run) -> None:
    model, x = at.model(), at.tensor(VALUES)
    run(lambda: model(x), model=model, level="L0")
    assert [name for name in run.data() if ".forward" in name] == [f"{at.module_key}.forward.0"]


def test_structure_has_no_numbers(at: World, run: Run) -> None:
    model, x = at.model(), at.tensor(VALUES)
    run(lambda: model(x), model=model, task="structure", level="mix")
    (given,) = run.data()[f"{at.module_key}.forward.0"]["input_args"]
    assert given["shape"] == [2, 2]
    assert "Max" not in given


def test_overflows_are_kept_and_counted(at: World, run: Run) -> None:
    good, bad = at.tensor(VALUES), at.tensor([[float("inf"), 1.0]])
    run(lambda: [at.tanh(good), at.tanh(bad), at.tanh(bad)], task="overflow_check", steps=2)
    assert list(run.data()) == [f"{at.tanh_key}.1.forward"]
    assert run.value(f"{at.tanh_key}.1.forward.input.0{at.file_ending}").tolist() == [[float("inf"), 1.0]]


def test_files_and_folders_are_for_owner_and_group(at: World, run: Run) -> None:
    x = at.tensor(VALUES)
    run(lambda: at.tanh(x), task="tensor")
    for path in run.folder.rglob("*"):
        assert path.stat().st_mode & 0o777 == (0o750 if path.is_dir() else 0o640), path


def test_the_head_names_task_level_and_framework(at: World, run: Run) -> None:
    x = at.tensor(VALUES)
    run(lambda: at.tanh(x))
    head = run.file()
    wanted = {"numpy": "numpy", "torch": "pytorch", "mindspore": "mindspore"}[at.name]
    assert (head["task"], head["level"], head["framework"]) == ("statistics", "L1", wanted)
    assert head["dump_data_dir"] is None
