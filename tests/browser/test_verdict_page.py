"""The page of a verdict in a real browser: `make test-browser` brings one and runs these tests."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path

import pytest
from bugs.patterns import PATTERNS
from bugs.planting import draw
from bugs.record import record

pytestmark = pytest.mark.browser

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
#: A real page is not one colour: its picture does not compress to less than this, bytes.
SMALLEST_PICTURE = 20_000


@pytest.fixture(scope="module")
def browser() -> str:
    """The browser's program. `MSPROBE_BROWSER=required` turns a missing one into a failure."""
    found = next(filter(None, map(shutil.which, NAMES)), None)
    if found is None:
        if os.environ.get("MSPROBE_BROWSER") == "required":
            pytest.fail(f"none of {', '.join(NAMES)} is installed")
        pytest.skip("no Chromium on this machine; make test-browser installs it")
    return found


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What `msprobe compare --html` writes about a real training with a mistake in its forward."""
    folder = tmp_path_factory.mktemp("page")
    pattern = PATTERNS["F05"]
    pair = record(pattern, draw(pattern, 0), "digest", folder / "pair")
    words = [str(pair.dump("candidate")), str(pair.dump("reference")), "--html", "-o", str(folder / "out")]
    done = subprocess.run([sys.executable, "-m", "msprobe", "compare", *words], capture_output=True, timeout=120)
    assert done.returncode == 1, done.stderr
    return folder / "out" / "verdict.html"


def show(browser: str, page: Path, width: int, picture: Path) -> subprocess.CompletedProcess[str]:
    """Open *page* in a window of *width* pixels: its document on stdout, the browser's log on stderr."""
    flags = ["--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking",
             "--disable-component-update", "--disable-sync", f"--user-data-dir={picture.with_suffix('')}",
             f"--window-size={width},2000", "--enable-logging=stderr", f"--screenshot={picture}"]  # fmt: skip
    return subprocess.run([browser, *flags, "--dump-dom", page.as_uri()], capture_output=True, text=True, timeout=120)


class Words(HTMLParser):
    """The words of a document, without its styles."""

    def __init__(self, document: str) -> None:
        super().__init__()
        self.words: list[str] = []
        self.feed(re.sub(r"<style.*?</style>", "", document, flags=re.S))

    def handle_data(self, data: str) -> None:
        self.words.extend(data.split())


@pytest.mark.parametrize("width", [1200, 500])
def test_it_shows_without_a_complaint(browser: str, page: Path, tmp_path: Path, width: int) -> None:
    picture = tmp_path / "page.png"
    done = show(browser, page, width, picture)
    assert picture.stat().st_size > SMALLEST_PICTURE
    assert ":CONSOLE" not in done.stderr, "the page's own policy refuses something in it"
    assert Words(done.stdout).words == Words(page.read_text()).words, "the browser dropped or rearranged something"


def test_nothing_is_fetched(browser: str, page: Path, tmp_path: Path) -> None:
    document = show(browser, page, 1200, tmp_path / "page.png").stdout
    assert not re.search(r"""(?:src|href|action)=["'](?!#)""", document)
