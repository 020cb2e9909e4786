"""The page of a monitored run, in a real browser: it asks nothing of anybody, and shows what its numbers say."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from browser.conftest import Visit
from browser.waiting import eventually
from support.command_line import call
from unit.monitor.test_report import made

from msprobe.messages import said

pytestmark = pytest.mark.browser


@pytest.fixture
def page(tmp_path: Path, visit: Visit) -> Any:
    """Two runs, the second with a fault at step 37."""
    healthy, bad = made(tmp_path / "a", noise=1), made(tmp_path / "b", noise=2, fault_at=37)
    call("monitor", "report", bad, healthy, "-o", tmp_path / "out.html")
    return visit((tmp_path / "out.html").as_uri())


def test_what_stands_out_is_said_first(page: Any) -> None:
    findings = page.inner_text("#findings")
    assert "37" in findings.splitlines()[0]
    assert str(said("monitor-band-left-there", "grad_reduced", "fc1.bias", "norm")) in findings
    assert eventually(page, lambda: page.locator("#curves .chart").count() == 3)
    assert "grad_reduced: norm of fc1.bias" in page.inner_text("#tensor")


def test_the_map_has_a_colour_for_each_tensor_and_step(page: Any) -> None:
    colours = page.evaluate(
        """() => {
          const canvas = document.getElementById("map"), context = canvas.getContext("2d"), k = devicePixelRatio;
          const at = (row, column) => {
            const x = scale.left + (column + 0.3) * scale.step, y = HEAD + row * ROW + 3;
            return [...context.getImageData(x * k, y * k, 1, 1).data].join();
          };
          return [new Set(Array.from({length: 60}, (_, c) => at(1, c))).size, at(1, 10), at(1, 50)];
        }"""
    )
    assert colours[0] > 20
    assert colours[1] != colours[2]


def test_an_alert_leads_to_its_tensor(page: Any) -> None:
    page.select_option("#controls select >> nth=0", "0")
    page.locator("#alerts tbody tr").first.click()
    assert "grad_reduced: norm of fc1.bias" in page.inner_text("#tensor")
    page.fill("input[type=search]", "fc2")
    assert page.inner_text("#tensor") == ""
    assert page.evaluate("shown.length") == 2


def test_the_pointer_reads_a_value(page: Any) -> None:
    box = page.locator("#map").bounding_box()
    left, step = page.evaluate("[scale.left, scale.step]")
    page.mouse.move(box["x"] + left + 37.5 * step, box["y"] + 18 + 14 + 7)
    told = page.inner_text("#tip")
    assert told.startswith("fc1.bias\nstep 37: ")


def test_all_that_the_page_says_is_in_the_language_that_is_chosen(page: Any) -> None:
    page.get_by_text("中文").click()
    assert eventually(page, lambda: page.get_attribute("html", "lang") == "zh")
    chinese = re.compile("[\u4e00-\u9fff]")
    for place in ("#findings b", "h2:visible", "#legend > span >> nth=1"):
        assert all(chinese.search(text) for text in page.locator(place).all_inner_texts()), place
    assert page.locator("#curves .chart").count() == 3
    english = re.findall(r"[a-z]{2,} [a-z]{2,} [a-z]{2,}", page.inner_text("#findings b >> nth=0"))
    assert english == []
