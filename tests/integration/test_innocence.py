"""Training with recording on is, bit for bit, the training with recording off; and after stop nothing is
left behind.

Each architecture of the zoo is trained bare once, then once for each way of recording, from the same seed.
Compared are losses, gradients, weights, buffers, optimizer states, random generators, intermediate results
with their strides and versions, the autograd graph, what user hooks and modes saw, exceptions, warnings,
function objects, global tables.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import zoo
from innocence_observation import differences
from innocence_run import Nobody, Recorder, Setting, run, run_bare_twice, without_known_once
from support.row_by_row import in_turn

pytestmark = pytest.mark.usefixtures("one_thread")

SINGLE = [pytest.param(name, marks=[pytest.mark.slow] * a.slow) for name, a in zoo.load_all().items() if a.ranks == 1]
# What L0 and L1 put into a training, mix does at once.
LEVELS = in_turn(
    (name for name, architecture in zoo.load_all().items() if architecture.ranks == 1),
    [Setting("L0"), Setting("L1"), Setting("L2")],
    always=Setting("mix"),
    slow=[name for name, architecture in zoo.load_all().items() if architecture.slow],
)

# Other tasks and options, each on the architectures most likely to notice.
CHOSEN = [
    "cnn_batchnorm",
    "gpt_tied",
    "module_returning_two_views",
    "in_place_relu_chain",
    "writes_into_views",
    "custom_function",
    "recompute_reentrant",
    "recompute_non_reentrant",
    "complex_fft",
    "sparse_embedding",
    "autocast_grad_scaler",
    "bfloat16_mlp",
    "tensor_subclass",
    "per_sample_gradients",
    "exceptions_caught_in_forward",
    "random_everywhere",
    "stopped_before_backward",
    "variables_saved_by_hand",
]
OTHER_SETTINGS = [
    Setting("mix", "tensor"),
    Setting("mix", "statistics", {"summary_mode": "md5"}),
    Setting("mix", "structure"),
    Setting("mix", "overflow_check", {"overflow_nums": -1}),
    Setting("debug", "statistics"),
]
# By default each of the above on every second architecture. These record by the same code as one of them, of part of
# the calls or with another number in the end: on every third, each on another third.
LIKE_THOSE = [
    Setting("L1", "tensor"),
    Setting("L2", "tensor"),
    Setting("L1", "statistics", {"summary_mode": "xxh3"}),
    Setting("debug", "tensor"),
    Setting("L1", "overflow_check"),
]
FEW = ["resnet", "gpt_tied", "writes_into_views", "recompute_non_reentrant"]
OPTIONS = [
    Setting("L1", "nan_check"),
    Setting("mix", "statistics", {"data_mode": ["backward"]}),
    Setting("mix", "statistics", {"data_mode": ["forward", "output"]}),
    Setting("mix", "statistics", {"list": ["linear", "Linear"]}),
    Setting("mix", "statistics", {"list": ["matches nothing"]}),
    Setting("mix", "statistics", {"tensor_list": ["relu", "layer_norm"]}),
    Setting("mix", "statistics", {"summary_mode": "xor"}),
    Setting("mix", "statistics", top={"async_dump": True}),
    Setting("mix", "statistics", top={"precision": "high"}),
    Setting("mix", "statistics", top={"api_scope": "listed"}),
    Setting("mix", "statistics", top={"extra_info": False}),
    Setting("mix", "statistics", top={"optimizer": False}),
    Setting("mix", "statistics", top={"record_root": True, "buffers": True}),
    Setting("mix", "statistics", top={"step": [1]}),
    Setting("mix", "statistics", top={"rank": [7]}),
]

OTHERS = [
    *(
        pytest.param(name, setting, marks=[pytest.mark.slow] * ((i + j) % 2))
        for i, name in enumerate(CHOSEN)
        for j, setting in enumerate(OTHER_SETTINGS)
    ),
    *(
        pytest.param(name, setting, marks=[pytest.mark.slow] * ((i + j) % 3 != 2))
        for i, name in enumerate(CHOSEN)
        for j, setting in enumerate(LIKE_THOSE)
    ),
]
# Each option on two of the four by default; each of the four has half of the options.
WITH_OPTIONS = [
    pytest.param(name, setting, marks=[pytest.mark.slow] * ((i + j) % 4 > 1))
    for i, name in enumerate(FEW)
    for j, setting in enumerate(OPTIONS)
]


def check(name: str, setting: Setting, folder: Path) -> dict[str, list[str]]:
    """Fail where the recorded run differs from the bare one; give the names of what was recorded, by step."""
    _, off = run_bare_twice(name)
    recorder = Recorder(folder, setting)
    on = run(name, recorder)
    found = differences(*without_known_once(off, on))
    assert not found, f"{name} at {setting}: {len(found)} differences\n" + "\n".join(map(str, found[:15]))
    assert not recorder.faults(), f"{name} at {setting}: {recorder.faults()[:2000]}"
    return recorder.entries()


@pytest.mark.parametrize("name", SINGLE)
def test_bare_runs_are_reproducible(name: str) -> None:
    """Without this, the other tests would say nothing."""
    first, off = run_bare_twice(name)
    if differences(*without_known_once(off, first)):  # the first one may have been the first to use a part of torch
        assert not differences(*without_known_once(off, run(name, Nobody())))
    assert [path for path in off if path.startswith("step2/")]
    for path, value in off.items():
        if re.search(r"/region \d+ (inside|after stop)", path):
            assert value == [], f"{name}: {path}: {value}"


@pytest.mark.parametrize(("name", "setting"), LEVELS, ids=str)
def test_recording_changes_nothing(name: str, setting: Setting, tmp_path: Path) -> None:
    entries = check(name, setting, tmp_path)
    assert sorted(entries) == ["step0", "step1", "step2"]
    assert all(entries.values()), "a step without a single entry: nothing was recorded, so nothing was tested"


@pytest.mark.parametrize(("name", "setting"), OTHERS, ids=str)
def test_other_tasks_change_nothing(name: str, setting: Setting, tmp_path: Path) -> None:
    entries = check(name, setting, tmp_path)
    if setting.task == "overflow_check" or (setting.level == "debug" and name != "variables_saved_by_hand"):
        return
    assert sorted(entries) == ["step0", "step1", "step2"]
    assert all(entries.values())


@pytest.mark.parametrize(("name", "setting"), WITH_OPTIONS, ids=str)
def test_options_change_nothing(name: str, setting: Setting, tmp_path: Path) -> None:
    entries = check(name, setting, tmp_path)
    if "step" in setting.top:
        assert list(entries) == ["step1"]
        assert entries["step1"]
    elif "rank" in setting.top:
        assert not entries
    elif "list" not in setting.section and setting.task != "nan_check":
        assert all(entries[f"step{i}"] for i in range(3))
