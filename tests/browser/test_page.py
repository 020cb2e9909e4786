"""The page in a real browser, over made-up answers: what a user sees and does."""

from __future__ import annotations

import re
from typing import Any

import pytest
from browser.stand_in_server import StandIn, serving
from browser.waiting import eventually, page_text, selected, until

pytestmark = pytest.mark.browser

FIRST = "Tensor.__mul__.0.forward"


def rows(page: Any) -> Any:
    return page.locator("[role=treegrid] [role=row]")


def ready(page: Any) -> Any:
    page.wait_for_selector("[role=treegrid] .row")
    return page


def test_it_opens_with_the_verdict_and_at_the_first_divergence(visit: Any, address: str) -> None:
    page = ready(visit(address))
    assert eventually(page, lambda: page.locator("h1").inner_text().startswith("diverged at step 0"))
    assert eventually(page, lambda: selected(page) == FIRST)
    assert page.locator(".row.selected").is_visible()
    first = page.locator(".findings li").first
    message = "an extra call multiplies its input by 1.5"  # of the stand-in
    assert eventually(page, lambda: message in first.inner_text())
    assert page.title().endswith("msprobe")


def test_f_leads_back_to_the_first_divergence_from_anywhere(visit: Any, address: str) -> None:
    page = ready(visit(address))
    page.keyboard.press("End")
    assert eventually(page, lambda: selected(page) != FIRST)
    page.keyboard.press("f")
    assert eventually(page, lambda: selected(page) == FIRST)
    assert page.locator(".row.selected").is_visible()


def test_f_and_then_n_show_the_card_of_the_next_finding(visit: Any, stand_in: StandIn, address: str) -> None:
    finding = stand_in.overview["verdict"]["findings"][0]
    stand_in.overview["verdict"]["findings"] = [{**finding, "lines": ["a sentence"] * 20} for _ in range(6)]
    page = ready(visit(address, size=(1000, 700)))
    page.locator(".row:has(.main:text-is('fc2'))").first.click()
    page.wait_for_selector(".tensor")
    for key, number in (("f", 1), ("n", 2), ("n", 3), ("p", 2)):
        page.keyboard.press(key)
        if key == "f":
            continue
        card = page.locator(".findings li.now")
        page.locator(f".findings li.now .rank:text-is('{number}')").wait_for()
        top, pane = card.bounding_box()["y"], page.locator(".pane .content").bounding_box()
        assert pane["y"] <= top < pane["y"] + pane["height"] - 60


def test_keys_that_come_faster_than_the_page_is_drawn_are_all_counted(visit: Any, address: str) -> None:
    page = ready(visit(address))
    press = "(key) => window.dispatchEvent(new KeyboardEvent('keydown', { key, bubbles: true }))"
    theme = "document.documentElement.dataset.theme"
    before = page.evaluate(theme)
    page.evaluate(f"for (const key of 'ttt') ({press.replace('window', 'document.body')})(key)")
    page.wait_for_timeout(200)
    assert page.evaluate(theme) == before
    page.evaluate(f"for (const key of 'tll]]') ({press.replace('window', 'document.body')})(key)")
    until(page, "location.hash.includes('place=2')")
    until(page, f"{theme} !== '{before}'")
    assert page.evaluate("document.documentElement.lang") == "en"


def test_a_container_opens_and_closes_by_mouse_and_by_keyboard(visit: Any, address: str) -> None:
    page = ready(visit(address))
    layer = page.locator(".row:has(.main:text-is('layers.0'))").first
    table = page.locator("[role=treegrid]")
    before = int(table.get_attribute("aria-rowcount"))
    layer.locator("button.fold").click()
    assert eventually(page, lambda: layer.get_attribute("aria-expanded") == "true")
    assert eventually(page, lambda: int(table.get_attribute("aria-rowcount")) > before)
    layer.click()
    page.keyboard.press("ArrowLeft")
    assert eventually(page, lambda: layer.get_attribute("aria-expanded") == "false")
    page.keyboard.press("ArrowRight")
    assert eventually(page, lambda: layer.get_attribute("aria-expanded") == "true")


def test_a_closed_container_says_the_worst_below_and_how_often(visit: Any, address: str) -> None:
    page = ready(visit(address))
    layer = page.locator(".row:has(.main:text-is('layers.2'))").first
    layer.locator("button.fold").click()
    assert eventually(page, lambda: "unexplained difference: 2" in str(layer.locator(".tally").get_attribute("title")))
    assert eventually(page, lambda: "edge-unexplained" in str(layer.get_attribute("class")))


def test_rows_of_one_side_stand_in_their_place(visit: Any, address: str) -> None:
    page = ready(visit(address))
    names = page.locator("[role=treegrid] .row .main").all_inner_texts()
    at = names.index("__mul__")
    assert names[at - 1 : at + 3] == ["gelu", "__mul__", "fc2", "dropout"]
    assert eventually(
        page,
        lambda: page.locator(".row:has(.main:text-is('dropout'))").first.locator("em").inner_text() == "reference only",
    )


def test_a_search_shows_what_it_found_and_escape_leaves_it(visit: Any, address: str) -> None:
    page = ready(visit(address))
    page.keyboard.press("/")
    page.keyboard.type("all_reduce backward")
    page.wait_for_selector(".hits")
    assert eventually(page, lambda: re.fullmatch(r"\d+ found", page.locator(".hits").inner_text()))
    page.keyboard.press("Enter")
    assert eventually(page, lambda: re.fullmatch(r"Distributed\.all_reduce\.\d+\.backward", selected(page)))
    page.keyboard.press("Escape")
    page.keyboard.press("f")
    assert eventually(page, lambda: selected(page) == FIRST)
    assert page.locator("#search").input_value() == ""


def test_a_search_without_a_hit_says_so(visit: Any, address: str) -> None:
    page = ready(visit(address))
    page.locator("#search").fill("no such call")
    page.wait_for_selector("text=No row matches")


def test_statuses_filter_and_are_counted(visit: Any, address: str) -> None:
    page = ready(visit(address))
    chip = page.locator(".chip.c-unexplained")
    assert eventually(page, lambda: chip.get_attribute("aria-label") == "unexplained difference: 2")
    chip.click()
    assert eventually(page, lambda: chip.get_attribute("aria-pressed") == "true")
    shown = page.locator("[role=treegrid] .row:not(.dim)")
    assert eventually(page, lambda: shown.count() == 2)
    page.locator("text=Show all").click()
    assert eventually(page, lambda: page.locator("[role=treegrid] .row.dim").count() == 0)


def test_kinds_passes_and_remarks_filter(visit: Any, address: str) -> None:
    page = ready(visit(address))
    page.locator("summary:has-text('Filter')").click()
    page.get_by_label("gradients of parameters").check()
    assert eventually(
        page, lambda: page.locator(".row:not(.dim) .name").first.get_attribute("title").endswith("parameters_grad")
    )
    page.get_by_label("gradients of parameters").uncheck()
    page.get_by_label("communication").check()
    assert eventually(page, lambda: "all_reduce" in page.locator(".row:not(.dim) .name").first.get_attribute("title"))


def test_details_have_statistics_differences_source_and_neighbours(visit: Any, address: str) -> None:
    page = ready(visit(address))
    page.locator(".row:has(.main:text-is('fc2'))").first.click()
    pane = page.locator(".pane")
    pane.locator("text=Results").first.wait_for()
    words = pane.inner_text()
    for expected in ("float32", "[8, 64]", "2.771343", "relative", "train.py", "Inputs come from", "1e-05"):
        assert expected in words, expected
    pane.locator(".links button.jump").first.click()
    assert eventually(page, lambda: selected(page) == FIRST)


def test_the_table_is_copied_with_all_digits(visit: Any, address: str) -> None:
    page = ready(visit(address))
    page.locator(".row:has(.main:text-is('fc2'))").first.click()
    page.get_by_label("Copy as a table (TSV)").click()
    page.wait_for_selector("text=copied")
    lines = page.evaluate("navigator.clipboard.readText()").splitlines()
    assert lines[0].startswith("slot\tcandidate type")
    assert {len(line.split("\t")) for line in lines} == {len(lines[0].split("\t"))}
    assert "-4.967054e-9" in lines[1]


def test_a_picture_of_the_difference_comes_when_asked(visit: Any, stand_in: StandIn, address: str) -> None:
    page = ready(visit(address))
    page.locator(".row:has(.main:text-is('fc2'))").first.click()
    button = page.get_by_role("button", name="Show the difference as a picture").last
    assert button.evaluate("(it) => getComputedStyle(it).borderTopColor !== getComputedStyle(it).backgroundColor")
    button.click()
    page.locator("canvas.cells").wait_for()
    assert page.locator("svg.histogram").is_visible()
    assert next(question for question in stand_in.asked if "picture" in question).endswith("slot=output.0")


def test_a_click_on_the_strip_goes_there(visit: Any, address: str) -> None:
    page = ready(visit(address))
    strip = page.locator(".heat canvas")
    box = strip.bounding_box()
    strip.click(position={"x": box["width"] - 3, "y": 50})
    assert eventually(page, lambda: selected(page) == "Optimizer.AdamW.step.0")


def test_matching_by_hand_is_sent_and_shown(visit: Any, stand_in: StandIn, address: str) -> None:
    page = ready(visit(address))
    page.keyboard.press("m")
    page.wait_for_selector(".match.now")
    page.locator(".row:has(.main:text-is('dropout'))").first.click()
    page.locator("button:text-is('Match')").click()
    page.wait_for_selector("text=Saved in candidate.vis.config")
    assert stand_in.pairs == {FIRST: "Functional.dropout.0.forward"}
    page.locator(".notice button:has-text('Undo')").click()
    until(page, "!document.querySelector('.match')")
    assert stand_in.pairs == {}


def test_a_reload_and_the_back_button_show_what_was_shown(visit: Any, address: str) -> None:
    page = ready(visit(address))
    page.locator(".row:has(.main:text-is('fc1'))").first.click()
    name = selected(page)
    page.reload()
    assert selected(ready(page)) == name
    page.keyboard.press("2")
    page.wait_for_selector(".grid")
    page.reload()
    page.wait_for_selector(".grid")
    page.go_back()
    ready(page)
    page.go_back()
    until(page, "document.querySelector('.row.selected .name')?.title === 'Tensor.__mul__.0.forward'")


def test_layers_fold_and_a_cell_goes_to_its_row(visit: Any, address: str) -> None:
    page = ready(visit(address))
    page.keyboard.press("2")
    grid = page.locator(".grid").first
    assert eventually(page, lambda: grid.locator("h3").inner_text() == "model.layers.*")
    assert eventually(page, lambda: grid.locator("tbody tr").count() >= 3)
    wrong = grid.locator(".m-unexplained")
    assert eventually(page, lambda: wrong.count() == 2)
    wrong.last.click()
    assert eventually(
        page,
        lambda: (
            page.locator(".pane h2")
            .inner_text()
            .replace("\u200b", "")
            .startswith(("Functional.linear", "Module.model"))
        ),
    )
    assert eventually(page, lambda: page.locator(".grid td.here").count() == 1)


def test_ranks_and_layers_lead_to_the_rank(visit: Any, address: str) -> None:
    page = ready(visit(address))
    page.keyboard.press("3")
    page.locator(".grid .m-unexplained").click()
    ready(page)
    assert eventually(page, lambda: selected(page).startswith(("Functional.linear", "Module.model.layers.2.")))


def test_steps_have_curves_and_a_click_opens_the_step(visit: Any, address: str) -> None:
    page = ready(visit(address))
    page.keyboard.press("4")
    assert eventually(page, lambda: page.locator(".curve").count() == 2)
    box = page.locator(".curve svg").first.bounding_box()
    page.mouse.click(box["x"] + 52 + (box["width"] - 60) / 19, box["y"] + 60)  # the second of twenty steps
    until(page, "location.hash.includes('place=2')")


def test_the_language_changes_every_word_and_is_kept(visit: Any, address: str) -> None:
    page = ready(visit(address))
    page.keyboard.press("l")
    page.wait_for_selector("text=首个差异")
    # An effect, which follows what is painted.
    assert eventually(page, lambda: page.evaluate("document.documentElement.lang") == "zh-CN")
    page.reload()
    ready(page)
    assert eventually(page, lambda: page.locator("[role=tab]").first.inner_text() == "调用")


def test_a_chinese_browser_is_answered_in_chinese(visit: Any, address: str) -> None:
    page = ready(visit(address, language="zh-CN"))
    assert eventually(page, lambda: page.locator("[role=tab]").first.inner_text() == "调用")


def test_light_and_dark_follow_the_system_until_chosen(visit: Any, address: str) -> None:
    ground = "getComputedStyle(document.body).backgroundColor"
    light, dark = (ready(visit(address, theme=theme)) for theme in ("light", "dark"))
    assert light.evaluate(ground) == "rgb(255, 255, 255)"
    assert dark.evaluate(ground) != "rgb(255, 255, 255)"
    dark.keyboard.press("t")  # system, light, dark
    until(dark, f"{ground} === 'rgb(255, 255, 255)'")


def test_help_says_keys_and_signs_and_closes(visit: Any, address: str) -> None:
    page = ready(visit(address))
    page.keyboard.press("?")
    dialog = page.locator("dialog.help")
    assert eventually(page, lambda: "within rounding" in dialog.inner_text())
    page.keyboard.press("Escape")
    dialog.wait_for(state="detached")


def test_a_single_run_shows_norms_and_where_nan_begins(visit: Any) -> None:
    with serving(StandIn(600, single=True)) as address:
        page = ready(visit(address))
        assert eventually(page, lambda: page.locator(".row.selected .flags").inner_text() == page_text("flag.born"))
        assert eventually(page, lambda: page.locator(".head").inner_text().split()[3:5] == ["Pass", "Norm"])
        page.keyboard.press("2")
        assert eventually(page, lambda: page.locator(".grid td.value").count() > 10)


def test_only_what_is_on_the_screen_is_in_the_document(visit: Any) -> None:
    with serving(StandIn(20_000)) as address:
        page = ready(visit(address))
        page.get_by_label("Expand all").click()
        assert eventually(page, lambda: int(page.locator("[role=treegrid]").get_attribute("aria-rowcount")) > 17_000)
        assert eventually(page, lambda: rows(page).count() < 80)
        page.keyboard.press("End")
        assert eventually(page, lambda: selected(page) == "Optimizer.AdamW.step.0")
        assert page.locator(".row.selected").is_visible()


@pytest.mark.parametrize("size", [(1440, 900), (1000, 700)])
def test_nothing_is_wider_than_the_window(visit: Any, address: str, size: tuple[int, int]) -> None:
    page = ready(visit(address, size=size))
    for key in "1234":
        page.keyboard.press(key)
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")


def test_in_a_narrow_window_no_number_and_no_tag_is_cut(visit: Any, address: str) -> None:
    page = ready(visit(address, size=(1000, 700)))
    page.locator("#search").fill("mlp fc2")
    page.locator(".row:has(.main:text-is('fc2'))").first.click()
    page.wait_for_selector(".tensor .numbers")
    cut = """[...document.querySelectorAll('.numbers td, .tag, .chip, .row .number span, .tabs button')]
      .filter((one) => one.scrollWidth > one.clientWidth + 1 && getComputedStyle(one).display !== 'inline')
      .map((one) => one.outerHTML)"""
    assert page.evaluate(cut) == []
    outside = """[...document.querySelectorAll('.chip, .row .tag, .tools button')].filter((one) => {
      const [box, area] = [one.getBoundingClientRect(), one.closest('.name, .whole').getBoundingClientRect()];
      return box.right > area.right + 1 || box.left < area.left - 1; }).map((one) => one.outerHTML)"""
    assert page.evaluate(outside) == []


def test_the_keyboard_alone_reaches_everything_and_shows_where_it_is(visit: Any, address: str) -> None:
    page = ready(visit(address))
    reached = []
    for _ in range(60):
        page.keyboard.press("Tab")
        where = page.evaluate(FOCUSED)
        if where is None:
            break
        reached.append(where["name"])
        assert where["isShown"], where
    expected = ("Search by name", "Difference along", "Calls", "Expand all", "Width of the details", "Findings")
    for name in expected:
        assert any(one.startswith(name) for one in reached), name
    page.get_by_role("tab", name="Calls").focus()
    page.keyboard.press("ArrowRight")
    page.wait_for_selector(".grid")
    assert page.evaluate("document.activeElement.textContent") == "Layers"
    divider, pane = page.get_by_role("separator"), page.locator(".pane")
    before = pane.bounding_box()["width"]
    divider.focus()
    page.keyboard.press("ArrowLeft")
    assert abs(pane.bounding_box()["width"] - (before + 24)) < 1
    box = divider.bounding_box()
    page.mouse.move(box["x"] + 2, box["y"] + 99)
    page.mouse.down()
    page.mouse.move(box["x"] + 62, box["y"] + 99)
    page.mouse.up()
    assert abs(pane.bounding_box()["width"] - (before - 36)) < 4


#: The focused element: its name, and if it can be seen that it is.
FOCUSED = """() => {
  const one = document.activeElement;
  if (one === document.body) return null;
  const style = getComputedStyle(one);
  const isShown = style.outlineStyle !== 'none' || style.backgroundColor !== 'rgba(0, 0, 0, 0)';
  return { name: one.getAttribute('aria-label') || one.innerText || one.tagName, isShown };
}"""


def test_every_control_has_a_name(visit: Any, address: str) -> None:
    page = ready(visit(address))
    nameless = """
      [...document.querySelectorAll('button, select, input, [role=button], [role=slider], [role=treegrid]')]
        .filter((one) => !(one.getAttribute('aria-label') || one.innerText?.trim() || one.title || one.labels?.length))
        .map((one) => one.outerHTML)"""
    for key in "1234":
        page.keyboard.press(key)
        page.wait_for_timeout(100)
        assert page.evaluate(nameless) == []


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_small_words_can_be_read(visit: Any, address: str, theme: str) -> None:
    """Contrast of at least 4.5 to 1 (WCAG 2.1, 1.4.3) between words and the ground they stand on."""
    page = ready(visit(address, theme=theme))
    page.locator(".row:has(.main:text-is('fc2'))").first.click()
    page.wait_for_selector(".tensor")
    assert page.evaluate(CONTRAST) == []


#: The words of too little contrast: what stands on a ground that lets the one below through is seen on that one.
CONTRAST = """() => {
  const channel = (value) => (value /= 255) <= 0.03928 ? value / 12.92 : ((value + 0.055) / 1.055) ** 2.4;
  const parse = (text) => { const c = text.match(/[\\d.]+/g).map(Number); return text.startsWith('color(srgb')
    ? [...c.slice(0, 3).map((v) => v * 255), c[3] ?? 1] : [...c.slice(0, 3), c[3] ?? 1]; };
  const light = ([r, g, b]) => 0.2126 * channel(r) + 0.7152 * channel(g) + 0.0722 * channel(b);
  const ground = (element) => {
    for (; element; element = element.parentElement) {
      const colour = parse(getComputedStyle(element).backgroundColor);
      if (colour[3] > 0.9) return colour;
    }
    return [255, 255, 255];
  };
  const bad = [];
  for (const element of document.querySelectorAll('body *')) {
    const own = [...element.childNodes].some((node) => node.nodeType === 3 && node.textContent.trim());
    if (!own || !element.checkVisibility() || element.closest('[disabled], svg')) continue;
    const [a, b] = [light(parse(getComputedStyle(element).color)), light(ground(element))];
    const contrast = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
    if (contrast < 4.5) bad.push(`${element.className}: ${element.textContent.slice(0, 30)} ${contrast.toFixed(2)}`);
  }
  return bad;
}"""


class TestTrouble:
    """What went wrong is said in words, with what to do."""

    @pytest.mark.parametrize(
        ("status", "title"),
        [
            (403, "This address has no access"),
            (404, "This does not exist"),
            (409, "A file has changed"),
            (500, "The server could not"),
        ],
    )
    def test_an_error_of_the_server_is_reported_with_its_sentence(
        self, visit: Any, stand_in: StandIn, address: str, status: int, title: str
    ) -> None:
        message = "dump.json is not what it was"
        stand_in.fails["overview"] = (status, message)
        page = visit(address)
        alert = page.locator("[role=alert]")
        assert eventually(page, lambda: title in alert.inner_text())
        assert eventually(page, lambda: message in alert.inner_text())
        stand_in.fails.clear()
        alert.locator("button").click()
        ready(page)

    def test_a_changed_file_of_one_place_leaves_the_rest_usable(
        self, visit: Any, stand_in: StandIn, address: str
    ) -> None:
        stand_in.fails["place"] = (409, "step0/rank1/dump.json was changed")
        page = visit(address)
        assert eventually(
            page, lambda: "step0/rank1/dump.json was changed" in page.locator("[role=alert]").inner_text()
        )
        assert eventually(page, lambda: page.locator(".findings ol > li").count() == 2)

    def test_a_row_that_cannot_be_read_says_why(self, visit: Any, stand_in: StandIn, address: str) -> None:
        message = "no record of that name"
        stand_in.fails["node"] = (404, message)
        page = ready(visit(address))
        page.locator(".row:has(.main:text-is('fc2'))").first.click()
        assert eventually(page, lambda: message in page.locator(".pane [role=alert]").inner_text())

    def test_a_server_that_has_ended_is_reported(self, visit: Any, address: str) -> None:
        page = ready(visit(address))
        page.route("**/api/**", lambda route: route.abort())
        page.locator(".row:has(.main:text-is('fc2'))").first.click()
        assert eventually(page, lambda: page_text("trouble.gone") in page.locator(".pane [role=alert]").inner_text())

    def test_a_wrong_token_is_reported(self, visit: Any, address: str) -> None:
        page = visit(address.split("?")[0] + "?token=wrong")
        assert eventually(page, lambda: page_text("trouble.token") in page.locator("[role=alert]").inner_text())

    def test_an_empty_dump_says_so(self, visit: Any, stand_in: StandIn, address: str) -> None:
        stand_in.overview = {**stand_in.overview, "places": [], "verdict": None, "curve": []}
        visit(address).wait_for_selector("text=This dump is empty")

    def test_an_interrupted_recording_says_so(self, visit: Any, stand_in: StandIn, address: str) -> None:
        stand_in.overview["sides"][0]["interrupted"] = True
        page = ready(visit(address))
        assert eventually(page, lambda: page_text("interrupted.long") in page.locator(".verdict").inner_text())


def test_many_notes_do_not_push_the_page_away(visit: Any, stand_in: StandIn, address: str) -> None:
    stand_in.overview["notes"] = [f"note {number} " * 8 for number in range(40)]
    page = ready(visit(address))
    assert eventually(page, lambda: "37 more notes" in page.locator(".verdict").inner_text())
    assert page.locator("[role=treegrid]").bounding_box()["height"] > 300


def test_names_of_a_stranger_are_only_text(visit: Any, stand_in: StandIn, address: str) -> None:
    stand_in.place["names"][1] = "<img src=x onerror=alert(1)>.<script>alert(2)</script>.forward"
    page = ready(visit(address))
    assert eventually(page, lambda: page.locator("#msprobe img, #msprobe script").count() == 0)
    assert eventually(page, lambda: "<img src=x" in page.locator(".row .name").nth(1).get_attribute("title"))
