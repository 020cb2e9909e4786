"""The page of two runs of the gradient probe, in a real browser."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from browser.conftest import Visit
from browser.waiting import eventually
from unit.grad_probe.test_comparator import flipped, write_run

from msprobe import GradComparator

pytestmark = pytest.mark.browser


@pytest.fixture
def page(tmp_path: Path, visit: Visit) -> Any:
    """Two ranks, three parameters, one of which has a name that looks like HTML, and a drop at step 2."""
    names = ["first", "<b>second<b>", "third"]
    for side in "ab":
        for rank in (0, 1):
            folder = tmp_path / side / f"rank{rank}"
            for step in range(4):
                bad = side == "b" and step >= 2 and rank == 1
                write_run(tmp_path / side, {step: {f"p{i}": flipped(20, 8 * bad) for i in range(3)}}, rank=rank)
                file = folder / f"grad_summary_{step}.csv"
                text = file.read_text("utf-8-sig")
                file.write_text(text.replace("p1,", f"{names[1]},"), "utf-8-sig")
                (folder / f"step{step}" / "p1.npy").rename(folder / f"step{step}" / "%3Cb%3Esecond%3Cb%3E.npy")
    GradComparator.compare_distributed(tmp_path / "a", tmp_path / "b", tmp_path / "out", plot="none")
    return visit((tmp_path / "out" / "gradients.html").as_uri())


def test_the_answer_comes_first_and_all_curves_are_there(page: Any) -> None:
    assert page.inner_text("#line") == "first suspicious: rank 1 step 2 p2 1 -> 0.6"
    assert eventually(page, lambda: page.locator("#chart path.curve").count() == 4)
    assert eventually(page, lambda: page.locator("#chart path.suspicious").count() == 0)
    page.select_option("#rank", "rank 1")
    assert eventually(page, lambda: page.locator("#chart path.suspicious").count() == 3)
    assert eventually(
        page, lambda: page.locator("#rows tr").first.inner_text().split("\t") == ["p2", "2: drop", "1", "0.6", "0.6"]
    )


def test_names_are_texts_and_can_be_looked_for(page: Any) -> None:
    page.fill("#filter", "SECOND")
    assert eventually(page, lambda: page.locator("#rows tr").count() == 1)
    assert eventually(page, lambda: page.locator("#rows b").count() == 0)
    page.locator("#rows tr").first.click()
    assert eventually(page, lambda: page.locator("#chart path.chosen").count() == 1)
    assert page.locator("#chart > text").last.text_content() == "<b>second<b>"


def test_the_page_is_in_the_language_that_is_chosen(page: Any) -> None:
    chinese = re.compile("[\u4e00-\u9fff]")
    assert not chinese.search(page.inner_text("h1, thead"))
    page.get_by_text("中文").click()
    assert eventually(page, lambda: chinese.search(page.inner_text("#line")) is not None)
    assert all(chinese.search(title) for title in page.locator("thead th").all_inner_texts())
    assert page.get_attribute("html", "lang") == "zh"
    page.get_by_text("English").click()
    assert eventually(page, lambda: not chinese.search(page.inner_text("#line")))
