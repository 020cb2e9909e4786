"""Two processes that `msrun` starts on the CPU: a folder for each rank, collectives in order, results untouched."""

from __future__ import annotations

import csv
import json
import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("mindspore", reason="MindSpore is not installed here; `make test-mindspore` runs these")
pytestmark = pytest.mark.mindspore

PROGRAM = Path(__file__).with_name("mindspore_ranks.py")
MONITORED = Path(__file__).with_name("mindspore_monitored_ranks.py")


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


def run_ranks(folder: Path, *arguments: str, program: Path = PROGRAM) -> list[list[Any]]:
    """What each of two ranks found."""
    folder.mkdir()
    tools = Path(sys.executable).parent
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PATH": f"{tools}{os.pathsep}{os.environ['PATH']}"}
    command = [
        str(tools / "msrun"),
        "--worker_num=2",
        "--local_worker_num=2",
        f"--master_port={free_port()}",
        "--join=True",
        f"--log_dir={folder / 'log'}",
        str(program),
        str(folder),
        *arguments,
    ]
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=200)
    logs = "\n".join(log.read_text()[-3000:] for log in sorted((folder / "log").glob("worker_*.log")))
    assert done.returncode == 0, logs
    results = []
    for rank in range(2):
        with np.load(folder / f"rank{rank}.npz") as found:
            results.append([found[name] for name in found.files])
    return results


def test_each_rank_has_its_folder_and_its_collectives_in_order(tmp_path: Path) -> None:
    dump = tmp_path / "dump"
    alone = run_ranks(tmp_path / "alone")
    recorded = run_ranks(tmp_path / "recorded", str(dump))
    for rank in range(2):
        assert len(alone[rank]) == len(recorded[rank])
        assert all(np.array_equal(one, other) for one, other in zip(alone[rank], recorded[rank], strict=True))
    for step in (0, 1):
        assert sorted(path.name for path in (dump / f"step{step}").iterdir()) == ["rank0", "rank1"]
        values: list[Any] = []
        for rank in range(2):
            folder = dump / f"step{step}" / f"rank{rank}"
            data = json.loads((folder / "dump.json").read_text())["data"]
            assert not (folder / "dump_error_info.log").exists()
            assert [name for name in data if "Distributed" in name] == [
                "MintDistributed.all_reduce.0.forward",
                "MintDistributed.all_gather.0.forward",
            ]
            files = folder / "dump_tensor_data"
            name = "MintDistributed.all_reduce.0.forward"
            values.append((np.load(files / f"{name}.input.0.npy"), np.load(files / f"{name}.output.0.npy")))
            gathered = data["MintDistributed.all_gather.0.forward"]["output"][0]
            saved = [np.load(files / part["data_name"]).tolist() for part in gathered]
            assert saved == [[0.0, float(step)], [1.0, float(step)]]
        (one, summed), (other, same) = values
        assert np.array_equal(summed, one + other)
        assert np.array_equal(summed, same)
        assert not np.array_equal(one, other)
    for rank in range(2):
        check_told(tmp_path / "recorded" / f"rank{rank}.json", dump, rank)


def check_told(file: Path, dump: Path, rank: int) -> None:
    """A listener is told of collectives when they are issued and when their values have arrived, dumped or not."""
    told = json.loads(file.read_text())
    names = ["MintDistributed.all_reduce.0.forward", "MintDistributed.all_gather.0.forward"]
    assert [moment[:3] for moment in told] == [
        [moment, step, name] for step in range(3) for name in names for moment in ("before", "after")
    ]
    for _, step, name, order, is_untouched in told[::2]:
        if step < 2:
            data = json.loads((dump / f"step{step}" / f"rank{rank}" / "dump.json").read_text())["data"]
            assert order == data[name]["msprobe"]["order"]
        else:
            assert order is None
        # Functions of other kinds are replaced where they are dumped, and not for a listener of collectives.
        assert is_untouched == (step == 2)
    for _, step, name, values, source in told[1::2]:
        assert "mindspore_ranks.py:" in source
        if "all_gather" in name:
            assert values == [[0.0, float(step)], [1.0, float(step)]]
        elif step < 2:
            saved = dump / f"step{step}" / f"rank{rank}" / "dump_tensor_data" / f"{name}.output.0.npy"
            assert np.array_equal(np.array(values[0], np.float32), np.load(saved))


def test_the_monitor_measures_gradients_before_and_after_they_are_reduced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MONITOR_OUTPUT_DIR", str(tmp_path / "out"))
    config = tmp_path / "monitor.json"
    communication = {"enable": True, "cc_pre_hook": True}
    ops = ["norm", "mean"]
    config.write_text(json.dumps({"wg_distribution": True, "cc_distribution": communication, "ops": ops}))
    alone = run_ranks(tmp_path / "alone", program=MONITORED)
    watched = run_ranks(tmp_path / "watched", str(config), program=MONITORED)
    for rank in range(2):
        assert all(np.array_equal(one, other) for one, other in zip(alone[rank], watched[rank], strict=True))
    means: dict[str, list[dict[str, float]]] = {}
    for folder in sorted((tmp_path / "out").iterdir(), key=lambda one: one.name.split("-")[-2]):
        for quantity in ("grad_unreduced", "grad_reduced", "other"):
            with (folder / f"{quantity}_1-1.csv").open(newline="") as file:
                rows = {row["name"]: float(row["mean"]) for row in csv.DictReader(file)}
            means.setdefault(quantity, []).append(rows)
    assert means["grad_reduced"][0] == means["grad_reduced"][1]
    assert means["grad_unreduced"][0] != means["grad_unreduced"][1]
    for name, reduced in means["grad_reduced"][0].items():
        local = [one[name] for one in means["grad_unreduced"]]
        assert reduced == pytest.approx(sum(local) / 2, rel=1e-5)
    assert set(means["other"][0]) == {"all_reduce.pre_0", "all_reduce.post_0"}
    assert means["other"][0]["all_reduce.post_0"] == means["other"][1]["all_reduce.post_0"]
    assert means["other"][0]["all_reduce.pre_0"] != means["other"][1]["all_reduce.pre_0"]
