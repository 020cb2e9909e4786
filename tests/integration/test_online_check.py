"""The online check with real processes: a training sends its calls, another process checks them while it trains."""

from __future__ import annotations

import csv
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support import forked
from support.coded_texts import mentions
from support.tls_keys import made_keys

from msprobe.messages import said
from msprobe.store.processes import this_process

pytest.importorskip("torch")
TRAINING = Path(__file__).parent / "online_training.py"


def environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path), "OMP_NUM_THREADS": "1"}


def train(config: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return forked.run(str(TRAINING), str(config), *words, cwd=config.parent, env=environment())


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


def configured(tmp_path: Path, where: dict[str, Any], **checking: Any) -> tuple[Path, Path]:
    sending, receiving = tmp_path / "send.json", tmp_path / "receive.json"
    recording = {"task": "tensor", "level": "L1", "step": [0, 2], "dump_path": str(tmp_path / "dump")}
    sending.write_text(json.dumps({**recording, "tensor": {"online_run_ut": True, **where}}))
    receiving.write_text(json.dumps({"run_ut": {"is_online": True, **where, **checking}}))
    return sending, receiving


def rows(file: Path) -> list[dict[str, str]]:
    with file.open(encoding="utf-8-sig", newline="") as opened:
        return list(csv.DictReader(opened))


@pytest.mark.parametrize("way", ["tcp", "folder"])
def test_a_wrong_kernel_is_named_while_the_training_runs(tmp_path: Path, way: str) -> None:
    sending, receiving = configured(tmp_path, place(tmp_path, way))
    command = ["-m", "msprobe", "-f", "pytorch", "run_ut", "-config", str(receiving)]
    command += ["-o", str(tmp_path / "out"), "--fail-on", "error", "--control", "cpu"]
    checking = forked.start(*command, cwd=tmp_path, env=environment())
    trained = train(sending, "wrong")
    ended = checking.wait(120)
    shown = ended.stdout
    assert trained.returncode == 0, trained.stderr
    assert ended.returncode == 1, shown + ended.stderr
    assert shown.count("Functional.gelu.0") == 2
    assert "rank 0, step 2: Functional.gelu.0" in shown
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


def two_ranks(config: Path, folder: Path, *last: str) -> list[forked.Started]:
    """Two gloo ranks; the second one has the further words."""
    job = {**environment(), "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port())}
    job["GLOO_SOCKET_IFNAME"] = "lo"
    return [
        forked.start(str(TRAINING), str(config), "wait", *words, cwd=folder, env={**job, "RANK": str(rank)})
        for rank, words in ((0, ()), (1, last))
    ]


def checker(config: Path, out: Path, *words: str) -> forked.Started:
    command = ("-m", "msprobe", "run_ut", "-config", str(config), "-o", str(out), "--ranks", "2", *words)
    return forked.start(*command, cwd=config.parent, env=environment())


def wait_for(condition: Callable[[], object], seconds: float = 60) -> None:
    until = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < until
        time.sleep(0.05)


def steps_of(out: Path, rank: int) -> set[str]:
    files = out.glob(f"accuracy_checking_result_*_rank{rank}.csv")
    return {row["Step"] for file in files for row in rows(file) if row["Forward Test Success"] == "pass"}


def test_two_ranks_over_tls_go_on_when_the_checking_process_is_killed_and_started_again(tmp_path: Path) -> None:
    keys = made_keys(tmp_path / "keys")
    where = {**place(tmp_path, "tcp"), "tls_path": str(keys)}
    sending, receiving = configured(tmp_path, where, rank_list=[])
    out = tmp_path / "out"
    first = checker(receiving, out)
    ranks = two_ranks(sending, tmp_path, "wrong")
    wait_for(lambda: "0" in steps_of(out, 0) and "0" in steps_of(out, 1))
    first.kill()
    first.wait()
    again = checker(receiving, out, "--fail-on", "error")
    (tmp_path / "go").touch()
    forked.end_of_all(ranks, 60)
    ended = again.wait(60)
    assert ended.returncode == 1, ended.stderr
    assert "with TLS" in ended.stdout
    assert mentions(ended.stdout, "online-call-wrong", rank=1, step=2, call="Functional.gelu.0") == 1
    assert "rank 1, step 2: Functional.gelu.0" in ended.stdout
    assert steps_of(out, 0) == steps_of(out, 1) == {"0", "2"}


def test_a_rank_that_dies_harms_no_other_one_through_a_folder(tmp_path: Path) -> None:
    sending, receiving = configured(tmp_path, place(tmp_path, "folder"), rank_list=[])
    shared, out = tmp_path / "shared", tmp_path / "out"
    # Of a run before, and nobody's.
    for name in ("start_1_1", "end_1_1", "start_2_2", "end_2_2"):
        (shared / name).touch()
    (shared / "rank1_000000001.partial").write_bytes(b"")
    # Of one that died in an earlier run.
    (shared / "start_1_5").write_text(json.dumps({"rank": 1, "process": {**this_process().as_dict(), "started": 1}}))
    checking = checker(receiving, out, "--idle", "500")
    wait_for(lambda: not (shared / "end_1_1").exists())
    (shared / "rank1_000000001.frame").write_bytes(b"no frame")
    living, dying = two_ranks(sending, tmp_path, "wrong", "die")
    wait_for(lambda: "0" in steps_of(out, 0) and "0" in steps_of(out, 1))
    (tmp_path / "go").touch()
    assert living.wait(60).returncode == 0
    assert dying.wait(60).returncode == -signal.SIGKILL
    ended = checking.wait(60)
    assert ended.returncode == 0, ended.stderr
    shown = ended.stdout
    assert mentions(shown, "marks-of-earlier-run-removed", count="2")
    assert mentions(shown, "online-file-is-no-frame")
    assert mentions(shown, "rank-of-earlier-run", rank="1")
    assert mentions(shown, "rank-died", rank="1", why=said("process-is-gone", dying.pid, socket.gethostname()))
    # Of the step in which it died, what came is judged; what is wrong there, too.
    assert mentions(shown, "online-step-ended-early", step="online check: step 2 of rank 1")
    assert "rank 1, step 2: Functional.gelu.0" in shown
    assert steps_of(out, 0) == steps_of(out, 1) == {"0", "2"}
    assert list(shared.iterdir()) == [shared / "rank1_000000001.partial"]


def test_a_check_to_which_nothing_comes_fails(tmp_path: Path) -> None:
    _, receiving = configured(tmp_path, place(tmp_path, "folder"))
    ended = checker(receiving, tmp_path / "out", "--idle", "0.2").wait(60)
    assert ended.returncode == 2
    assert mentions(ended.stderr, "online-without-steps", wanted=" of rank_list [0]")
    assert "Traceback" not in ended.stderr


@pytest.mark.parametrize(
    ("changed", "expected"),
    [
        ({"host": "", "port": -1}, 'give "host" and "port"'),
        ({"tls_path": "/nowhere/keys"}, "has no client.key, client.crt, ca.crt"),
    ],
)
def test_mistakes_of_the_sending_side(tmp_path: Path, changed: dict[str, Any], expected: str) -> None:
    sending, _ = configured(tmp_path, {"host": "127.0.0.1", "port": 1, **changed})
    trained = train(sending)
    assert trained.returncode == 1
    assert expected in trained.stderr


@pytest.mark.parametrize(
    ("where", "words", "expected"),
    [
        ({}, [], 'field "run_ut.is_online": found true without an address; give "host" and "port"'),
        ({"host": "300.1.1.1", "port": 70000}, [], "70000; allowed: a whole number 1..65535"),
        ({"host": "127.0.0.1", "port": 5000}, ["--ranks", "0"], "--ranks must be 1 or more"),
        ({"host": "127.0.0.1", "port": 5000}, ["-api_info", "dump.json"], "give no -api_info"),
    ],
)
def test_mistakes_of_the_checking_side(tmp_path: Path, where: dict[str, Any], words: list[str], expected: str) -> None:
    _, receiving = configured(tmp_path, where)
    command = ["-m", "msprobe", "run_ut", "-config", str(receiving), "-o", str(tmp_path / "out")]
    ended = forked.run(*command, *words, cwd=tmp_path, env=environment(), timeout=60)
    assert ended.returncode not in (0, None)
    assert expected in ended.stderr + ended.stdout
    assert "Traceback" not in ended.stderr
    assert not (tmp_path / "out").exists()
