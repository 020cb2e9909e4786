"""Checkpoints as trainers document them: every number in them is compared, or named as not compared; wherever it lies.

Made-up files with the keys of PyTorch Lightning, timm, MMEngine, fairseq, Detectron2, Composer, torchtitan, the Trainer
of Transformers, and Accelerate as the scripts of Diffusers use it.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from support.checkpoints import State, states_compared, trained_states

from msprobe.environment.checkpoint.comparison import CheckpointComparison


def lightning(weights: State, optimizer: State, schedule: State, average: State) -> State:
    return {
        "epoch": 3,
        "global_step": 30,
        "state_dict": weights,
        "loops": {"fit_loop": {"epoch_progress": {"total": {"ready": 3, "completed": 3}}}},
        "callbacks": {
            "EMAWeightAveraging": {"current_step": 30, "average_model": average},
            "EarlyStopping": {"wait_count": 2, "best_score": torch.tensor(0.5)},
        },
        "optimizer_states": [optimizer],
        "lr_schedulers": [schedule],
        "MixedPrecision": {"scale": 65536.0, "_growth_tracker": 5},
        "hyper_parameters": {"width": 5, "dropout": 0.1},
    }


def timm(weights: State, optimizer: State, schedule: State, average: State) -> State:
    return {
        "epoch": 3,
        "arch": "mixer",
        "state_dict": weights,
        "optimizer": optimizer,
        "version": 2,
        "amp_scaler": {"scale": 65536.0, "_growth_tracker": 5},
        "state_dict_ema": average,
        "metric": 71.5,
    }


def mmengine(weights: State, optimizer: State, schedule: State, average: State) -> State:
    return {
        "meta": {"epoch": 3, "iter": 30, "seed": 7},
        "state_dict": weights,
        "ema_state_dict": {**{f"module.{name}": one for name, one in average.items()}, "steps": torch.tensor(30)},
        "optimizer": {**optimizer, "base_param_settings": {"lr": 0.1}},
        "param_schedulers": [schedule],
        "message_hub": {"log_scalars": {}, "runtime_info": {"iter": 30}},
    }


def fairseq(weights: State, optimizer: State, schedule: State, average: State) -> State:
    return {
        "model": weights,
        "optimizer_history": [{"num_updates": 30, "lr_scheduler_state": {"best": 1.5}}],
        "last_optimizer_state": optimizer,
        "extra_state": {"ema_fp32_params": average, "train_iterator": {"epoch": 3, "iterations_in_epoch": 10}},
    }


def detectron2(weights: State, optimizer: State, schedule: State, average: State) -> State:
    return {
        "model": weights,
        "optimizer": optimizer,
        "scheduler": schedule,
        "ema_state": {"state": average, "decay": 0.999},
        "iteration": 30,
    }


def composer(weights: State, optimizer: State, schedule: State, average: State) -> State:
    return {
        "state": {
            "model": weights,
            "optimizers": {"DecoupledAdamW": optimizer},
            "schedulers": {"CosineAnnealingLR": schedule},
            "algorithms": [("EMA", {"ema_model": {"named_parameters_dict": average}, "ema_started": True})],
            "timestamp": {"Timestamp": {"batch": 30, "token": 4096}},
        },
        "rng": [{"python": [3, 1, 2]}],
    }


def torchtitan(weights: State, optimizer: State, schedule: State, average: State) -> State:
    flat = {
        f"state.{name}.{word}": one
        for name, of in zip(weights, optimizer["state"].values(), strict=True)
        for word, one in of.items()
    }
    groups = {f"param_groups.{name}.lr": optimizer["param_groups"][0]["lr"] for name in weights}
    return {
        "model": weights,
        "optimizer": {**flat, **groups},
        "lr_scheduler": schedule,
        "ema": average,
        "train_state": {"step": 30, "ntokens_seen": 4096},
    }


FILES: dict[str, Callable[..., State]] = {
    one.__name__: one for one in (lightning, timm, mmengine, fairseq, detectron2, composer, torchtitan)
}


def leaves(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The places of all numbers and tensors."""
    if isinstance(value, dict):
        for key, item in value.items():
            yield from leaves(item, (*path, key))
    elif isinstance(value, (list, tuple)):
        for at, item in enumerate(value):
            yield from leaves(item, (*path, at))
    elif isinstance(value, torch.Tensor) or (isinstance(value, (int, float)) and not isinstance(value, bool)):
        yield path


def changed(state: Any, path: tuple[Any, ...]) -> Any:
    """A copy with another number there."""
    if not path:
        if isinstance(state, torch.Tensor):
            other = state.clone()
            other.view(-1)[0] += 1
            return other
        return state + 1
    key, *rest = path
    if isinstance(state, dict):
        return {**state, key: changed(state[key], tuple(rest))}
    made = list(state)
    made[key] = changed(state[key], tuple(rest))
    return type(state)(made)


def lacking(state: Any, path: tuple[Any, ...]) -> Any:
    """A copy without it."""
    key, *rest = path
    if rest:
        return {**state, key: lacking(state[key], tuple(rest))}
    return {name: one for name, one in state.items() if name != key}


def is_said(found: CheckpointComparison, key: str = "") -> bool:
    """Whether a reader learns of it: by the status, or by a note with its name."""
    return found.coverage.status(found.differs) != 0 or any(key in note for note in found.notes)


@pytest.mark.parametrize("name", FILES)
def test_the_same_is_equal_and_all_of_it_is_compared(tmp_path: Path, name: str) -> None:
    state = FILES[name](*trained_states())
    found = states_compared(tmp_path, state, copy.deepcopy(state))
    assert (found.differs, found.coverage.not_read) == (False, ())


@pytest.mark.parametrize("name", FILES)
def test_no_number_that_differs_passes_in_silence(tmp_path: Path, name: str) -> None:
    """Of single values a note says which differ; the numbers of parameters in groups are names and no values."""
    state = FILES[name](*trained_states())
    places = [path for path in leaves(state) if "params" not in path]
    silent = [
        path for path in places if not is_said(states_compared(tmp_path, state, changed(state, path)), str(path[-1]))
    ]
    assert not silent


@pytest.mark.parametrize("swapped", [False, True])
@pytest.mark.parametrize("name", FILES)
def test_no_part_that_is_missing_passes_in_silence(tmp_path: Path, name: str, swapped: bool) -> None:
    state = FILES[name](*trained_states())
    silent = []
    for key in state:
        sides = (state, lacking(state, (key,)))
        if not is_said(states_compared(tmp_path, *(sides[::-1] if swapped else sides)), key):
            silent.append(key)
    assert not silent


def test_a_scaler_is_known_by_what_it_holds(tmp_path: Path) -> None:
    state = lightning(*trained_states())
    found = states_compared(tmp_path, state, lacking(state, ("MixedPrecision",)))
    assert found.differs
    assert all("MixedPrecision" in row.name for row in found.rows if row.kind != "equal")
