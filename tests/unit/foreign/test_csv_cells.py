from __future__ import annotations

import csv
import io

import pytest
from support.row_by_row import for_each

from msprobe.foreign.csv_cells import plain_text, safe_text, writer
from msprobe.messages import in_language, said

_RUN = ["=1", "+cmd", "-x", "@sum", "＝1", "＋1", "－1", "＠a", " =1", "\xa0=1", "\t=1", "\r+a", "\tx", "\n=1", "-"]
_PLAIN = ["Torch.add", "-1", "+1.5e-3", "-inf", "nan", "", " ", "[1, 2]", "(-inf, 0]", "N/A", "50%", "1e-5", "'a"]


@for_each("text", _RUN)
def test_what_a_spreadsheet_runs_is_a_text(text: str) -> None:
    assert safe_text(text) == f"'{text}"
    assert plain_text(safe_text(text)) == text


@for_each("text", _PLAIN)
def test_names_and_numbers_stay(text: str) -> None:
    assert safe_text(text) == text
    assert plain_text(text) == text


def test_rows_have_safe_texts_and_numbers_as_they_are() -> None:
    file = io.StringIO()
    rows = writer(file, "\n")
    rows.writerow(["name", "=cmd", -1.5, None, -3])
    rows.write_safe_rows([["=0"]])
    assert list(csv.reader(io.StringIO(file.getvalue()))) == [["name", "'=cmd", "-1.5", "", "-3"], ["=0"]]


def test_a_message_of_the_catalogue_is_as_safe_as_any_text() -> None:
    file = io.StringIO()
    writer(file, "\n").writerow([said("part-of-record-wrong", "=cmd", "x")])
    assert file.getvalue().startswith("'=cmd")


def test_messages_are_in_the_language_that_is_asked_for_and_values_are_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MSPROBE_LANG", "zh")
    text, message = io.StringIO(), said("memory-short")
    writer(text).writerow(["error", "SKIP", message])
    assert text.getvalue() == f"error,SKIP,{in_language(message, 'zh')}\r\n"
