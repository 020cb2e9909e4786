"""The page over a real pair of trainings: served by `msprobe view`, and as one file to send by mail."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from browser.view_server import viewing
from browser.waiting import eventually
from bugs.patterns import PATTERNS
from bugs.planting import draw
from bugs.record import Pair, record

pytestmark = pytest.mark.browser


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Pair:
    """A training with a mistake in its forward, and the same one without; whole tensors."""
    pattern = PATTERNS["F05"]
    return record(pattern, draw(pattern, 0), "tensor", tmp_path_factory.mktemp("pair"))


@pytest.fixture(scope="module")
def words(pair: Pair, tmp_path_factory: pytest.TempPathFactory) -> str:
    """What the command line says of the pair."""
    out = tmp_path_factory.mktemp("out")
    command = [sys.executable, "-m", "msprobe", "compare", str(pair.dump("candidate")), str(pair.dump("reference"))]
    done = subprocess.run([*command, "-o", str(out)], capture_output=True, text=True, timeout=120)
    assert done.returncode == 1, done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def served(pair: Pair, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address that `msprobe view` prints."""
    with viewing(pair.dump("candidate"), pair.dump("reference"), matches=tmp_path_factory.mktemp("matches")) as address:
        yield address


@pytest.fixture(scope="module")
def file(pair: Pair, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same as one file."""
    out = tmp_path_factory.mktemp("single") / "pair.html"
    command = [sys.executable, "-m", "msprobe", "view", str(pair.dump("candidate")), str(pair.dump("reference"))]
    done = subprocess.run([*command, "--html", str(out), "--jobs", "1"], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return out


def ready(page: Any) -> Any:
    page.wait_for_selector("[role=treegrid] .row", timeout=60_000)
    return page


def test_the_first_divergence_is_the_call_that_the_command_line_names(visit: Any, served: str, words: str) -> None:
    page = ready(visit(served))
    name = page.locator(".row.selected .name").get_attribute("title")
    title = page.locator(".findings ol > li .title span").nth(1).inner_text()
    assert name.startswith("Tensor.__mul__")
    assert title.startswith(f"{name}: input.1 is")
    assert " ".join(title.split()) in " ".join(words.split())
    assert eventually(page, lambda: page.locator("h1").inner_text() in words)


def test_the_token_is_gone_from_the_address_and_a_reload_needs_none(visit: Any, served: str) -> None:
    page = ready(visit(served))
    assert "token" in served
    asked: list[Any] = []
    page.on("request", lambda request: asked.append((request.url, request.headers)))
    page.reload()
    ready(page)
    address = page.url
    assert "token" not in address
    token = served.partition("token=")[2]
    assert asked
    assert token not in str(asked)
    assert token not in page.evaluate("document.cookie + JSON.stringify(Object.entries(sessionStorage))")
    assert token not in page.evaluate("performance.getEntriesByType('navigation')[0].name")
    (cookie,) = page.context.cookies()
    assert (cookie["httpOnly"], cookie["sameSite"]) == (True, "Strict")
    page.go_back(wait_until="commit")
    assert "token" not in page.url


def test_a_state_in_the_address_outlives_the_exchange_of_the_token(visit: Any, served: str) -> None:
    page = ready(visit(served))
    page.locator("[role=tab]:text-is('Call')").click()
    state = page.url.partition("#")[2]
    again = ready(visit(f"{served}#{state}"))
    assert again.url.partition("#")[2] == state


def test_details_come_from_the_dump_and_a_picture_from_its_tensors(visit: Any, served: str) -> None:
    page = ready(visit(served))
    page.locator("[role=tab]:text-is('Call')").click()
    page.locator(".tensor").first.wait_for()
    assert eventually(page, lambda: "program.py" in page.locator(".frames").first.inner_text())
    page.get_by_role("button", name="Show the difference as a picture").last.click()
    page.locator("canvas.cells").wait_for()


def test_a_search_finds_calls_by_the_line_of_the_program(visit: Any, served: str, file: Path) -> None:
    for where in (served, file.as_uri()):
        page = ready(visit(where))
        line = page.locator(".findings dd").filter(has_text="program.py").first.inner_text()
        place = line.split(" in ")[0].rsplit("/", 1)[1]
        for words in (place, "scores * self.scale"):
            page.locator("#search").fill(words)
            page.locator(".hits", has_text="by source line").wait_for()
            page.locator("#search").press("Enter")
            page.locator(".row.selected .name[title^='Tensor.__mul__']").wait_for()
        page.locator("#search").fill(f"{place}9")
        page.wait_for_selector("text=No row matches")


def test_one_file_shows_the_same_without_a_server(visit: Any, served: str, file: Path) -> None:
    pages = [ready(visit(where)) for where in (served, file.as_uri())]
    for selector in ("h1", ".findings", ".chips"):
        first, second = (page.locator(selector).first.inner_text() for page in pages)
        assert first == second, selector
    # Rows are drawn as far as there is room, which is known when all above them has its height.
    for _ in range(50):
        names = [page.locator(".row .name").evaluate_all("all => all.map(one => one.title)") for page in pages]
        if names[0] == names[1]:
            break
        pages[0].wait_for_timeout(100)
    assert names[0] == names[1]


def test_one_file_has_the_details_of_the_worst_rows(visit: Any, file: Path) -> None:
    page = ready(visit(file.as_uri()))
    page.locator("[role=tab]:text-is('Call')").click()
    page.locator(".tensor").first.wait_for()
    page.keyboard.press("2")
    page.locator(".grid .m-unexplained").first.click()
    page.locator(".tensor").first.wait_for()


def test_one_file_keeps_its_state_in_its_address(visit: Any, file: Path) -> None:
    page = ready(visit(file.as_uri()))
    page.keyboard.press("2")
    page.wait_for_selector(".grid")
    page.reload()
    page.wait_for_selector(".grid")
