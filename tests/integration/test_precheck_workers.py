"""What becomes of a check when workers do not start, are killed, or run on a cluster: real processes."""

from __future__ import annotations

import importlib
import importlib.util
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import torch
from support.coded_texts import mentions
from support.command_line import call

from msprobe import engine
from msprobe.capture.torch import private_compiler
from msprobe.errors import NotAvailableError
from msprobe.precheck import cluster
from msprobe.precheck.executors import executor_of
from msprobe.precheck.job import Task, skipped
from msprobe.precheck.pool import Pool
from msprobe.precheck.torch.inputs import Inputs
from msprobe.precheck.torch.machine import Machine

TENSOR = {"type": "torch.Tensor", "dtype": "torch.float32", "shape": [4, 4], "Max": 2.0, "Min": -2.0}


def dump(folder: Path, names: list[str]) -> Path:
    """A dump of calls with one argument."""
    path = folder / "dump.json"
    data = {f"{name}.forward": {"input_args": [TENSOR], "input_kwargs": {}, "output": [TENSOR]} for name in names}
    header = {"task": "statistics", "level": "L1", "framework": "pytorch", "dump_data_dir": None}
    path.write_text(json.dumps({**header, "data": data}))
    return path


def plugin(folder: Path, monkeypatch: pytest.MonkeyPatch, text: str) -> str:
    """A candidate that does ``text`` before each call."""
    (folder / "strange.py").write_text(
        f"import os, signal, time\n\n\ndef run(function, args, kwargs):\n    {text}\n"
        "    return function(*args, **kwargs)\n"
    )
    monkeypatch.syspath_prepend(str(folder))
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(folder), os.environ.get("PYTHONPATH", "")]))
    return "plugin:strange:run"


@pytest.mark.parametrize(
    ("candidate", "said"),
    [
        ("python:/no/such/python", "cannot be run: no such file or directory"),
        ("plugin:no_such_package:run", "cannot be imported: No module named 'no_such_package'"),
    ],
)
def test_a_candidate_that_cannot_start_is_one_sentence_and_leaves_no_files(
    tmp_path: Path, candidate: str, said: str
) -> None:
    found = call("run_ut", "-api_info", dump(tmp_path, ["Torch.sin.0"]), "-o", tmp_path, "--candidate", candidate)
    assert found.returncode == 2
    assert said in found.stderr
    assert found.stderr.count("\n") == 1
    assert not list(tmp_path.glob("*.csv"))


def test_a_worker_that_is_killed_is_replaced_and_nothing_is_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mark, pids = tmp_path / "killed", tmp_path / "pids"
    text = (
        f"import pathlib; mark = pathlib.Path({str(mark)!r})\n"
        f"    pathlib.Path({str(pids)!r}).open('a').write(f'{{os.getpid()}} ')\n"
        "    if function.__name__ == 'cos' and not mark.exists():\n"
        "        mark.touch(); os.kill(os.getpid(), signal.SIGKILL)"
    )
    candidate = plugin(tmp_path, monkeypatch, text)
    names = ["Torch.sin.0", "Torch.cos.0", "Torch.tan.0", "Torch.exp.0"]
    path = dump(tmp_path, names)
    (tmp_path / "other").mkdir()
    other = dump(tmp_path / "other", ["Torch.tanh.0"])

    def seen() -> list[int]:
        """Which processes have run calls since this was asked last."""
        found = list(dict.fromkeys(map(int, pids.read_text().split())))
        pids.unlink()
        return found

    with Pool([Task(str(path), candidate=candidate)], 60) as pool:
        answers = list(pool.answers([(name, False) for name in names]))
        assert mark.exists()
        assert [(answer.key, answer.result[1]) for answer in answers] == [(name, "pass") for name in names]
        _, second = seen()
        # The same process goes on with another dump, and one that died meanwhile is replaced.
        assert [answer.result[1] for answer in pool.answers([("Torch.tanh.0", False)], str(other))] == ["pass"]
        assert seen() == [second]
        os.kill(second, signal.SIGKILL)
        os.waitid(os.P_PID, second, os.WEXITED | os.WNOWAIT)
        assert [answer.result[1] for answer in pool.answers([("Torch.tan.0", False)], str(path))] == ["pass"]
        (third,) = seen()
        assert third != second
        # A dump that cannot be read is told of.
        (tmp_path / "none.json").write_text("{}")
        with pytest.raises(NotAvailableError, match=r"none\.json"):
            list(pool.answers([("Torch.tan.0", False)], str(tmp_path / "none.json")))


@pytest.mark.slow  # starts workers in three checks
@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGINT])
def test_a_check_with_two_workers_that_was_killed_goes_on_to_the_same_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: signal.Signals
) -> None:
    candidate = plugin(tmp_path, monkeypatch, "time.sleep(0.1)")
    path = dump(tmp_path, [f"Torch.{name}.{number}" for number in range(6) for name in ("sin", "cos", "exp", "tanh")])
    words = ["-api_info", path, "--candidate", candidate]
    out = tmp_path / "out"
    with subprocess.Popen(
        [sys.executable, "-m", "msprobe", "multi_run_ut", "-n", "2", *map(str, words), "-o", str(out)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as process:
        while not list(out.glob("*_result_*")) or next(out.glob("*_result_*")).read_text().count("\n") < 5:
            assert process.poll() is None
            time.sleep(0.02)
        if how is signal.SIGINT:  # as of a terminal, which sends it to all
            os.killpg(process.pid, how)
            _, said = process.communicate(timeout=60)
            assert process.returncode == 130
            assert "Traceback" not in said
        else:
            process.send_signal(how)
    (result,) = out.glob("*_result_*.csv")
    assert 5 <= result.read_text().count("\n") < 25
    assert call("run_ut", *words, "-o", out, "-csv_path", result).returncode == 0
    assert call("run_ut", *words, "-o", tmp_path / "whole").returncode == 0
    for kind in ("result", "details"):
        (ours,), (theirs,) = (folder.glob(f"*_{kind}_*.csv") for folder in (out, tmp_path / "whole"))
        assert ours.read_bytes() == theirs.read_bytes()


def test_shares_of_a_check_give_the_answers_of_one_worker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    names = [f"Torch.{name}.0" for name in ("sin", "cos", "nosuch", "exp", "tanh")]
    task = Task(str(dump(tmp_path, names)), candidate="cpu")
    calls = [(name, False) for name in names]
    shares: list[Any] = []

    def run(function: Any, jobs: Any, workers: Any) -> Any:
        shares.extend(jobs)
        return map(function, jobs)

    monkeypatch.setattr(engine, "run", run)
    found = list(cluster.answers([task], calls, 60, engine.Workers(1)))
    assert [answer.key for answer in found] == names
    assert [answer.result[1] for answer in found] == ["pass", "pass", "SKIP", "pass", "pass"]
    assert [len(share.calls) for share in shares] == [2, 2, 1]


def test_a_worker_that_does_not_start_leaves_its_calls_to_the_others(tmp_path: Path, capsys: Any) -> None:
    good = Task(str(dump(tmp_path, names := ["Torch.sin.0", "Torch.cos.0", "Torch.exp.0"])), candidate="cpu")
    bad = Task(good.dump, candidate="python:/no/such/python")
    with Pool([bad, good], 60) as pool:
        found = list(pool.answers([(name, False) for name in names]))
    assert [(answer.key, answer.result[1]) for answer in found] == [(name, "pass") for name in names]
    assert mentions(capsys.readouterr().out, "workers-not-usable", count="1 of 2 workers")
    with pytest.raises(NotAvailableError, match="cannot be run"):
        list(Pool([bad, bad], 60).answers([(name, False) for name in names]))


def test_calls_of_a_node_that_is_lost_are_named_and_the_others_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    names = [f"Torch.{name}.0" for name in ("sin", "cos", "tan", "exp", "tanh", "erf", "abs", "neg")]
    task = Task(str(tmp_path), candidate="cpu")
    monkeypatch.setattr(cluster, "answer_to", lambda worker, task, call, timeout: skipped(call[0], "done", call[1]))

    def run(function: Any, jobs: Any, workers: Any) -> Any:
        for job in jobs:
            if ("Torch.tan.0", False) in job.calls:
                raise engine.WorkerLostError("it has ended.")
            yield function(job)

    monkeypatch.setattr(engine, "run", run)
    found = list(cluster.answers([task], [(name, False) for name in names], 60, engine.Workers(1)))
    assert [answer.key for answer in found] == names
    assert [answer.result[3] for answer in found] == [
        "done",
        "done",
        *["it has ended."] * 2,
        *["done"] * 4,
    ]
    assert "Torch.tan.0 and 1 more is lost" in capsys.readouterr().out


@pytest.mark.slow  # a cluster takes ten seconds to start
@pytest.mark.skipif(importlib.util.find_spec("ray") is None, reason="ray has no wheel for this Python")
def test_a_process_of_a_cluster_that_is_killed_is_replaced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The process that runs shares, not the worker below it."""
    mark = tmp_path / "killed"
    text = (
        f"import pathlib; mark = pathlib.Path({str(mark)!r})\n"
        "    if function.__name__ == 'cos' and not mark.exists():\n"
        "        mark.touch(); os.kill(os.getppid(), signal.SIGKILL)"
    )
    candidate = plugin(tmp_path, monkeypatch, text)
    names = [f"Torch.{name}.{number}" for number in range(3) for name in ("sin", "cos", "exp", "tanh")]
    words = ["-n", "2", "--engine", "ray", "--candidate", candidate, "-o", tmp_path]
    done = call("multi_run_ut", "-api_info", dump(tmp_path, names), *words)
    assert done.returncode == 0, done.stderr
    assert mark.exists()
    (result,) = tmp_path.glob("*_result_*.csv")
    rows = result.read_text(encoding="utf-8-sig").splitlines()[1:]
    assert [row.split(",")[:2] for row in rows] == [[name, "pass"] for name in names]


@pytest.mark.slow  # the compiler starts, for each variant
def test_each_call_of_a_compiled_candidate_is_compiled_for_its_own_arguments() -> None:
    # As a recorder does in a program that compiles.
    importlib.import_module("torch._dynamo")
    private_compiler.skip_package("msprobe")
    machine = Machine(executor_of("cpu+compile+inject:nan@0"))
    compiled = []

    def noting(graph: Any, inputs: Any) -> Any:
        compiled.append(graph)
        return graph.forward

    original = torch.compile
    torch.compile = lambda function, **more: original(function, backend=noting, **more)  # type: ignore[assignment]
    try:
        for length in range(1, 12):
            outcome = machine.run(torch.sin, Inputs([torch.ones(length)], {}), backward=False)
            assert outcome.outputs[0].isnan().any()
    finally:
        torch.compile = original  # type: ignore[assignment]
    assert len(compiled) == 11
