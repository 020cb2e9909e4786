"""The page over recordings of all sorts, served by `msprobe view`: of ranks and steps, cut short, as graph files."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from browser.view_server import viewing
from browser.waiting import eventually, page_text, selected, until
from support import forked
from support.coded_texts import mentions
from unit.diagnose.training import Plan, train

from msprobe import cli
from msprobe.messages import said
from msprobe.store.reader import open_dump

pytestmark = pytest.mark.browser


def half_as_much_again(x: Any) -> Any:
    return x * np.float32(1.5)


def ready(page: Any) -> Any:
    page.wait_for_selector("[role=treegrid] .row", timeout=60_000)
    return page


def with_exchanges(folder: Path) -> None:
    """Write calls between two ranks into the dumps of a folder."""
    for file in folder.rglob("dump.json"):
        content = json.loads(file.read_bytes())
        leaf = {"type": "torch.Tensor", "dtype": "torch.float32", "shape": [2], "Max": 1.0, "Min": 1.0, "Mean": 1.0}
        rank = int(file.parent.name.removeprefix("rank"))
        name = f"Distributed.{'irecv' if rank else 'isend'}.0.forward"
        call = {"input_args": [leaf, {"type": "int", "value": 1 - rank}], "input_kwargs": {}, "output": []}
        content["data"] = {**content["data"], name: call}
        file.write_text(json.dumps(content))


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Two steps on two ranks; on the first rank the candidate calls erf where the reference calls tanh."""
    folder = tmp_path_factory.mktemp("runs")
    other = Plan(steps=2, results={"blocks.0.tanh": half_as_much_again}, renamed={"blocks.0.tanh": "Torch.erf"})
    train(folder / "candidate", other, Plan(steps=2))
    train(folder / "reference", Plan(steps=2), Plan(steps=2))
    with_exchanges(folder)
    return folder / "candidate", folder / "reference"


@pytest.fixture(scope="module")
def matches(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("matches")


@pytest.fixture(scope="module")
def served(runs: tuple[Path, Path], matches: Path) -> Iterator[str]:
    with viewing(*runs, matches=matches) as address:
        yield address


def test_a_partner_in_another_rank_leads_to_its_call_there(visit: Any, served: str) -> None:
    page = ready(visit(served))
    page.locator("#search").fill("isend")
    page.locator("#search").press("Enter")
    assert eventually(page, lambda: selected(page) == "Distributed.isend.0.forward")
    page.locator(".links button", has_text="irecv").click()
    page.locator(".row.selected .name[title='Distributed.irecv.0.forward']").wait_for()
    assert eventually(
        page, lambda: page.locator(".places select option:checked").inner_text().endswith("step 0, rank 1")
    )
    page.locator(".links button", has_text="isend").click()
    page.locator(".row.selected .name[title='Distributed.isend.0.forward']").wait_for()


def test_a_pair_made_by_hand_is_written_beside_stays_and_can_be_undone(
    visit: Any, served: str, matches: Path, runs: tuple[Path, Path]
) -> None:
    before = {file: file.read_bytes() for run in runs for file in run.rglob("*") if file.is_file()}
    page = ready(visit(served))
    page.locator(".row:has(.main:text-is('erf')) em:text-is('candidate only')").first.click()
    page.keyboard.press("m")
    box = page.locator(".match.now")
    assert eventually(page, lambda: str(matches) in box.inner_text())
    assert eventually(page, lambda: "To undo it" in box.inner_text())
    # The field has the focus: type a part of the name, take the first, confirm.
    page.keyboard.type("TANH")
    options = box.get_by_role("option")
    assert eventually(page, lambda: [one.split(".")[1] for one in options.all_inner_texts()] == ["tanh"])
    page.keyboard.press("Enter")
    assert eventually(page, lambda: selected(page) == "Torch.tanh.0.forward")
    page.locator("button:text-is('Match')").wait_for()
    page.keyboard.press("Enter")
    page.wait_for_selector("text=the recordings are untouched")
    page.locator("text=Matched by hand with Torch.tanh.0.forward.").wait_for()
    (file,) = matches.iterdir()
    backward = {"Torch.erf.0.backward": "Torch.tanh.0.backward"}
    assert json.loads(file.read_text()) == {"Torch.erf.0.forward": "Torch.tanh.0.forward", **backward}
    assert eventually(page, lambda: page.locator(".row.selected .left").inner_text() == "0.333")
    page.reload()
    ready(page)
    page.locator("text=Matched by hand with Torch.tanh.0.forward.").wait_for()
    page.get_by_role("button", name="Undo").click()
    page.locator(".row.selected em:text-is('candidate only')").wait_for()
    assert json.loads(file.read_text()) == {}
    assert {file: file.read_bytes() for run in runs for file in run.rglob("*") if file.is_file()} == before


def test_steps_have_a_scale_for_each_panel_a_place_for_0_and_the_tolerance(visit: Any, served: str) -> None:
    page = ready(visit(served))
    page.keyboard.press("4")
    weights = page.locator(".curve", has_text="weight norm")
    weights.wait_for()
    assert eventually(page, lambda: weights.locator(".c-name").all_text_contents() == ["value", "relative difference"])
    # The weights of the first step are equal: their difference stands on the tick of 0.
    assert eventually(page, lambda: "0" in weights.locator("text").all_text_contents())
    tick = weights.locator("g:has(> text:text-is('0')) > path").last.bounding_box()
    point = weights.locator(".c-points.c-difference circle").first.bounding_box()
    assert abs(point["y"] + point["height"] / 2 - tick["y"]) < 2
    assert eventually(page, lambda: weights.locator("path.c-allowed").get_attribute("d").startswith("M"))
    weights.locator("svg").focus()
    page.keyboard.press("ArrowRight")
    page.keyboard.press("Enter")
    until(page, "location.hash.includes('place=2')")


@pytest.fixture(scope="module")
def graphs(runs: tuple[Path, Path], tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Graph files that our own commands make of them: one for each step and rank, and one for all."""
    folder = tmp_path_factory.mktemp("graphs")
    asked = folder / "compare.json"
    asked.write_text(json.dumps({"npu_path": str(runs[0]), "bench_path": str(runs[1])}))
    assert cli.main(["-f", "pytorch", "graph", "-i", str(asked), "-o", str(folder / "vis")]) == 0
    words = ["-tp", str(runs[0]), "-gp", str(runs[1]), "-o", str(folder / "db")]
    assert cli.main(["graph_visualize", *words]) == 0
    return {"vis": folder / "vis", "db": next((folder / "db").iterdir())}


@pytest.mark.parametrize("form", ["vis", "db"])
def test_graph_files_show_their_steps_and_ranks(visit: Any, graphs: dict[str, Path], form: str) -> None:
    with viewing(graphs[form]) as address:
        page = ready(visit(address))
        assert eventually(page, lambda: "erf" in selected(page) or "tanh" in selected(page))
        places = page.locator(".places option").all_inner_texts()
        assert places == [f"step {step}, {said('rank', rank)}" for step in (0, 1) for rank in (0, 1)]
        assert eventually(
            page, lambda: page.locator(".whole [role=tab]").all_inner_texts() == ["Calls", "Layers", "Ranks"]
        )
        page.keyboard.press("4")
        assert eventually(page, lambda: page.locator(".whole [role=tab][aria-selected=true]").inner_text() == "Calls")
        page.keyboard.press("3")
        page.locator(".grid .m-candidate, .grid .m-unexplained").first.click()
        ready(page)
        page.keyboard.press("]")
        until(page, "location.hash.includes('place=1')")
        ready(page)
        assert page.locator(".heat canvas").is_visible()


def test_a_recording_that_was_killed_shows_what_there_is_and_says_so(visit: Any, tmp_path: Path) -> None:
    script = Path(__file__).parents[1] / "integration" / "kill_training.py"
    for seed in range(7, 57):
        folder = tmp_path / str(seed)
        folder.mkdir()
        done = forked.run(str(script), "statistics", "1", "1", str(seed), str(folder), cwd=folder)
        assert done.returncode == 0, done.stderr
        if list(folder.glob("0/dump/step0/**/*.journal")) and not open_dump(folder / "0" / "dump").part(0).complete:
            break  # in the middle of its first step, and not between two, where its journal is about to be removed
    else:
        raise AssertionError("no training was killed in the middle of its first step")
    with viewing(folder / "0" / "dump") as address:
        page = ready(visit(address))
        assert eventually(page, lambda: page.locator(".top .tag").inner_text() == "interrupted")
        assert eventually(page, lambda: "it ends early" in page.locator(".verdict").inner_text())
        assert eventually(page, lambda: page.locator(".row").count() > 0)


def test_a_file_that_changes_while_the_page_is_open_is_reported_with_what_to_do(visit: Any, tmp_path: Path) -> None:
    train(tmp_path / "candidate", Plan(results={"blocks.0.tanh": half_as_much_again}))
    train(tmp_path / "reference", Plan())
    file = tmp_path / "reference" / "step0" / "rank" / "dump.json"
    with viewing(tmp_path / "candidate", tmp_path / "reference") as address:
        page = ready(visit(address))
        page.keyboard.press("4")
        page.locator("text=One step was recorded").wait_for()
        # A point for each side, not an empty chart.
        assert eventually(page, lambda: page.locator(".curve").first.locator(".c-points circle").count() >= 2)
        page.keyboard.press("1")
        os.utime(file, (1, 1))
        page.locator(".row:has(.main:text-is('head'))").first.click()
        alert = page.locator(".pane [role=alert]")
        alert.wait_for()
        assert eventually(page, lambda: "dump.json" in alert.inner_text())
        assert eventually(page, lambda: mentions(alert.inner_text(), "file-changed-since"))
        file.unlink()
        page.reload()
        page.locator(".whole [role=alert]", has_text="vanished since it was opened").wait_for()
        assert eventually(page, lambda: page.locator("h1").inner_text().startswith("DIVERGED"))


def test_a_step_that_cannot_be_compared_is_where_the_page_opens(visit: Any, tmp_path: Path) -> None:
    for side in ("candidate", "reference"):
        train(tmp_path / side, Plan(steps=3))
    file = tmp_path / "reference" / "step1" / "rank" / "dump.json"
    file.write_text(json.dumps({**json.loads(file.read_bytes()), "level": "debug", "data": {}}))
    with viewing(tmp_path / "candidate", tmp_path / "reference") as address:
        page = ready(visit(address))
        assert eventually(page, lambda: page.locator(".places select option:checked").inner_text() == "? step 1")
        assert eventually(page, lambda: page_text("place.incomparable") in page.locator(".verdict").inner_text())
        note = said("no-record-of-step", "the reference")
        assert eventually(page, lambda: note in page.locator(".verdict").inner_text())
        assert eventually(page, lambda: page.locator(".row .tag.bad").count() == 0)
