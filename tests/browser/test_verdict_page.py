"""The page that `msprobe compare --html` writes, in a real browser (`make test-browser`)."""

from __future__ import annotations

from pathlib import Path

import pytest
from browser.conftest import Visit
from document_inputs import record_pair
from support.command_line import call
from support.page_data import page_data

pytestmark = pytest.mark.browser


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What `msprobe compare --html` writes about a training with a mistake in its forward."""
    folder = tmp_path_factory.mktemp("page")
    done = call("compare", *record_pair(folder), "--html", "-o", folder / "out")
    assert done.returncode == 1, done.stderr
    return folder / "out" / "verdict.html"


@pytest.mark.parametrize("width", [1200, 700])
def test_the_page_of_compare_says_what_the_console_says(visit: Visit, page: Path, width: int) -> None:
    told = page_data(page)["overview"]["verdict"]
    shown = visit(page.as_uri(), size=(width, 900))
    shown.get_by_text(told["headline"]["en"]).first.wait_for()
    finding = told["findings"][0]
    shown.keyboard.press("f")
    shown.get_by_text(finding["title"]["en"]).first.wait_for()
    assert f"at={finding['name']}" in shown.url
