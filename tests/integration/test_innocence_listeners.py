"""Training with a listener that looks at everything is, bit for bit, the training without; alone, and beside a dump,
which has the same records then.
"""

from __future__ import annotations

import functools
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import zoo
from innocence_observation import Observation, differences
from innocence_run import Recorder, Setting, run, run_bare_twice, without_known_once

from msprobe import listeners

# One of each kind that could notice: in place and views, custom Functions, recomputation, autocast, random numbers,
# modes and classes of tensors of the user, transforms, threads, compiled code, errors, packed sequences, hooks.
CHOSEN = [
    "cnn_batchnorm",
    "gpt_tied",
    "module_returning_two_views",
    "in_place_relu_chain",
    "custom_function",
    "recompute_reentrant",
    "recompute_non_reentrant",
    "autocast_grad_scaler",
    "function_mode_inside_the_region",
    "dispatch_mode_of_the_user",
    "tensor_subclass",
    "saved_tensor_hooks",
    "per_sample_gradients",
    "threads",
    "compiled_model",
    "exceptions_caught_in_forward",
    "random_everywhere",
    "lbfgs_closure",
    "encoder_layer_fast_path",
]
ALONE = Setting("mix", top={"step": [99]})
BESIDE = Setting("mix")


class Everything(listeners.Observer):
    """Computes with what it is told of, draws random numbers, and leaves modes as it likes."""

    def __init__(self) -> None:
        self.told: set[str] = set()
        # Inside of a transform of torch.func a random number is an error, for listeners as well.
        self.draws = True

    def before(self, event: Any) -> None:
        self._look(event, getattr(event, "args", ()))

    def after(self, event: Any, result: Any) -> None:
        self._look(event, (result,))

    def gradient(self, event: Any) -> None:
        self._look(event, (event.gradient,))

    def _look(self, event: Any, values: Any) -> None:
        self.told.add(event.name)
        if self.draws:
            torch.rand(1)
        np.random.rand()
        random.random()
        for value in values:
            if type(value) is torch.Tensor and value.is_floating_point() and not value.is_nested:
                value.detach().abs().sum()


class Listening(Recorder):
    """The recorder with such a listener."""

    def __init__(self, folder: Path, setting: Setting) -> None:
        super().__init__(folder, setting)
        self.everything = Everything()
        self.debugger.add(self.everything)


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@functools.cache
def bare_twice(name: str) -> tuple[Observation, Observation]:
    return run_bare_twice(name)


@pytest.mark.parametrize("setting", [ALONE, BESIDE], ids=["alone", "beside"])
@pytest.mark.parametrize("name", CHOSEN)
def test_a_listener_that_looks_at_everything_changes_nothing(
    name: str, setting: Setting, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert name in zoo.load_all()
    _, off = bare_twice(name)
    watcher = Listening(tmp_path, setting)
    watcher.everything.draws = name != "per_sample_gradients"
    on = run(name, watcher)
    found = differences(*without_known_once(off, on))
    assert not found, f"{name}: {len(found)} differences\n" + "\n".join(map(str, found[:15]))
    assert not watcher.faults(), watcher.faults()[:2000]
    assert "The listener Everything failed" not in capsys.readouterr().out
    assert len(watcher.everything.told) > 10
    assert bool(watcher.entries()) == (setting is BESIDE)
