"""With the C extension and without it the same is recorded: each side is a process of its own, and the one without has
nothing of it, neither encoder nor memo nor statistics.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support import forked
from support.native_and_python import differences, use_python

from msprobe.capture import native
from msprobe.statistics_table import NAMES
from msprobe.store.reader import open_dump

pytestmark = pytest.mark.skipif(not native.built, reason="the C extension was not built")

STATISTICS = {"task": "statistics", "level": "mix"}
# None with memory that nobody has written: what stands there is chance.
WAYS: dict[str, tuple[dict[str, Any], list[str]]] = {
    "modules": (
        {"task": "statistics", "level": "L0"},
        ["lstm", "recompute_reentrant", "strange_containers", "exceptions_caught_in_forward", "tensor_subclass",
         "module_returning_two_views", "in_place_relu_chain", "gradient_accumulation", "model_changes_while_recording"],
    ),
    "modules and calls": (
        STATISTICS,
        ["complex_fft", "sparse_embedding", "custom_function", "writes_into_views", "autocast_grad_scaler", "threads",
         "shared_modules_and_tensors"],
    ),
    "md5": ({**STATISTICS, "statistics": {"summary_mode": "md5"}}, ["unusual_dtypes", "recompute_non_reentrant"]),
    "xor": ({**STATISTICS, "level": "L1", "statistics": {"summary_mode": "xor"}}, ["unusual_dtypes", "complex_fft"]),
    "xxh3": ({**STATISTICS, "statistics": {"summary_mode": "xxh3"}}, ["unusual_dtypes", "bfloat16_mlp"]),
    "list": ({**STATISTICS, "statistics": {"summary_mode": [*NAMES]}}, ["unusual_dtypes", "complex_fft"]),
    "structure": ({"task": "structure", "level": "mix"}, ["bfloat16_mlp"]),
    "tensors": ({"task": "tensor", "level": "mix"}, ["unusual_dtypes", "writes_into_views"]),
    "precise": ({**STATISTICS, "precision": "high"}, ["bfloat16_mlp"]),
    "operators": ({"task": "statistics", "level": "L2"}, ["bfloat16_mlp"]),
    "by hand": ({"task": "statistics", "level": "debug"}, ["variables_saved_by_hand"]),
    "overflow": ({"task": "overflow_check", "level": "L1", "overflow_check": {"overflow_nums": -1}}, ["bfloat16_mlp"]),
    "some": ({**STATISTICS, "statistics": {"list": ["linear"], "data_mode": ["forward"]}}, ["custom_function"]),
}  # fmt: skip
SCRIPT = Path(__file__).with_name("record_zoo.py")


@pytest.fixture(scope="module")
def sides(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The folders of all recordings: with the extension, and without."""
    folders = {side: tmp_path_factory.mktemp(side) for side in ("native", "python")}
    # What is tested here, wherever it is imported from.
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path), "OMP_NUM_THREADS": "1"}
    env.pop("MSPROBE_NATIVE", None)
    started = [
        # Which of both it is, is settled when msprobe is imported: each is forked from a process of its own.
        forked.start(str(SCRIPT), str(folder), json.dumps(WAYS), cwd=folder, env={**env, **switch})
        for folder, switch in zip(folders.values(), ({}, {"MSPROBE_NATIVE": "0"}), strict=True)
    ]
    for ended in [one.wait(250) for one in started]:
        assert ended.returncode == 0, ended.stderr[-3000:]
    return folders


def content(file: Path) -> Any:
    """What a file says of the run, without where and in which process that was; rows are compared by themselves."""
    if file.name.endswith("_rows.bin"):
        return None
    if file.suffix != ".json":
        return file.read_bytes()
    found = json.loads(file.read_text(), parse_constant=str, object_hook=without_row)
    if "data" in found:
        found.pop("dump_data_dir", None)
        found["msprobe"].pop("process")
    return found


def without_row(found: dict[str, Any]) -> dict[str, Any]:
    """An object without the number of a row: equal elements have one row, and last digits may make it two."""
    if "dtype" in found and "row" in found:
        found["row"] = True
    return found


def assert_rows_agree(ours: Path, theirs: Path) -> None:
    """The rows of all tensors are the same but for the last digits."""
    tables = []
    for folder in (ours, theirs):
        dump = open_dump(folder)
        part = dump.part(kind="debug" if (folder / "debug.json").exists() else "dump")
        tensors = part.tensors()
        tables.append(part.rows.take(tensors.row))
        part.close()
    size = np.sqrt(tables[0]["squares"]) + 1e-30
    for name in tables[0].dtype.names or ():
        left, right = (np.nan_to_num(table[name], nan=-7.0).reshape(len(size), -1) for table in tables)
        near = 1e-9 * np.abs(right) + 1e-7 * np.nan_to_num(size)[:, None]
        assert (np.abs(left - right) <= near).all(), name


def test_the_one_side_has_nothing_of_the_extension_and_the_other_uses_it(sides: dict[str, Path]) -> None:
    told = {side: json.loads((folder / "recorder.json").read_text()) for side, folder in sides.items()}
    assert told["python"] == {"extension": False, "memo": False, "encoder": "msprobe.store.encode"}
    assert told["native"] == {"extension": True, "memo": True, "encoder": "msprobe.capture._native"}


@pytest.mark.parametrize("way", WAYS)
def test_both_record_the_same(sides: dict[str, Path], way: str) -> None:
    ours, theirs = (
        {str(file.relative_to(folder / way)): file for file in (folder / way).rglob("*") if is_of_a_dump(file)}
        for folder in (sides["native"], sides["python"])
    )
    assert sorted(ours) == sorted(theirs)
    assert sum(name.endswith(("dump.json", "debug.json")) for name in ours) >= len(WAYS[way][1])
    found = [f"{name}{where}" for name in ours for where in differences(content(ours[name]), content(theirs[name]))]
    assert not found, found[:20]
    for name in ours:
        if name.endswith("_rows.bin"):
            assert_rows_agree(ours[name].parent, theirs[name].parent)


def is_of_a_dump(file: Path) -> bool:
    return file.is_file() and file.name != "config.json"


@pytest.fixture
def tree() -> dict[str, Any]:
    info = {"dtype": "torch.float32", "Max": 2.0, "Min": -1.0, "Mean": 0.25, "Norm": 3.0, "requires_grad": True}
    return {"data": {"Torch.add.0.forward": {"output": [info]}}}


def changed(tree: dict[str, Any], key: str, value: Any) -> dict[str, Any]:
    other: dict[str, Any] = json.loads(json.dumps(tree))
    other["data"]["Torch.add.0.forward"]["output"][0][key] = value
    return other


@pytest.mark.parametrize(
    ("key", "value"),
    [("Max", 2.0000002), ("Mean", 0.2501), ("Norm", 3.001), ("Norm", None), ("requires_grad", 1), ("zero", 1)],
)
def test_a_difference_that_is_no_rounding_is_found(tree: dict[str, Any], key: str, value: Any) -> None:
    assert list(differences(tree, changed(tree, key, value)))


def test_the_last_digits_of_a_sum_are_no_difference(tree: dict[str, Any]) -> None:
    assert not list(differences(tree, changed(changed(tree, "Mean", 0.25000003), "Norm", 3.0000002)))


def test_names_in_another_order_are_a_difference() -> None:
    assert list(differences({"a": 1, "b": 2}, {"b": 2, "a": 1}))


def test_without_the_extension_nothing_of_it_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    use_python(monkeypatch)
    bound = {name for name, value in vars(native).items() if is_native(value)}
    assert bound <= {"_native", "Info"}


def is_native(value: object) -> bool:
    return "_native" in str(getattr(value, "__module__", "")) or getattr(value, "__name__", "") == (
        "msprobe.capture._native"
    )
