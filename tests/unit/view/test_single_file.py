from __future__ import annotations

import base64
import gzip
import hashlib
import json
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from support.coded_texts import raising
from unit.diagnose.training import Plan
from unit.view.pages import english, opened, page, pair

from msprobe.errors import NotAvailableError
from msprobe.messages import said
from msprobe.view import single_file as made
from msprobe.view.page_files import Page
from msprobe.view.single_file import embedded, single_file, with_data

EVIL = "</script><script>alert(1)</script><!-- \u2028 <img src=x onerror=alert(1)>"


class Elements(HTMLParser):
    """Scripts, styles and policies of a page, and what it would fetch."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.scripts: list[tuple[dict[str, str | None], str]] = []
        self.styles: list[str] = []
        self.fetched: list[str | None] = []
        self.policy = ""
        self._open = ""
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = dict(attrs)
        self._open = tag
        self.fetched += [found[name] for name in ("src", "href") if name in found]
        if found.get("http-equiv") == "Content-Security-Policy":
            self.policy = found["content"] or ""
        if tag == "script":
            self.scripts.append((found, ""))
        if tag == "style":
            self.styles.append("")

    def handle_endtag(self, tag: str) -> None:
        self._open = ""

    def handle_data(self, data: str) -> None:
        if self._open == "script":
            self.scripts[-1] = (self.scripts[-1][0], self.scripts[-1][1] + data)
        elif self._open == "style":
            self.styles[-1] += data


def data_of(text: str) -> Any:
    attributes, content = next(one for one in Elements(text).scripts if one[0].get("id") == "msprobe-data")
    if attributes["type"] == "application/json":
        return json.loads(content)
    return json.loads(gzip.decompress(base64.b64decode(content)))


def test_one_file_holds_the_page_and_fetches_nothing(tmp_path: Path) -> None:
    runs = pair(tmp_path)
    with opened(*runs) as shown:
        text = single_file(shown, page(tmp_path / "page")).decode()
        overview, place = shown.overview(), shown.place(0)
    elements = Elements(text)
    assert elements.fetched == []
    assert elements.styles == ["body { margin: 0 }"]
    assert [content for attributes, content in elements.scripts if not attributes] == ["start()"]
    data = data_of(text)
    assert data["overview"]["verdict"] == json.loads(json.dumps(overview["verdict"]))
    assert data["overview"]["can"] == {"picture": False, "match": False}
    assert data["places"]["0"] == json.loads(json.dumps(place))
    assert str(place["first"]) in data["nodes"]["0"]
    # The data stands before the script that reads it.
    assert text.index("msprobe-data") < text.index("start()")


def test_only_its_own_script_and_style_may_run(tmp_path: Path) -> None:
    text = with_data(page(tmp_path / "page"), {"a": 1}).decode()
    elements = Elements(text)
    for directive, content in (("script-src", "start()"), ("style-src", "body { margin: 0 }")):
        digest = base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()
        assert f"{directive} 'sha256-{digest}';" in elements.policy
    assert elements.policy.startswith("default-src 'none';")
    assert "unsafe" not in elements.policy


@pytest.mark.parametrize("count", [1, 5000])
def test_no_name_of_a_dump_ends_the_data(tmp_path: Path, count: int) -> None:
    data = {"overview": [EVIL] * count}
    text = with_data(page(tmp_path / "page"), data).decode()
    assert data_of(text) == data
    assert len(Elements(text).scripts) == 2
    assert "onerror" not in re.sub(r"<script[^>]*>.*?</script>", "", text, flags=re.DOTALL)


def test_a_page_of_another_form_is_refused(tmp_path: Path) -> None:
    for name, old, new in (
        ("index.html", 'href="app.css"', 'href="other.css"'),
        ("app.js", "start()", "'</script>'"),
        ("app.css", "body", "</style>"),
    ):
        folder = tmp_path / name
        page(folder)
        (folder / name).write_text((folder / name).read_text().replace(old, new))
        with raising(NotAvailableError, "view-page-wrong"):
            with_data(Page(folder), {})


def test_a_page_that_was_not_built_is_reported(tmp_path: Path) -> None:
    with pytest.raises(NotAvailableError, match=r"lacks index\.html, app\.js, app\.css"):
        Page(tmp_path)


def test_the_built_page_can_be_put_into_one_file() -> None:
    assert data_of(with_data(Page(), {"overview": {}}).decode()) == {"overview": {}}


def test_the_worst_rows_keep_their_details_and_places_stay_bounded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs = pair(tmp_path, Plan(steps=4, results={"blocks.0.tanh": lambda x: x * 2}), Plan(steps=4))
    monkeypatch.setattr(made, "MOST_DETAILS", 3)
    monkeypatch.setattr(made, "MOST_PLACES", 2)
    with opened(*runs) as shown:
        data = embedded(shown)
        first = shown.place(0)["first"]
    assert set(data["places"]) == {"0", "1"}
    assert sum(map(len, data["nodes"].values())) == 3
    assert str(first) in data["nodes"]["0"]
    assert said("steps-not-in-file", "2") in map(english, data["overview"]["notes"])
    assert set(data["ranks"]) == {"0", "1"}
