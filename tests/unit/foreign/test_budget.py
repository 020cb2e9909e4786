"""What reading an input of a stranger may cost."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest
from support.coded_texts import raising

from msprobe.errors import InvalidInputError, PathError
from msprobe.foreign.budget import Budget, BudgetError, Limits
from msprobe.foreign.opening import is_regular, open_regular, read_bounded

SMALL = Limits(bytes=10, items=10, depth=3, digits=5, seconds=60.0)


@pytest.mark.parametrize("spend", ["spend_bytes", "spend_items", "check_depth", "check_digits"])
def test_what_exceeds_the_budget_is_refused(spend: str) -> None:
    getattr(Budget("a file", SMALL), spend)(3)
    with pytest.raises(BudgetError, match="a file"):
        getattr(Budget("a file", SMALL), spend)(11)


def test_costs_add_up() -> None:
    budget = Budget("a file", SMALL)
    budget.spend_items(6)
    budget.spend_items(4)
    with pytest.raises(BudgetError):
        budget.spend_items(1)


def test_time_is_limited_while_items_are_spent() -> None:
    budget = Budget("a file", Limits(seconds=0.01))
    time.sleep(0.02)
    with pytest.raises(BudgetError):
        for _ in range(100_000):
            budget.spend_items()


def test_the_user_raises_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MSPROBE_LIMIT", "2.5")
    assert Budget("a file", SMALL).limits == Limits(bytes=25, items=25, depth=3, digits=5, seconds=150.0)


@pytest.mark.parametrize("text", ["0", "-1", "nan", "inf", "many", "1e9"])
def test_a_factor_that_is_no_number_is_refused(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.setenv("MSPROBE_LIMIT", text)
    with raising(InvalidInputError, "limit-factor-wrong", text=text):
        Budget("a file")


def test_marks_in_the_name_of_an_input_do_not_reach_the_message() -> None:
    with pytest.raises(BudgetError) as refused:
        Budget("a\x1b[31m", SMALL).spend_bytes(11)
    assert "\x1b" not in str(refused.value)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no pipes here")
def test_a_pipe_is_refused_at_once(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    assert not is_regular(tmp_path / "pipe")
    with pytest.raises(PathError, match="a pipe"):
        open_regular(tmp_path / "pipe")


def test_a_folder_is_refused_and_a_missing_file_is_missing(tmp_path: Path) -> None:
    with pytest.raises(PathError, match="a folder"):
        open_regular(tmp_path)
    with pytest.raises(FileNotFoundError):
        open_regular(tmp_path / "none")


def test_links_are_followed_only_where_asked(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"content")
    (tmp_path / "link").symlink_to(tmp_path / "file")
    assert read_bounded(tmp_path / "link", Budget("link")) == b"content"
    with pytest.raises(PathError, match="symbolic link"):
        read_bounded(tmp_path / "link", Budget("link"), follow_links=False)


def test_a_file_larger_than_the_budget_is_not_read(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"x" * 11)
    with pytest.raises(BudgetError):
        read_bounded(tmp_path / "file", Budget("file", SMALL))
