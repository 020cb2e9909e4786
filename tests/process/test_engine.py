"""Many jobs side by side: order, errors, and what is said when something is missing."""

from __future__ import annotations

import importlib.util
import operator
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.coded_texts import mentions, raising

from msprobe import log
from msprobe.engine import ALONE, Engine, WorkerLostError, Workers, run
from msprobe.errors import InvalidInputError, MsprobeError, NotAvailableError, PathError
from msprobe.store.reader import open_dump

# A Ray of our own does not start in a process that has forked and run gloo before: these tests have one to themselves.
ON_RAY = "MSPROBE_TEST_ON_RAY"
NO_RAY = importlib.util.find_spec("ray") is None
WITHOUT_RAY = pytest.mark.skipif(ON_RAY not in os.environ, reason="run by test_all_this_holds_on_ray")
ENGINES = ["local", pytest.param("ray", marks=WITHOUT_RAY)]
# What runs in a worker must be importable there, so the jobs are functions of others.


@pytest.fixture(scope="module", autouse=True)
def _end_ray() -> Iterator[None]:
    yield
    if "ray" in sys.modules:
        import ray

        ray.shutdown()


@pytest.mark.parametrize("engine", ENGINES)
def test_results_come_in_the_order_of_the_jobs(engine: Engine) -> None:
    asked: list[int] = []
    assert list(run(operator.neg, range(7), Workers(2, engine), asked.append)) == [-n for n in range(7)]
    assert asked == list(range(7))


@pytest.mark.parametrize("engine", ENGINES)
def test_jobs_run_in_other_processes_and_in_this_folder(
    engine: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    found = list(run(eval, ["(__import__('os').getpid(), __import__('os').getcwd())"] * 4, Workers(2, engine)))
    assert os.getpid() not in {process for process, _ in found}
    assert {folder for _, folder in found} == {str(tmp_path)}


@pytest.mark.parametrize("engine", ENGINES)
def test_one_worker_is_this_process(engine: Engine) -> None:
    for workers in (ALONE, Workers(1, engine)):
        assert list(run(eval, ["__import__('os').getpid()"] * 3, workers)) == [os.getpid()] * 3


def test_one_job_is_done_in_this_process() -> None:
    assert list(run(eval, ["__import__('os').getpid()"], Workers(4))) == [os.getpid()]


def test_one_job_for_ray_is_done_here_and_that_is_said(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("msprobe.engine._check_installed", lambda *words: None)
    log.forget_once()
    for _ in range(2):
        assert list(run(eval, ["__import__('os').getpid()"], Workers(engine="ray"))) == [os.getpid()]
    assert mentions(capsys.readouterr().out, "one-job-without-ray") == 1


@pytest.mark.parametrize("engine", ENGINES)
def test_the_first_error_in_order_arrives_as_it_is(engine: Engine, tmp_path: Path) -> None:
    results = run(open_dump, [tmp_path / "one", tmp_path / "two"], Workers(2, engine))
    with pytest.raises(PathError) as caught:
        list(results)
    assert type(caught.value) is PathError
    assert mentions(caught.value.message, "dump-missing", path=tmp_path / "one")
    assert list(run(operator.neg, [1, 2], Workers(2, engine))) == [-1, -2], "and the engine is there for the next"


@pytest.mark.parametrize("engine", ENGINES)
def test_results_before_an_error_are_given(engine: Engine, tmp_path: Path) -> None:
    folder = tmp_path / "rank"
    folder.mkdir()
    (folder / "dump.json").write_text("{}")
    results = run(open_dump, [tmp_path, tmp_path / "none"], Workers(2, engine))
    assert next(results).path == tmp_path
    with pytest.raises(PathError):
        next(results)


@pytest.mark.parametrize("engine", ENGINES)
def test_what_a_job_says_is_said_here_in_order(engine: Engine, capsys: pytest.CaptureFixture[str]) -> None:
    list(run(log.warning, ["first", "second", "third"], Workers(2, engine)))
    assert [line.rpartition(" ")[2] for line in capsys.readouterr().out.splitlines()] == ["first", "second", "third"]


@pytest.mark.parametrize("engine", ENGINES)
def test_a_process_that_is_killed_is_reported(engine: Engine) -> None:
    with raising(WorkerLostError, "process-of-jobs-ended"):
        list(run(os._exit, [9, 9], Workers(2, engine)))
    assert list(run(operator.neg, [1, 2], Workers(2, engine))) == [-1, -2]


def test_what_is_not_installed_is_named_with_its_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    assert list(run(operator.neg, [1, 2], Workers(4))) == [-1, -2], "nothing is needed for processes of this machine"
    with raising(NotAvailableError, "engine-package-missing") as caught:
        Workers(engine="ray")
    assert "pip install 'msprobe-debugger[ray]'" in caught.value.message


@pytest.mark.parametrize(("count", "engine"), [(0, "local"), (-1, "ray"), (2, "dask")])
def test_wrong_workers_are_refused(count: int, engine: Engine) -> None:
    wrong = {"engine": engine} if engine == "dask" else {"count": count}
    with raising(InvalidInputError, "engine-unknown" if engine == "dask" else "jobs-too-few", **wrong):
        Workers(count, engine)


def test_threads_inside_a_job_share_what_is_left() -> None:
    assert [Workers(8).inside(jobs) for jobs in (1, 2, 3, 8, 100)] == [8, 4, 2, 1, 1]
    assert ALONE.inside(3) == 1


def test_every_error_can_travel() -> None:
    import pickle

    from msprobe.engine import _portable

    class Odd(MsprobeError):
        def __init__(self, message: str, line: int) -> None:
            super().__init__(message)

    travelled = pickle.loads(pickle.dumps(_portable(Odd("what is wrong", 3))))
    assert isinstance(travelled, MsprobeError)
    assert travelled.message == "what is wrong"


def test_interrupt_ends_the_workers_too(tmp_path: Path) -> None:
    script = tmp_path / "wait.py"
    script.write_text(
        "import signal\n"
        "from msprobe.engine import Workers, run\n"
        # A shell lets what it starts in the background ignore interrupts.
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        "if __name__ == '__main__':\n"
        '    list(run(eval, [\'print(__import__("os").getpid(), file=open("%d", "w")) or '
        '__import__("time").sleep(60)\' % n for n in range(2)], Workers(2)))\n'
    )
    process = subprocess.Popen([sys.executable, script], cwd=tmp_path, start_new_session=True, stderr=subprocess.PIPE)
    files = [tmp_path / "0", tmp_path / "1"]
    _wait(lambda: all(file.exists() and file.read_text() for file in files))
    os.killpg(process.pid, signal.SIGINT)
    _, said = process.communicate(timeout=30)
    assert process.returncode != 0
    assert said.count(b"KeyboardInterrupt") <= 1, "the workers say nothing"
    for file in files:
        _wait(lambda file=file: _is_gone(int(file.read_text())))


def _wait(met: object, seconds: float = 60.0) -> None:
    end = time.monotonic() + seconds
    while not met():  # type: ignore[operator]
        assert time.monotonic() < end
        time.sleep(0.05)


def _is_gone(process: int) -> bool:
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return not Path("/proc/self").exists() or not Path(f"/proc/{process}").exists()


@pytest.mark.skipif(NO_RAY, reason="ray has no wheel for this Python or is not installed")
@pytest.mark.skipif(ON_RAY in os.environ, reason="these are the tests on Ray")
def test_all_this_holds_on_ray() -> None:
    words = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-k", "ray", __file__]
    done = subprocess.run(words, env=os.environ | {ON_RAY: "1"}, capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stdout[-3000:]
    assert " passed" in done.stdout
