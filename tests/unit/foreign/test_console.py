from __future__ import annotations

import io
import sys

import pytest
from support.row_by_row import for_each

from msprobe.foreign.console import harmless, say, show_traceback


@for_each("text", ["\x1b[31m", "\x07", "\x9b", "\u202e", "\u2028", "\x00", "\x7f", "\r", "\u2066", "\ufeff"])
def test_what_drives_a_terminal_is_replaced(text: str) -> None:
    assert not any(letter in harmless(f"a{text}b") for letter in text if not letter.isalnum() and letter != "[")
    assert harmless(f"a{text}b")[::1].endswith("b")


@pytest.mark.parametrize("text", ["plain", "two\nlines\tand a tab", "梯度 ä — “x”", "a\u3000b\xa0c", ""])
def test_other_texts_stay(text: str) -> None:
    assert harmless(text) == text


def test_what_is_said_is_printed_as_print_does(capsys: pytest.CaptureFixture[str]) -> None:
    say("a", 1, None)
    say("b\x1b", end="")
    say("c", file=sys.stderr, flush=True)
    told = capsys.readouterr()
    assert told.out == "a 1 None\nb_"
    assert told.err == "c\n"


def test_what_an_encoding_lacks_is_an_escape() -> None:
    raw = io.BytesIO()
    stream = io.TextIOWrapper(raw, encoding="ascii")
    say("ä\ud800", file=stream, flush=True)
    assert raw.getvalue() == b"\\xe4\\ud800\n"


def test_a_traceback_does_not_act(capsys: pytest.CaptureFixture[str]) -> None:
    try:
        raise ValueError("\x1b[31m")
    except ValueError as problem:
        show_traceback(type(problem), problem, problem.__traceback__)
    told = capsys.readouterr().err
    assert "ValueError" in told
    assert "\x1b" not in told
