from __future__ import annotations

import re
import shutil
import subprocess
from html.parser import HTMLParser
from pathlib import Path

import pytest
from unit.report.verdicts import finding, step_calls, verdict

from msprobe.diagnose.findings import Verdict
from msprobe.diagnose.verdict.calls import Call, StepCalls
from msprobe.report.html import origin_of, verdict_page
from msprobe.report.html_style import STYLE

VOID = {"meta", "br", "wbr", "rect", "line"}
EVIL = "<script>alert(1)</script>\"'><img src=x onerror=alert(1)>&amp;\x1b[2J"


class Page(HTMLParser):
    """Tags, attributes and text of a page; complains of tags that are not closed in order."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []
        self.text = ""
        self._open: list[str] = []
        self.feed(page)
        self.close()
        assert self._open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += attrs
        if tag not in VOID:
            self._open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += attrs

    def handle_endtag(self, tag: str) -> None:
        if tag not in VOID:
            assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data


def test_a_page_tells_what_the_terminal_tells() -> None:
    text = Page(verdict_page(verdict(finding(), finding(kind="gradient"), calls=step_calls()))).text
    for told in (
        "DIVERGED at step 3, rank 0, forward pass",
        "/runs/new",
        "Tensor.__add__.22.forward, output.0",
        "scores = scores * self.scale",
        "it is 500 times that",
        "Suspect this call itself",
        "Further findings (1)",
        "precision: bfloat16 where the reference has float32",
        "1573 pairs of calls",
    ):
        assert told in text, told


@pytest.mark.parametrize("status", ["agree", "harmless", "diverged", "incomparable"])
@pytest.mark.parametrize("count", [0, 1, 100])
def test_any_number_of_findings_makes_a_sound_page(status: str, count: int) -> None:
    Page(verdict_page(verdict(*[finding() for _ in range(count)], status=status, calls=step_calls())))
    Page(verdict_page(Verdict("agree", "a", "b")))


def test_nothing_from_a_dump_becomes_markup() -> None:
    nasty = finding(
        message=EVIL,
        where=EVIL,
        entry=EVIL,
        module=EVIL,
        evidence={
            "source": f"{EVIL}:3",
            "candidate": {"dtype": EVIL, "shape": EVIL},
            "reference": EVIL,
            "parameters": [EVIL] * 20,
            EVIL: EVIL,
        },
        stack=(EVIL, f"File {EVIL}, line 3, in {EVIL}, \n {EVIL}"),
        alternatives=(EVIL,),
    )
    calls = StepCalls(0, EVIL, (Call(EVIL, 1, "forward", EVIL, "guilty", 0.0, 1.0, 0.0),) * 3)
    shown = Verdict("diverged", EVIL, EVIL, (nasty, nasty), notes=(EVIL,), calls=calls)
    page = verdict_page(shown)
    found = Page(page)
    assert {"script", "img"} & set(found.tags) == set()
    assert not [name for name, _ in found.attributes if name.startswith("on")]
    assert "\x1b" not in page


def test_a_page_fetches_and_runs_nothing() -> None:
    page = verdict_page(verdict(finding(), calls=step_calls()))
    found = Page(page)
    assert not {"script", "link", "img", "iframe", "object", "form"} & set(found.tags)
    assert not [name for name, _ in found.attributes if name in ("src", "href", "action", "srcset")]
    assert "url(" not in page
    assert "@import" not in page
    assert "default-src 'none'" in page


def test_the_call_of_the_finding_is_marked_in_picture_and_table() -> None:
    page = verdict_page(verdict(finding(), calls=step_calls(40, origin=12)))
    row = re.search(r'<tr class="here">.*?</tr>', page)
    assert row is not None
    assert "__add__" in row[0]
    assert f"left:{100 * 12.5 / 40:.2f}%" in page
    assert page.count("<rect") == 40


def test_many_calls_share_bars_and_the_worst_of_them_shows() -> None:
    page = verdict_page(verdict(finding(), calls=step_calls(20_000, origin=7_003)))
    assert page.count("<rect") <= 500
    assert page.count('<rect class="guilty"') == 1
    assert "calls in this bar" in page
    assert len(page) < 300_000


def test_the_origin_is_the_call_of_the_finding_or_the_first_that_differs() -> None:
    calls = step_calls(40, origin=12).calls
    assert origin_of(calls, finding()) == 12
    assert origin_of(calls, finding(entry=None)) == 12
    assert origin_of(calls, finding(entry="Tensor.__mul__.20.forward")) == 20
    assert origin_of(calls[:5], finding(entry=None)) is None


@pytest.mark.browser
def test_a_browser_shows_it_wide_and_narrow(tmp_path: Path) -> None:
    browser = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if browser is None:
        pytest.skip("no Chromium on this machine")
    file = tmp_path / "verdict.html"
    file.write_text(verdict_page(verdict(finding(message=EVIL), finding(), calls=step_calls(3000, 900))))
    for width in (1200, 500):
        picture = tmp_path / f"{width}.png"
        done = subprocess.run(
            [browser, "--headless", "--no-sandbox", "--disable-gpu", f"--window-size={width},2000",
             f"--screenshot={picture}", "--dump-dom", "--enable-logging=stderr", file.as_uri()],
            capture_output=True, text=True, timeout=120,
        )  # fmt: skip
        assert picture.stat().st_size > 20_000
        assert ":CONSOLE" not in done.stderr, "the page's own policy refuses something in it"


def test_a_note_that_a_finding_has_said_is_not_said_again() -> None:
    said = "steps 1, 2 are only in the reference"
    page = verdict_page(verdict(finding(message=said, kind="step_count"), status="agree", notes=(said, "another one")))
    assert page.count(said) == 1
    assert "another one" in page


def test_a_narrow_page_leaves_out_what_has_no_room() -> None:
    narrow = STYLE.split("@media (max-width: 34rem)")[1].split("@media")[0]
    assert ".wide table { min-width: 0;" in narrow
    assert ".wide td:last-child { display: none; }" in narrow
