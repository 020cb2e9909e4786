"""``msprobe explain``: what a message means, in the language that is asked for."""

from __future__ import annotations

import json

import pytest
from support import command_line

from msprobe.messages import MESSAGES, TOPICS, find


@pytest.mark.parametrize("code", ["D204", "d204", "argument-differs"])
def test_a_message_is_explained_by_code_and_by_name(code: str) -> None:
    done = command_line.call("explain", code)
    assert done.returncode == 0
    assert done.stdout.startswith("D204 argument-differs")
    assert TOPICS["kind:argument"].advice[0][:40] in " ".join(done.stdout.split())


def test_it_is_explained_in_chinese_where_that_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MSPROBE_LANG", "zh")
    done = command_line.call("explain", "D204")
    message = find("D204")
    assert message is not None
    assert message.chinese in done.stdout
    assert TOPICS[message.topic].advice[1] in done.stdout


def test_all_codes_are_listed() -> None:
    lines = command_line.call("explain", "--list").stdout.splitlines()
    assert [line.split()[0] for line in lines] == list(MESSAGES)


def test_a_program_gets_the_same() -> None:
    (found,) = json.loads(command_line.call("explain", "D204", "--json").stdout)["messages"]
    assert (found["code"], found["severity"]) == ("D204", "finding")
    assert found["arguments"] == ["call", "argument", "candidate", "reference"]


def test_what_is_no_code_is_refused_with_a_suggestion() -> None:
    done = command_line.call("explain", "argument-difers")
    assert done.returncode == 2
    assert "argument-differs" in done.stderr


def test_an_error_says_its_code_on_stderr_and_in_json() -> None:
    done = command_line.call("compare", "one", "--json")
    answer = json.loads(done.stdout)
    assert (done.returncode, answer["name"]) == (2, "compare-needs-two")
    assert f"[{answer['code']}]" in done.stderr
