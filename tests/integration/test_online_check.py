"""The online check with real processes: a training sends its calls, another process checks them while it trains."""

from __future__ import annotations

import csv
import json
import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")
TRAINING = Path(__file__).parent / "online_training.py"


def environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path), "OMP_NUM_THREADS": "1"}


def train(config: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, str(TRAINING), str(config), *words],
        env=environment(),
        capture_output=True,
        text=True,
        timeout=120,
    )


def free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port: int = free.getsockname()[1]
    return port


def place(tmp_path: Path, way: str) -> dict[str, Any]:
    if way == "tcp":
        return {"host": "127.0.0.1", "port": free_port()}
    (tmp_path / "shared").mkdir()
    return {"nfs_path": str(tmp_path / "shared")}


def configured(tmp_path: Path, where: dict[str, Any]) -> tuple[Path, Path]:
    sending, receiving = tmp_path / "send.json", tmp_path / "receive.json"
    recording = {"task": "tensor", "level": "L1", "step": [0, 2], "dump_path": str(tmp_path / "dump")}
    sending.write_text(json.dumps({**recording, "tensor": {"online_run_ut": True, **where}}))
    receiving.write_text(json.dumps({"run_ut": {"is_online": True, **where}}))
    return sending, receiving


def rows(file: Path) -> list[dict[str, str]]:
    with file.open(encoding="utf-8-sig", newline="") as opened:
        return list(csv.DictReader(opened))


@pytest.mark.parametrize("way", ["tcp", "folder"])
def test_a_wrong_kernel_is_named_while_the_training_runs(tmp_path: Path, way: str) -> None:
    sending, receiving = configured(tmp_path, place(tmp_path, way))
    command = [sys.executable, "-m", "msprobe", "-f", "pytorch", "run_ut", "-config", str(receiving)]
    command += ["-o", str(tmp_path / "out"), "--fail-on", "error", "--control", "cpu"]
    checking = subprocess.Popen(command, env=environment(), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    trained = train(sending, "wrong")
    said = checking.communicate(timeout=120)[0]
    assert trained.returncode == 0, trained.stderr
    assert checking.returncode == 1, said
    assert "1 of them are wrong" in said
    assert "rank 0, step 2: Functional.gelu.0" in said
    (result,) = (tmp_path / "out").glob("accuracy_checking_result_*_rank0.csv")
    found = rows(result)
    assert {row["Step"] for row in found} == {"0", "2"}
    assert [(row["API name"], row["Step"]) for row in found if "error" in row.values()] == [("Functional.gelu.0", "2")]
    assert {"Functional.relu.0", "Functional.layer_norm.0", "Torch.split.0"} <= {row["API name"] for row in found}
    assert len([row for row in found if row["Backward Test Success"] == "pass"]) >= 16
    (compared,) = (tmp_path / "out").glob("api_precision_compare_result_*_rank0_step2.csv")
    assert [row["API Name"] for row in rows(compared) if "error" in row.values()] == ["Functional.gelu.0"]
    assert not (tmp_path / "dump").exists()
    if way == "folder":
        assert list((tmp_path / "shared").iterdir()) == []


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"host": "", "port": -1}, 'give "host" and "port"'),
        ({"tls_path": "/nowhere/keys"}, "has no client.key, client.crt, ca.crt"),
    ],
)
def test_mistakes_of_the_sending_side(tmp_path: Path, changed: dict[str, Any], said: str) -> None:
    sending, _ = configured(tmp_path, {"host": "127.0.0.1", "port": 1, **changed})
    trained = train(sending)
    assert trained.returncode == 1
    assert said in trained.stderr


@pytest.mark.parametrize(
    ("where", "words", "said"),
    [
        ({}, [], '"is_online": true needs "host" and "port"'),
        ({"host": "300.1.1.1", "port": 70000}, [], "70000; allowed: a whole number from 1 to 65535"),
        ({"host": "127.0.0.1", "port": 5000}, ["--ranks", "0"], "--ranks must be 1 or more"),
        ({"host": "127.0.0.1", "port": 5000}, ["-api_info", "dump.json"], "give no -api_info"),
    ],
)
def test_mistakes_of_the_checking_side(tmp_path: Path, where: dict[str, Any], words: list[str], said: str) -> None:
    _, receiving = configured(tmp_path, where)
    command = [sys.executable, "-m", "msprobe", "run_ut", "-config", str(receiving), "-o", str(tmp_path / "out")]
    ended = subprocess.run([*command, *words], env=environment(), capture_output=True, text=True, timeout=60)
    assert ended.returncode not in (0, None)
    assert said in ended.stderr + ended.stdout
    assert "Traceback" not in ended.stderr
    assert not (tmp_path / "out").exists()
