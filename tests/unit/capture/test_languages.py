"""Log lines of the recorder come in the language that is asked for, and a text that fails stops nothing."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest
from support.coded_texts import mentions

from msprobe import log
from msprobe.capture.session import Session
from msprobe.capture.stacks import CallStacks
from msprobe.config.settings import Settings
from msprobe.messages import in_language, said

HAN = re.compile(r"[\u4e00-\u9fff]")


def record(folder: Path) -> None:
    log.forget_once()
    stacks = CallStacks(lambda file: False, lambda code: False, lambda code: False)
    session = Session(replace(Settings(), dump_path=str(folder)), "pytorch", lambda: None, stacks)
    session.start()
    session.fault("a call", ValueError("planted"))
    session.next_step()
    session.close()


def test_a_recording_speaks_chinese_where_that_is_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("MSPROBE_LANG", "en")
    record(tmp_path / "en")
    english = capsys.readouterr().out
    assert mentions(english, "not-recorded", what="a call", kind="ValueError", error="planted") == 1
    assert not HAN.search(english)
    monkeypatch.setenv("MSPROBE_LANG", "zh")
    record(tmp_path / "zh")
    chinese = capsys.readouterr().out.splitlines()
    assert len(chinese) == len(english.splitlines())
    assert all(HAN.search(line) for line in chinese)
    expected = in_language(said("not-recorded", "a call", "ValueError", "planted"), "zh")
    assert sum(line.endswith(expected) for line in chinese) == 1


def test_a_text_is_made_once_and_only_where_it_is_shown(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    made = []

    def text() -> str:
        made.append(1)
        return said("device-without-memory")

    log.forget_once()
    monkeypatch.setenv("MSPROBE_LOG_LEVEL", "4")
    log.once("one", "warning", text)
    monkeypatch.setenv("MSPROBE_LOG_LEVEL", "1")
    assert made == []
    for _ in range(3):
        log.once("one", "warning", text)
        log.once("other", "warning", lambda: 1 / 0)
    assert len(made) == 1
    assert mentions(capsys.readouterr().out, "device-without-memory") == 1


def test_errors_keep_the_wording_that_they_were_raised_with() -> None:
    inner = ValueError(said("rows-header-cut-off"))
    text = said("rows-unreadable", "a.rows", inner)
    assert in_language(said("rows-header-cut-off"), "zh") in in_language(text, "zh")
    assert in_language(said("wants-list-of-texts", "names", [1]), "zh").endswith("[1]")
