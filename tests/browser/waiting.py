"""Waiting for what a page shows. A page renders when it likes, and on a busy machine later: a test that reads it once,
right behind a key or a click, fails now and then."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

#: How long a page may take for anything, in seconds: an upper bound for the busiest machine.
PATIENCE = 60


def eventually(page: Any, holds: Callable[[], object]) -> bool:
    """Whether something that is read from the page becomes true."""
    end = time.monotonic() + PATIENCE
    while not (result := holds()) and time.monotonic() < end:
        page.wait_for_timeout(50)
    return bool(result)


def until(page: Any, question: str) -> None:
    """Waits for an expression to be true; the page's policy lets the driver's own waiting not evaluate words."""
    if not eventually(page, lambda: bool(page.evaluate(question))):
        pytest.fail(f"never true: {question}")


def selected(page: Any) -> str:
    """The full name of the selected row."""
    page.wait_for_selector(".row.selected")
    return str(page.locator(".row.selected .name").get_attribute("title"))


def page_text(key: str) -> str:
    """A text of the page, by its name in ``web/source/texts``."""
    texts = (Path(__file__).parents[2] / "web" / "source" / "texts" / "en.ts").read_text("utf-8")
    (found,) = re.findall(rf'^  "{re.escape(key)}": "(.*)",$', texts, re.MULTILINE)
    return str(found)
