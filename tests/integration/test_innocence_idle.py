"""Imported, constructed or stopped, msprobe leaves torch as it found it, keeps nothing alive, and is not in
the way."""

from __future__ import annotations

import functools
import gc
import json
import os
import subprocess
import sys
import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import zoo
from innocence_run import Nobody, Recorder, Setting, Watcher
from torch import nn

zoo.load_all()
LEVELS = ["L0", "L1", "mix", "L2"]
IDLE_LEVELS = ["L0", "mix", "L2", "debug"]


@pytest.fixture(scope="module", autouse=True)
def _what_was_frozen_meanwhile_is_freed() -> Iterator[None]:
    yield
    gc.unfreeze()
    gc.collect()
    gc.freeze()  # as it was after the tests were loaded


@pytest.fixture(scope="module")
def seen(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What was seen at each level."""
    program = Path(__file__).with_name("innocence_idle.py")
    done = subprocess.run(
        [sys.executable, str(program), str(tmp_path_factory.mktemp("idle")), *IDLE_LEVELS],
        capture_output=True,
        text=True,
        timeout=120,
        env={
            **os.environ,
            "OMP_NUM_THREADS": "1",
            "PYTHONPATH": os.pathsep.join(path for path in sys.path if path),
        },
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    # Between them stands what came of the recording.
    lines = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    return {line.pop("level"): line for line in lines}


@pytest.mark.parametrize("level", IDLE_LEVELS)
def test_import_and_construction_leave_torch_untouched(level: str, seen: dict[str, Any]) -> None:
    found = seen[level]
    assert found.pop("written") == [], "an idle debugger wrote files"
    written = found.pop("written after start")
    assert level == "debug" or "dump.json" in written
    for moment, state in found.items():
        assert state == {"functions": [], "flags": [], "hooks": True, "generator": True}, moment


class Weighed:
    """A region that counts which tensors and graph nodes of a step are alive after it."""

    def __init__(self, watcher: Watcher) -> None:
        self.watcher = watcher

    def begin(self, models: nn.Module) -> None:
        self.watcher.start(models)

    def end(self) -> None:
        self.watcher.stop()

    def save(self, value: object, name: str) -> None:
        self.watcher.save(value, name)


class Token:
    """Lives as long as the graph node it was hung on; nodes themselves take no weak references."""


def token_of(tensor: torch.Tensor) -> weakref.ref[Token]:
    token = Token()
    if tensor.grad_fn is not None:
        tensor.grad_fn.metadata["token"] = token
    return weakref.ref(token)


def tensors_alive() -> int:
    return sum(1 for thing in gc.get_objects() if issubclass(type(thing), torch.Tensor))


def survivors(name: str, watcher: Watcher) -> tuple[list[bool], list[int], list[int]]:
    """For each step: whether results outlive their last user reference, before and after a collection;
    tensors alive."""
    case = zoo.build(name)
    region = Weighed(watcher)
    outliving, alive, garbage = [], [], []
    gc.collect()
    gc.freeze()  # what is older than this training is not looked through each time
    gc.disable()
    try:
        for i in range(4):
            results = case.run_step(i, region)
            tensors = [value for value in results.values() if isinstance(value, torch.Tensor)]
            references = [*map(weakref.ref, tensors), *map(token_of, tensors)]
            del tensors
            watcher.step()
            results.clear()
            outliving.append(any(r() is not None for r in references))
            alive.append(tensors_alive())
            gc.collect()
            garbage.append(alive[-1] - tensors_alive())
    finally:
        gc.enable()
        watcher.close()
        case.close()
    return outliving, alive, garbage


@functools.cache
def bare_survivors(name: str) -> tuple[list[bool], list[int], list[int]]:
    """Those of the bare training, once everything that is made only once is there."""
    survivors(name, Nobody())
    return survivors(name, Nobody())


@pytest.mark.parametrize(
    "setting",
    [*map(Setting, LEVELS), Setting("mix", "tensor"), Setting("mix", "statistics", {"summary_mode": "md5"})],
    ids=str,
)
@pytest.mark.parametrize(
    "name", ["resnet", "gpt_tied", "stopped_before_backward", "recompute_reentrant", "custom_function"]
)
def test_nothing_is_kept_alive_after_a_step(name: str, setting: Setting, tmp_path: Path) -> None:
    """Without the cyclic collector: what a training frees by reference count is freed just so when
    recorded."""
    bare_outliving, bare_alive, bare_garbage = bare_survivors(name)
    outliving, alive, garbage = survivors(name, Recorder(tmp_path, setting))
    assert outliving == bare_outliving
    assert [n - alive[0] for n in alive] == [n - bare_alive[0] for n in bare_alive], "tensors pile up from step to step"
    assert garbage == bare_garbage, "tensors wait in reference cycles for the collector"


@pytest.mark.parametrize("level", LEVELS)
def test_stop_and_step_end_a_forward_that_is_never_differentiated(level: str, tmp_path: Path) -> None:
    """Activations of a forward without backward are freed when the user lets them go, also while
    recording."""
    model = nn.Sequential(nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 2))
    recorder = Recorder(tmp_path, Setting(level))
    try:
        recorder.start(model)
        out = model(torch.ones(2, 8))
        reference = weakref.ref(out)
        node = token_of(out)
        del out
        recorder.stop()
        recorder.step()
        assert reference() is None
        assert node() is None
    finally:
        recorder.close()
