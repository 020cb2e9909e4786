"""A torch without one of the private names that recording uses: the training is the same to the last bit, the log says
once what is not recorded, and everything else is.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from support.coded_texts import mentions

from msprobe.capture.torch.private import ABILITIES
from msprobe.messages import said

PROGRAM = Path(__file__).with_name("without_private_names.py")
Records = Mapping[str, Any]


def _without(*kinds: str) -> Callable[[Records], Records]:
    return lambda full: {name: tree for name, tree in full.items() if not any(kind in name for kind in kinds)}


def _everything(full: Records) -> Records:
    return full


def _renamed(full: Records) -> Records:
    return {name.replace("max_pool1d.", "max_pool1d_with_indices."): tree for name, tree in full.items()}


def _nothing(full: Records) -> Records:
    return {}


def _modules_only(full: Records) -> Records:
    return {name: tree for name, tree in full.items() if name.startswith(("Module.", "Optimizer.", "Distributed."))}


# What is left of the records of a whole training, by the ability that is lost.
LEFT: dict[str, Callable[[Records], Records]] = {
    "recording": _nothing,
    "calls": _modules_only,
    "gradients": _without(".backward"),
    "parameter gradients": _everything,
    "modules": _without("Module."),
    "threads of autograd": _everything,
    "memory": _everything,
    "transforms": _everything,
    "choices by argument": _renamed,
    "data loaders": _nothing,
    "compiled regions": _nothing,
    "compiled autograd": _everything,
    "waiting for collectives": _everything,
    "names of groups": _everything,
}


def recorded(folder: Path, *words: str) -> list[dict[str, Any]]:
    """What the program tells of each of its trainings."""
    command = [sys.executable, str(PROGRAM), str(folder), *words]
    done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, "OMP_NUM_THREADS": "1"})
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def check(trainings: list[dict[str, Any]]) -> None:
    """Hold what every training without some name promises."""
    (full, *others) = trainings
    assert full["same"]
    assert not full["faults"]
    assert len(full["records"]) > 30
    assert not [line for line in full["said"] if "torch 2" in line]
    assert {training["ability"] for training in others} == {"", *ABILITIES}
    for training in others:
        ability, hidden = training["ability"], ", ".join(training["hidden"])
        assert training["same"], f"the training is another one without {hidden}"
        assert not training["faults"], (hidden, training["faults"])
        without = said(ABILITIES[ability].without) if ability else ""
        told = [line for line in training["said"] if ability and mentions(line, "torch-lacks", without=without)]
        # Before 2.3 torch gives operators no names of groups.
        asked = ability != "names of groups" or any("Ops._c10d_functional" in name for name in full["records"])
        assert len(told) == bool(ability and asked), (hidden, training["said"])
        assert all(training["hidden"][0] in line for line in told)
        if ability == "operators by key":
            assert any(name.startswith("Aten.") for name in training["records"])
        elif ability == "operators by mode":
            assert not training["records"]
        else:
            expected = LEFT.get(ability, _everything)(full["records"])
            assert list(training["records"]) == list(expected), hidden
    by_ability = {training["ability"]: training["records"] for training in others if training["ability"]}
    sines = {ability: records.get("Torch.sin.0.forward") for ability, records in by_ability.items()}
    assert sines["memory"]["output"][0]["Norm"] is not None
    assert sines["transforms"]["output"][0]["Norm"] is None
    gradients = [tree for name, tree in by_ability["parameter gradients"].items() if name.endswith("parameters_grad")]
    assert gradients
    assert all(value == [None] for tree in gradients for value in tree.values())


def test_without_an_ability_the_rest_is_recorded(tmp_path: Path) -> None:
    check(recorded(tmp_path))


@pytest.mark.slow
def test_without_any_one_name_the_rest_is_recorded(tmp_path: Path) -> None:
    check(recorded(tmp_path, "each"))
