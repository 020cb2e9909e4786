"""The shell of all result pages, in a real browser: it begins in the language that the browser prefers."""

from __future__ import annotations

from pathlib import Path

import pytest
from browser.conftest import Visit
from browser.waiting import eventually

from msprobe.foreign import html_page
from msprobe.messages import in_language, said

pytestmark = pytest.mark.browser


@pytest.mark.parametrize(("preferred", "language"), [("zh-CN", "zh"), ("en-US", "en"), ("de-DE", "en")])
def test_a_page_begins_in_the_language_of_the_browser(
    tmp_path: Path, visit: Visit, preferred: str, language: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Whatever was asked for when it was written.
    monkeypatch.setenv("MSPROBE_LANG", "en" if language == "zh" else "zh")
    title = said("monitor-title")
    pieces = html_page.page(title, [f"<h1>{html_page.text(title)}</h1>"])
    (tmp_path / "page.html").write_text("".join(pieces), encoding="utf-8")
    page = visit((tmp_path / "page.html").as_uri(), language=preferred)
    words = in_language(title, "zh") if language == "zh" else str(title)
    assert (page.get_attribute("html", "lang"), page.title(), page.inner_text("h1")) == (language, words, words)
    page.get_by_text("English" if language == "zh" else "中文").click()
    assert eventually(page, lambda: page.title() != words)
