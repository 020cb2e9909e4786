"""What MindSpore is told when it dumps kernels itself, and the statistics that are made where it refuses them.

Files only: MindSpore is not asked, so these run without it.
"""

from __future__ import annotations

import csv
import hashlib
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from msprobe.capture.mindspore.graphs.kernel_config import KernelDump, by_graph, by_kernel, kinds_of
from msprobe.capture.mindspore.graphs.kernel_statistics import summarise
from msprobe.config.load import load_settings
from msprobe.config.settings import Settings


def settings(folder: Path, **fields: Any) -> Settings:
    return load_settings(None, dump_path=str(folder), level="L2", **fields)


def common(dump: KernelDump) -> dict[str, Any]:
    assert None not in [value for part in dump.content.values() for value in part.values()]
    json.dumps(dump.content)
    found: dict[str, Any] = dump.content["common_dump_settings"]
    return found


def test_tensors_of_all_kernels(tmp_path: Path) -> None:
    dump = by_kernel(settings(tmp_path, task="tensor"))
    assert dump.name == "kernel_kbyk_dump.json"
    assert common(dump) == {
        "dump_mode": 0,
        "path": str(tmp_path),
        "net_name": "Net",
        "iteration": "all",
        "saved_data": "tensor",
        "input_output": 0,
        "kernels": [],
        "support_device": [0, 1, 2, 3, 4, 5, 6, 7],
    }
    assert dump.content["e2e_dump_settings"] == {"enable": True, "trans_flag": True}


@pytest.mark.parametrize(("mode", "number"), [(["all"], 0), (["input"], 1), (["output"], 2), (["input", "output"], 0)])
def test_chosen_kernels_steps_ranks_and_sides(tmp_path: Path, mode: list[str], number: int) -> None:
    names = ["MatMul", "name-regex(.+Tanh.+)", "Default/a/Add-op1"]
    asked = settings(tmp_path, task="tensor", step=[0, "2-4"], rank=[1], list=names, data_mode=mode, async_dump=True)
    for dump in (by_kernel(asked), by_graph(asked)):
        told = common(dump)
        assert (told["dump_mode"], told["kernels"]) == (1, names)
        assert (told["iteration"], told["support_device"]) == ("0|2|3|4", [1])
        assert told["input_output"] == number
    assert by_kernel(asked).content["e2e_dump_settings"]["enable"] is False


@pytest.mark.parametrize(
    ("mode", "categories"),
    [
        ("statistics", None),
        ("md5", ["max", "min", "l2norm", "md5"]),
        (["mean", "max"], ["avg", "max"]),
        (["nan count", "hash"], ["nan count", "hash"]),
    ],
)
def test_statistics_and_how_they_are_computed(tmp_path: Path, mode: Any, categories: list[str] | None) -> None:
    asked = settings(tmp_path, summary_mode=mode, device="device")
    dump = by_kernel(asked)
    assert common(dump)["saved_data"] == "statistic"
    assert common(dump).get("statistic_category") == categories
    assert dump.content["e2e_dump_settings"]["stat_calc_mode"] == "device"
    assert dump.content["e2e_dump_settings"]["device_stat_precision_mode"] == "high"
    assert common(by_graph(asked)).get("statistic_category") == categories
    # Where tensors stand in for statistics nothing is said of statistics.
    assert not {"statistic_category", "stat_calc_mode"} & set().union(*by_kernel(asked, True).content.values())


@pytest.mark.parametrize(("given", "told"), [(None, None), ("bin", "bin"), ("npy", "npy")])
def test_graphs_that_run_as_a_whole(tmp_path: Path, given: str | None, told: str | None) -> None:
    dump = by_graph(settings(tmp_path, task="tensor", file_format=given))
    assert dump.name == "kernel_graph_dump.json"
    assert list(dump.content) == ["common_dump_settings"]
    assert common(dump)["op_debug_mode"] == 0
    assert common(dump).get("file_format") == told


@pytest.mark.parametrize(("mode", "number"), [("all", 3), ("aicore", 1), ("atomic", 2)])
def test_an_overflow_check_by_the_device(tmp_path: Path, mode: str, number: int) -> None:
    dump = by_graph(settings(tmp_path, task="overflow_check", check_mode=mode, step=[3]))
    assert dump.name == "kernel_graph_overflow_check.json"
    told = common(dump)
    assert (told["op_debug_mode"], told["saved_data"], told["iteration"]) == (number, "full", "all")


def test_a_dump_of_what_fails(tmp_path: Path) -> None:
    dump = by_graph(settings(tmp_path, task="exception_dump", step=[3]))
    assert dump.name == "kernel_graph_exception_check.json"
    told = common(dump)
    assert (told["op_debug_mode"], told["saved_data"], told["iteration"]) == (4, "tensor", "3")


def test_statistics_of_dumped_tensors(tmp_path: Path) -> None:
    iteration = tmp_path / "rank_0" / "Net" / "0" / "0"
    iteration.mkdir(parents=True)
    values = np.array([[1.0, -2.0, 0.0], [np.nan, np.inf, -np.inf]], np.float32)
    whole = np.array([3, 0, -4], np.int64)
    np.save(iteration / "Add.Default_Add-op0.0.0.17.input.0.DefaultFormat.Float32.npy", values)
    np.save(iteration / "Add.Default_Add-op0.0.0.17.output.0.DefaultFormat.Int64.npy", whole)
    np.save(iteration / "Add.Default_Add-op1.0.0.18.output.0.DefaultFormat.Float32.npy", np.zeros((0,), np.float32))
    kinds = "max min mean count md5 l2norm".split() + [f"{word} count" for word in "nan zero".split()]
    kinds += [f"{sign} {word} count" for sign in ("negative", "positive") for word in ("zero", "inf")]
    summarise(tmp_path, kinds)
    assert [file.name for file in iteration.iterdir()] == ["statistic.csv"]
    with (iteration / "statistic.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert list(rows[0])[10:] == [
        "Max Value",
        "Min Value",
        "Avg Value",
        "Count",
        "Negative Zero Count",
        "Positive Zero Count",
        "NaN Count",
        "Negative Inf Count",
        "Positive Inf Count",
        "Zero Count",
        "MD5",
        "L2Norm Value",
    ]
    odd, plain, empty = rows
    counts = [odd[key] for key in list(odd) if key.endswith("Count")]
    assert counts == ["6", "2", "2", "1", "1", "1", "1"]
    assert odd["Max Value"] == "nan"
    assert odd["MD5"] == hashlib.md5(values.tobytes()).hexdigest()
    assert (plain["Max Value"], plain["Min Value"], plain["L2Norm Value"]) == ("3", "-4", "5.0")
    assert float(plain["Avg Value"]) == pytest.approx(-1 / 3)
    assert empty["Max Value"] == empty["L2Norm Value"] == "null"


def test_the_usual_statistics(tmp_path: Path) -> None:
    assert kinds_of(settings(tmp_path)) == ("max", "min", "l2norm")
    assert kinds_of(settings(tmp_path, summary_mode=["mean"])) == ("mean",)
