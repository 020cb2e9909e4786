"""Whatever function of msprobe fails inside a training: the training ends as it would alone, with the same numbers.

Each training is run once to learn which functions of msprobe it reaches, and then once for each of them, in which that
function raises each time it is called. The usual tests take a sample; ``-m slow`` takes every function, and lets each
fail at its second call, too, where something of ours is half done.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.broken_functions import Ended, Trainings, every

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")

# What does nothing but hand a call of the program's on: an error of its own can only be one of the program's.
HANDS_ON = (
    "capture/around.py:AroundPython.__call__:",
    "capture/torch/watched_functions.py:_Watched.call:",
    "capture/torch/compiled/compiled_regions.py:CompiledRegions._compiled_backward.apply:",
    "capture/torch/compiled/compiler.py:RegionWatch.replacement.set_eval_frame:",
    "capture/torch/calls/functions.py:CustomFunctions._apply.run:",
    "capture/torch/calls/foreign_code.py:",
    "capture/torch/operators/dispatch_watch.py:_Kernel._find:",
    "capture/torch/operators/dispatch_watch.py:_Kernel._pass_on:",
    "capture/torch/operators/dispatch_watch.py:_Kernel._recorder.",
    "capture/torch/calls/custom.py:_recorded.run:",
    "capture/torch/calls/recorded_call.py:run_call:",
)
#: The usual tests take one of so many functions.
USUAL = 160
TRAININGS: dict[str, tuple[str, dict[str, Any]]] = {
    "mix": ("debugger", {"task": "statistics", "level": "mix"}),
    "L0": ("debugger", {"task": "statistics", "level": "L0"}),
    "L1, tensor": ("debugger", {"task": "tensor", "level": "L1"}),
    "L2": ("debugger", {"task": "statistics", "level": "L2"}),
    "overflow_check": ("debugger", {"task": "overflow_check", "level": "mix"}),
    "free_benchmark": ("debugger", {"task": "free_benchmark"}),
    "run": ("run", {"task": "statistics", "level": "mix"}),
    "run, tensor": ("run", {"task": "tensor", "level": "L1"}),
    "monitor": ("monitor", {}),
    "gradient probe": ("gradient_probe", {}),
    "listeners": ("listeners", {}),
    "configuration check": ("config_check", {}),
}


@pytest.fixture(scope="module")
def trainings() -> Iterator[Trainings]:
    ready = Trainings("unlucky_trainings")
    yield ready
    ready.close()


@pytest.fixture(scope="module")
def without_extension() -> Iterator[Trainings]:
    ready = Trainings("unlucky_trainings", {"MSPROBE_NATIVE": "0"})
    yield ready
    ready.close()


def holes(ready: Trainings, place: Path, training: str, share: int, calls: tuple[int, ...]) -> list[str]:
    """The functions through which an error of ours got out, with what came of it."""
    name, options = TRAININGS[training]
    alone = ready.run("plain", place / "alone")
    assert alone.status == 0, alone.output
    whole = ready.run(name, place / "whole", **options)
    assert (whole.status, whole.digest) == (0, alone.digest), whole.output
    assert len(whole.called) > 100
    assert whole.raised == 0
    found: list[str] = []
    # Each training has a sample of its own: together they have most files in them.
    for function in every(list(whole.called), share, 13 * list(TRAININGS).index(training)):
        if function.startswith(HANDS_ON):
            continue
        for call in calls:
            if call > whole.called[function]:
                continue
            ended = ready.run(name, place / "broken", function, call, **options)
            shutil.rmtree(place / "broken")
            if ended.status or ended.digest != alone.digest:
                found.append(f"{function}, call {call}: {_text(ended, alone)}")
    return found


def _text(ended: Ended, alone: Ended) -> str:
    same = "the same numbers" if ended.digest == alone.digest else "other numbers"
    return f"status {ended.status}, {same}\n{ended.output[-1500:]}"


@pytest.mark.parametrize("training", TRAININGS)
def test_a_function_of_ours_that_fails_costs_the_training_nothing(
    trainings: Trainings, tmp_path: Path, training: str
) -> None:
    assert holes(trainings, tmp_path, training, USUAL, (0,)) == []


def test_nor_does_one_without_the_extension(without_extension: Trainings, tmp_path: Path) -> None:
    assert holes(without_extension, tmp_path, "mix", USUAL, (0,)) == []


@pytest.mark.slow
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("training", TRAININGS)
def test_none_of_all_functions_does(trainings: Trainings, tmp_path: Path, training: str) -> None:
    assert holes(trainings, tmp_path, training, 1, (0, 2)) == []


@pytest.mark.slow
@pytest.mark.timeout(7200)
def test_none_of_all_functions_does_without_the_extension(without_extension: Trainings, tmp_path: Path) -> None:
    assert holes(without_extension, tmp_path, "mix", 1, (0, 2)) == []
