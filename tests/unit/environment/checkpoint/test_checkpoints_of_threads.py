"""Checkpoints of public threads: other prefixes, misspelt keys, tied and lost tensors. Equal is equal, and what differs
or is not there is named. A comment names the project and the subject."""

from __future__ import annotations

import copy
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from support.checkpoints import State, states_compared, trained_states


def trained() -> State:
    """What a training saves: model, average, optimizer, schedule, scaler."""
    weights, optimizer, schedule, average = trained_states()
    return {
        "model": weights,
        "state_dict_ema": average,
        "optimizer_state_dict": optimizer,
        "scheduler": schedule,
        "scaler": {"scale": 65536.0, "growth_factor": 2.0, "_growth_tracker": 3},
        "epoch": 3,
    }


def prefixed(key: str, prefix: str) -> Callable[[State], None]:
    def change(state: State) -> None:
        state[key] = {prefix + name: one for name, one in state[key].items()}

    return change


def inside(key: str, words: str) -> Callable[[State], None]:
    """The words behind the first part of each name, as wrappers of single layers write them."""

    def change(state: State) -> None:
        parts = {name: name.partition(".") for name in state[key]}
        state[key] = {f"{parts[name][0]}.{words}{parts[name][2]}": one for name, one in state[key].items()}

    return change


def renamed(**names: str) -> Callable[[State], None]:
    def change(state: State) -> None:
        for old, new in names.items():
            state[new] = state.pop(old)

    return change


def in_capitals(state: State) -> None:
    for name in ("model", "optimizer_state_dict"):
        state[name.removesuffix("_state_dict").upper()] = state.pop(name)


def as_double(state: State) -> None:
    state["optimizer_state_dict"]["param_groups"][0]["lr"] = torch.tensor(
        state["optimizer_state_dict"]["param_groups"][0]["lr"], dtype=torch.float64
    )


EQUAL: dict[str, Callable[[State], None]] = {
    # sming256/OpenTAD 44: averages of a distributed training have "module."
    "averages with module.": prefixed("state_dict_ema", "module."),
    # many: a compiled model has "_orig_mod."
    "a compiled model": prefixed("model", "_orig_mod."),
    "both": prefixed("model", "_orig_mod.module."),
    # facebookresearch/d2go 578: a checkpointed layer has "_checkpoint_wrapped_module." in the averages alone
    "a checkpointed layer": inside("state_dict_ema", "_checkpoint_wrapped_module."),
    # facebookresearch/fairseq 3464: wrappers of fairscale
    "fairscale": inside("model", "_fsdp_wrapped_module._fpw_module."),
    "FSDP": inside("model", "_fsdp_wrapped_module."),
    # PolymathicAI/the_well 77: a misspelt key
    "a misspelt key": renamed(optimizer_state_dict="optimizer_state_dit"),
    # pytorch/torchtitan 1347: keys in capitals
    "keys in capitals": in_capitals,
    # XPixelGroup/BasicSR 327: plural names
    "plural names": renamed(optimizer_state_dict="optimizers", scheduler="schedulers"),
    "keys of Lightning": renamed(
        model="state_dict", optimizer_state_dict="optimizer_states", scheduler="lr_schedulers"
    ),
    # a learning rate that is a tensor
    "a learning rate as a tensor": as_double,
}


@pytest.mark.parametrize("name", EQUAL)
def test_what_is_called_otherwise_is_equal(tmp_path: Path, name: str) -> None:
    first, second = trained(), copy.deepcopy(trained())
    EQUAL[name](second)
    found = states_compared(tmp_path, first, second)
    assert not found.differs, [(row.name, row.kind) for row in found.rows if row.kind != "equal"]
    assert found.coverage.is_complete, found.coverage


def a_reset_rate(state: State) -> None:
    state["optimizer_state_dict"]["param_groups"][0]["lr"] = 0.1


def a_reset_schedule(state: State) -> None:
    state["scheduler"]["last_epoch"] = 0


def cold_moments(state: State) -> None:
    for one in state["optimizer_state_dict"]["state"].values():
        one["exp_avg"].zero_()
        one["exp_avg_sq"].zero_()


def an_empty_tensor(state: State) -> None:
    state["model"]["0.weight"] = state["model"]["0.weight"][:0]


def half_of_a_norm(state: State) -> None:
    state["model"]["1.weight"] = state["model"]["1.weight"][:2]


def an_average_that_is_the_model(state: State) -> None:
    state["state_dict_ema"] = dict(state["model"])


def in_half_precision(state: State) -> None:
    state["model"]["2.weight"] = state["model"]["2.weight"].bfloat16().float()


def a_scale_of_one(state: State) -> None:
    state["scaler"]["scale"] = 1.0


def one_step_more(state: State) -> None:
    for one in state["optimizer_state_dict"]["state"].values():
        one["step"] = one["step"] + 1


def groups_in_other_order(state: State) -> None:
    moments = state["optimizer_state_dict"]["state"]
    moments[1]["exp_avg"], moments[2]["exp_avg"] = moments[2]["exp_avg"], moments[1]["exp_avg"]


#: What differs, and a word of the first name that is not equal.
APART: dict[str, tuple[Callable[[State], None], str]] = {
    # IntelLabs/distiller 145, ultralytics/yolov5 292: resuming resets the learning rate
    "a rate that was reset": (a_reset_rate, "lr"),
    # pytorch 60265, LibreYOLO 277: the schedule begins again
    "a schedule that was reset": (a_reset_schedule, "last_epoch"),
    # CodefyUI 147: moments are thrown away
    "cold moments": (cold_moments, "exp_avg"),
    # huggingface/accelerate 2155: a shared tensor of size 0, a norm of half its size
    "a tensor of size 0": (an_empty_tensor, "0.weight"),
    "half of a norm": (half_of_a_norm, "1.weight"),
    # m2lines/Samudra 312: averages are not restored, and begin from the weights
    "averages that are the weights": (an_average_that_is_the_model, "ema"),
    # many: weights that went through bfloat16
    "through half precision": (in_half_precision, "2.weight"),
    # PolymathicAI/the_well 77: the scaler begins again
    "a scale of 1": (a_scale_of_one, "scale"),
    "one step more": (one_step_more, "step"),
    # pytorch 124546: moments of other parameters
    "exchanged moments": (groups_in_other_order, "exp_avg"),
}


@pytest.mark.parametrize("name", APART)
def test_what_a_resumed_training_lost_is_named(tmp_path: Path, name: str) -> None:
    change, word = APART[name]
    first, second = trained(), copy.deepcopy(trained())
    change(second)
    found = states_compared(tmp_path, first, second)
    apart = [row.name for row in found.rows if row.kind != "equal"]
    assert found.differs
    assert apart
    assert all(word in one for one in apart), apart


def without(*keys: str) -> Callable[[State], None]:
    def change(state: State) -> None:
        for key in keys:
            del state[key]

    return change


def no_state(state: State) -> None:
    state["optimizer_state_dict"]["state"] = {}


def no_step(state: State) -> None:
    for one in state["optimizer_state_dict"]["state"].values():
        del one["step"]


#: What one side does not have, and a word that names it.
MISSING: dict[str, tuple[Callable[[State], None], str]] = {
    # IntelLabs/distiller 145: the optimizer is not loaded, nor saved
    "no optimizer": (without("optimizer_state_dict"), "exp_avg"),
    # D-X-Y/NAS-Bench-201 19: no schedule
    "no schedule": (without("scheduler"), "scheduler"),
    "no averages": (without("state_dict_ema"), "ema"),
    "weights alone": (without("optimizer_state_dict", "scheduler", "scaler", "state_dict_ema"), "optimizer"),
    # CodefyUI 147: an optimizer that never trained
    "an optimizer without a state": (no_state, "exp_avg"),
    # huggingface/accelerate 3971: moments without a step
    "moments without a step": (no_step, "step"),
}


@pytest.mark.parametrize("swapped", [False, True])
@pytest.mark.parametrize("name", MISSING)
def test_what_one_side_does_not_have_is_named(tmp_path: Path, name: str, swapped: bool) -> None:
    change, word = MISSING[name]
    first, second = trained(), copy.deepcopy(trained())
    change(second)
    found = states_compared(tmp_path, *((second, first) if swapped else (first, second)))
    named = [row.name for row in found.rows if row.kind != "equal"] + [one.what for one in found.coverage.not_read]
    assert named
    assert any(word in one for one in named), named
    assert found.differs or not found.coverage.is_complete


@pytest.mark.parametrize(("change", "differs"), [(0.0, False), (1e-3, True)])
def test_a_tied_head_that_was_saved_twice_counts_once(tmp_path: Path, change: float, differs: bool) -> None:
    """EvolvingLMMs-Lab/lmms-engine 157: FSDP saves tied weights as independent ones; they may have parted."""
    torch.manual_seed(0)
    table = torch.randn(11, 4)
    tied = {"model": {"embed.weight": table, "body.weight": torch.randn(4, 4), "lm_head.weight": table}}
    copied = {"model": {name: one.clone() for name, one in tied["model"].items()}}
    copied["model"]["lm_head.weight"][3, 1] += change
    found = states_compared(tmp_path, tied, copied)
    assert found.differs is differs
    assert all("lm_head" in row.name for row in found.rows if row.kind != "equal")
