from __future__ import annotations

import io
import os
import re
import subprocess
import sys
import threading
from collections.abc import Iterator

import pytest

from msprobe import log


@pytest.fixture(autouse=True)
def _fresh() -> Iterator[None]:
    log.forget_once()
    log.set_rank(None)
    yield
    log.forget_once()
    log.set_rank(None)


def test_line_has_time_process_level_and_text(capsys: pytest.CaptureFixture[str]) -> None:
    log.info("step 3 recorded")
    out, err = capsys.readouterr()
    assert re.fullmatch(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d \((\d+)\) \[INFO\] step 3 recorded\n", out)
    assert f"({os.getpid()})" in out
    assert err == ""


def test_rank_appears_once_it_is_known(capsys: pytest.CaptureFixture[str]) -> None:
    log.info("before")
    log.set_rank(0)
    log.warning("after")
    before, after = capsys.readouterr().out.splitlines()
    assert "rank" not in before
    assert f"({os.getpid()}) [rank 0] [WARNING] after" in after


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        ("0", ["DEBUG", "INFO", "WARNING", "ERROR"]),
        ("1", ["INFO", "WARNING", "ERROR"]),
        ("2", ["WARNING", "ERROR"]),
        ("3", ["ERROR"]),
        ("4", []),
        (None, ["INFO", "WARNING", "ERROR"]),
        ("", ["INFO", "WARNING", "ERROR"]),
        ("5", ["INFO", "WARNING", "ERROR"]),
        ("-1", ["INFO", "WARNING", "ERROR"]),
        ("debug", ["INFO", "WARNING", "ERROR"]),
    ],
)
def test_level_comes_from_the_environment_at_each_call(
    value: str | None,
    shown: list[str],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    if value is not None:
        monkeypatch.setenv("MSPROBE_LOG_LEVEL", value)
    for say in (log.debug, log.info, log.warning, log.error):
        say("text")
    assert re.findall(r"\[([A-Z]+)\]", capsys.readouterr().out) == shown


def test_all_lines_go_to_stderr_where_that_is_asked_for(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("MSPROBE_LOG_STREAM", "stderr")
    log.info("a line")
    log.warning("another")
    out, err = capfd.readouterr()
    assert out == ""
    assert [line.split("] ")[1] for line in err.splitlines()] == ["a line", "another"]
    monkeypatch.setenv("MSPROBE_LOG_STREAM", "elsewhere")
    log.warning("as ever")
    out, err = capfd.readouterr()
    assert ("as ever" in out, err) == (True, "")


def test_control_characters_become_underscores(capsys: pytest.CaptureFixture[str]) -> None:
    log.info("a\nb\rc\td\x1b[31me\x00f\x7fg\x9bh\u2028i äö 中")
    out = capsys.readouterr().out
    assert out.endswith("a_b_c_d_[31me_f_g_h_i äö 中\n")
    assert out.count("\n") == 1


def test_once_speaks_once_for_each_key(capsys: pytest.CaptureFixture[str]) -> None:
    log.once("sparse", "warning", "first")
    log.once("sparse", "warning", "again")
    log.once("quantised", "error", "other")
    out = capsys.readouterr().out
    assert [line.split("] ")[-1] for line in out.splitlines()] == ["first", "other"]
    log.forget_once()
    log.once("sparse", "warning", "new session")
    assert "new session" in capsys.readouterr().out


def test_once_from_many_threads_speaks_once(capsys: pytest.CaptureFixture[str]) -> None:
    barrier = threading.Barrier(8)

    def speak() -> None:
        barrier.wait()
        for key in range(50):
            log.once(key, "info", f"key={key}.")

    threads = [threading.Thread(target=speak) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    out = capsys.readouterr().out
    assert sorted(re.findall(r"key=(\d+)\.", out), key=int) == [str(key) for key in range(50)]


def test_a_hidden_once_may_still_speak_later(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("MSPROBE_LOG_LEVEL", "4")
    log.once("key", "info", "hidden")
    monkeypatch.setenv("MSPROBE_LOG_LEVEL", "1")
    log.once("key", "info", "shown")
    assert "shown" in capsys.readouterr().out


class _Refusing(io.StringIO):
    def write(self, text: str) -> int:
        raise OSError(28, "No space left on device")


def _closed() -> io.StringIO:
    stream = io.StringIO()
    stream.close()
    return stream


class _Unprintable:
    def __str__(self) -> str:
        raise RuntimeError("no text")


@pytest.mark.parametrize("stream", [None, _closed(), _Refusing(), object()])
def test_a_failing_stdout_never_raises(stream: object, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdout", stream)
    log.error("nobody can read this")


def test_a_text_without_a_text_never_raises() -> None:
    log.error(_Unprintable())


def test_a_narrow_encoding_still_gets_the_line(monkeypatch: pytest.MonkeyPatch) -> None:
    raw = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(raw, encoding="ascii"))
    log.info("grüße")
    assert raw.getvalue().endswith(b"gr\\xfc\\xdfe\n")


PROGRAM = "from msprobe import log\nfor i in range(3): log.info(f'line {i} \u00fc')\n"


def test_a_closed_pipe_leaves_the_exit_status_alone() -> None:
    reader, writer = os.pipe()
    os.close(reader)
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], stdout=writer, stderr=subprocess.PIPE, check=False, timeout=60
    )
    os.close(writer)
    assert done.returncode == 0
    assert done.stderr == b""


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="this system has no /dev/full")
def test_a_full_disk_behind_stdout_leaves_the_exit_status_alone() -> None:
    with open("/dev/full", "wb") as full:
        done = subprocess.run(
            [sys.executable, "-c", PROGRAM], stdout=full, stderr=subprocess.PIPE, check=False, timeout=60
        )
    assert done.returncode == 0
    assert done.stderr == b""


def test_lines_keep_their_place_among_the_prints_of_the_program() -> None:
    program = "from msprobe import log\nprint('a'); log.info('b'); print('c'); log.info('d')"
    out = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60).stdout
    assert [line.split()[-1] for line in out.splitlines()] == ["a", "b", "c", "d"]
