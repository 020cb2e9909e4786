"""A browser for the tests of the page, one for all of them; no request may leave this machine."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from typing import Any
from urllib.parse import urlsplit

import pytest
from browser.stand_in_server import StandIn, serving
from browser.waiting import PATIENCE

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")

#: Opens a page: ``visit(address, language="en-US", theme="light", size=(1440, 900))``.
Visit = Callable[..., Any]


@pytest.fixture(scope="session")
def chromium() -> Iterator[Any]:
    """The browser of this machine. `MSPROBE_BROWSER=required` turns a missing one into a failure."""
    found = next(filter(None, map(shutil.which, NAMES)), None)
    if found is None:
        if os.environ.get("MSPROBE_BROWSER") == "required":
            pytest.fail(f"none of {', '.join(NAMES)} is installed")
        pytest.skip("no Chromium on this machine; make test-browser installs it")
    playwright = pytest.importorskip("playwright.sync_api")
    with playwright.sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=found, args=["--no-sandbox", "--disable-gpu"])
        yield browser
        browser.close()


@pytest.fixture
def visit(chromium: Any) -> Iterator[Visit]:
    """Opens pages; the test fails when one complains, or asks anything of another machine."""
    contexts: list[Any] = []
    complaints: list[str] = []

    def asked(request: Any) -> None:
        address = urlsplit(request.url)
        if address.scheme not in ("data", "file", "blob") and address.hostname != "127.0.0.1":
            complaints.append(f"asked {request.url}")

    def said(message: Any) -> None:
        # A refused request is the test's own doing; the browser writes a line for each.
        if message.type == "error" and "Failed to load resource" not in message.text:
            complaints.append(message.text)

    def visit(address: str, language: str = "en-US", theme: str = "light", size: tuple[int, int] = (1440, 900)) -> Any:
        viewport = {"width": size[0], "height": size[1]}
        context = chromium.new_context(viewport=viewport, color_scheme=theme, locale=language)
        context.grant_permissions(["clipboard-read", "clipboard-write"])
        contexts.append(context)
        page = context.new_page()
        page.set_default_timeout(1000 * PATIENCE)
        page.on("request", asked)
        page.on("console", said)
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.goto(address)
        return page

    yield visit
    for context in contexts:
        context.close()
    assert not complaints


@pytest.fixture
def stand_in() -> StandIn:
    """The made-up pair that `pair_page` serves; a test may change it before it visits."""
    return StandIn(600, places=4)


@pytest.fixture
def address(stand_in: StandIn) -> Iterator[str]:
    """Where the made-up pair is served."""
    with serving(stand_in) as where:
        yield where
