from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.coded_texts import mentions, raising
from support.hand_made import backward, call, tensor, write_part
from unit.diagnose.training import Plan, train
from unit.view.pages import LARGER, english, opened, pair, row

from msprobe.diagnose import compare_runs
from msprobe.diagnose.check import check_run
from msprobe.errors import InvalidInputError, PathError
from msprobe.messages import in_language, said
from msprobe.report.check_text import check_lines
from msprobe.report.console import verdict_lines
from msprobe.view import steps_source
from msprobe.view.columns import NO_SIZE, UNEXPLAINED
from msprobe.view.opening import open_source
from msprobe.view.source import NoSuchThingError
from msprobe.view.unchanged import ChangedError

COLUMNS = (
    "parents",
    "kinds",
    "sides",
    "orders",
    "phases",
    "micro",
    "status",
    "input_difference",
    "output_difference",
    "allowed",
    "flags",
)


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    return pair(tmp_path_factory.mktemp("runs"))


def assert_blocks_are_printed(blocks: list[dict[str, Any]], printed: list[str]) -> None:
    """Each field, line of source, row and sentence is a line of the console, and has a Chinese text."""
    lines = [" ".join(line.split()) for line in printed]
    for block in blocks:
        if block["type"] == "field":
            assert " ".join(f"{english(block['name'])} {english(block['text'])}".split()) in lines
            assert not block["code"] or block["code"] in lines
        elif block["type"] == "table":
            assert all(" ".join(map(english, row)) in lines for row in block["rows"])
        else:
            assert english(block["text"]) in lines
            assert re.search("[\u4e00-\u9fff]", block["text"]["zh"])


def test_a_verdict_is_reported_in_the_words_of_the_console(runs: tuple[Path, Path]) -> None:
    verdict = compare_runs(*runs)
    with opened(*runs) as shown:
        told = shown.overview()["verdict"]
    printed = [line.text for line in verdict_lines(verdict, width=100_000)]
    assert english(told["headline"]) == printed[0]
    assert told["exit_code"] == verdict.exit_code == 1
    assert [english(one["title"]) for one in told["findings"]] == [one.message for one in verdict.findings]
    assert_blocks_are_printed(told["findings"][0]["blocks"], printed)


def test_a_single_run_is_reported_in_the_words_of_check(tmp_path: Path) -> None:
    broken = train(tmp_path / "run", Plan(results={"blocks.1.tanh": lambda x: x * np.float32(np.nan)}))
    result = check_run(broken)
    with opened(broken) as shown:
        overview, place = shown.overview(), shown.place(0)
    printed = [line.text for line in check_lines(result, width=100_000)]
    assert overview["kind"] == "single"
    assert english(overview["verdict"]["headline"]) == printed[0]
    assert_blocks_are_printed(overview["verdict"]["findings"][0]["blocks"], printed)
    born = [name for name, flags in zip(place["names"], place["flags"], strict=True) if flags & 2]
    assert place["names"][place["first"]] in born
    assert set(place["status"]) == {0}
    assert set(place["sides"]) == {0}


def test_rows_are_a_tree_in_pre_order_with_siblings_as_they_ran(runs: tuple[Path, Path]) -> None:
    with opened(*runs) as shown:
        place = shown.place(0)
    count = len(place["names"])
    assert all(len(place[name]) == count for name in COLUMNS)
    path: list[int] = []
    last: dict[int, int] = {}
    for number, parent in enumerate(place["parents"]):
        while path and path[-1] != parent:
            path.pop()
        # A subtree is one block: the parent is on the way here.
        assert parent == (path[-1] if path else -1)
        assert place["orders"][number] >= last.get(parent, -1)
        last[parent] = place["orders"][number]
        path.append(number)
    assert sorted(set(place["orders"])) == list(range(len(set(place["orders"]))))
    children: dict[int, list[int]] = {}
    for number, parent in enumerate(place["parents"]):
        children.setdefault(parent, []).append(number)
    for parent, numbers in children.items():
        if parent >= 0:
            assert place["orders"][parent] == min(place["orders"][number] for number in numbers)


def test_the_first_row_is_that_of_the_first_finding(runs: tuple[Path, Path]) -> None:
    with opened(*runs) as shown:
        overview, place = shown.overview(), shown.place(0)
        assert overview["verdict"]["findings"][0]["place"] == 0
        assert place["names"][place["first"]] == overview["verdict"]["findings"][0]["name"]
        assert place["culprits"][0] == {"row": place["first"], "finding": 0}
        assert place["status"][place["first"]] == UNEXPLAINED
        assert shown.node(0, place["first"])["findings"] == [0]


def test_a_call_of_one_side_stands_in_its_place_and_says_why(tmp_path: Path) -> None:
    runs = pair(tmp_path, Plan(left_out=frozenset(["blocks.1.tanh"])))
    with opened(*runs) as shown:
        place = shown.place(0)
        alone = [number for number, side in enumerate(place["sides"]) if side == 2]
        assert alone
        assert {place["status"][number] for number in alone} == {6}
        forward = next(number for number in alone if place["names"][number].endswith("forward"))
        parent = place["names"][place["parents"][forward]]
        assert parent.startswith("Module.blocks.1")
        told = shown.node(0, forward)
    assert told["side"] == 2
    assert "tanh" in english(told["why_unmatched"])
    assert all(one["candidate"] is None for one in told["tensors"])


def test_a_finding_about_the_reference_is_marked_on_the_row_of_the_reference(tmp_path: Path) -> None:
    # What the reference calls tanh.0 the candidate does not call; its own tanh.0 is another, which is the same.
    runs = pair(tmp_path, Plan(left_out=frozenset(["blocks.0.tanh"])))
    with opened(*runs) as shown:
        overview, place = shown.overview(), shown.place(0)
        told = [one for one in overview["verdict"]["findings"] if one["twin"] is not None]
        assert told, overview["verdict"]["findings"]
        number = overview["verdict"]["findings"].index(told[0])
        marked = next(one["row"] for one in place["culprits"] if one["finding"] == number)
    assert place["names"][marked] == told[0]["twin"]
    assert place["sides"][marked] == 2
    same_name = [row for row, name in enumerate(place["names"]) if name == told[0]["twin"] and row != marked]
    assert same_name
    assert {place["sides"][row] for row in same_name} == {0}


def test_a_row_says_its_tensors_on_both_sides(runs: tuple[Path, Path]) -> None:
    with opened(*runs) as shown:
        place = shown.place(0)
        told = shown.node(0, place["first"])
        result = next(one for one in told["tensors"] if one["group"] == "output")
        assert result["status"] == UNEXPLAINED
        assert result["relative"] == pytest.approx(place["output_difference"][place["first"]])
        apart, share = result["differences"]["norm"]
        assert apart == pytest.approx(result["candidate"]["norm"] - result["reference"]["norm"])
        assert share == pytest.approx(1 / 3, rel=1e-3)
        assert result["relative"] / result["allowed"] > 1000
        assert "1.5 times" in english(result["words"])
        given = next(one for one in told["tensors"] if one["group"] == "input")
        assert (given["status"], given["relative"]) == (1, 0.0)
        producers = [one["name"] for one in told["producers"]]
        consumers = [one["name"] for one in told["consumers"]]
        assert producers
        assert consumers
        for one in told["producers"] + told["consumers"]:
            assert place["names"][one["row"]] == one["name"]
        again = shown.node(0, told["consumers"][0]["row"])
    assert told["name"] in [one["name"] for one in again["producers"]]


def test_a_result_that_every_layer_makes_anew_goes_only_to_its_own_takers(tmp_path: Path) -> None:
    mask = {"Max": 0.0, "Min": -np.inf, "Mean": -np.inf, "Norm": np.inf}
    records: dict[str, Any] = {}
    for layer in range(3):
        records[f"Tensor.triu.{layer}.forward"] = call(out=tensor(4) | mask)
        records[f"Tensor.__add__.{layer}.forward"] = call(tensor(4) | mask, out=tensor(4, value=layer + 1.0))
    write_part(tmp_path / "run", records)
    with opened(tmp_path / "run") as shown:
        names = shown.place(0)["names"]
        told = [shown.node(0, names.index(f"Tensor.triu.{layer}.forward"))["consumers"] for layer in range(3)]
    assert [[one["name"] for one in takers] for takers in told] == [[f"Tensor.__add__.{n}.forward"] for n in range(3)]


def test_calls_made_during_the_backward_pass_are_of_it_and_not_of_a_forward_pass(tmp_path: Path) -> None:
    one = {"Module.fc.Linear.forward.0": call(out=tensor(2, requires_grad=True))}
    records = {
        **one,
        "Module.fc.Linear.backward.0": backward(),
        "Distributed.reduce_scatter.0.forward": call(),
        "Torch.arange.0.forward": call(),  # prepares the next micro-batch
        "Module.fc.Linear.forward.1": call(out=tensor(2, requires_grad=True)),
        "Distributed.all_gather.0.forward": call(),
        "Module.fc.Linear.backward.1": backward(),
        "Distributed.reduce_scatter.1.forward": call(),
        "Torch._foreach_norm.0.forward": call(),
        "Optimizer.SGD.0.forward": {"class": "SGD", "input_args": [], "input_kwargs": {}, "output": []},
        "Torch.zeros.0.forward": call(),
    }
    write_part(tmp_path / "run", records)
    with opened(tmp_path / "run") as shown:
        place = shown.place(0)
    of = dict(zip(place["names"], place["phases"], strict=True))
    told = [of[name] for name in records]
    assert told == [0, 1, 0, 0, 0, 0, 1, 1, 1, 2, 0]


def test_numbers_that_json_does_not_know_become_words_or_the_largest(tmp_path: Path) -> None:
    runs = pair(tmp_path, Plan(results={"blocks.0.tanh": lambda x: x * np.float32(np.inf)}))
    with opened(*runs) as shown:
        place = shown.place(0)
        told = shown.node(0, place["first"])
        text = json.dumps([shown.overview(), place, told], allow_nan=False)
    assert "1e+300" in text
    assert NO_SIZE in place["output_difference"]
    leaf = next(one for one in told["tensors"] if one["group"] == "output")["candidate"]
    assert {leaf["max"], leaf["min"], leaf["mean"]} & {"inf", "nan", "-inf"}


def test_places_are_in_the_order_of_their_numbers_and_say_what_came_of_them(tmp_path: Path) -> None:
    plans = [Plan(steps=11, blocks=1), Plan(steps=11, blocks=1)]
    late = [Plan(steps=11, blocks=1, updated={"head.bias": lambda w: w + np.float32(1)}), plans[1]]
    runs = pair(tmp_path, late, plans)
    with opened(*runs) as shown:
        places = shown.overview()["places"]
        assert [(one["step"], one["rank"]) for one in places] == [(s, r) for s in range(11) for r in (0, 1)]
        assert places[0]["status"] == "diverged"
        assert places[-1]["status"] == "not_compared"
        grid = shown.ranks(0)
    assert grid["ranks"] == [0, 1]
    assert len(grid["worst"]) == 2
    assert {len(line) for line in grid["worst"]} == {len(grid["layers"])}
    assert "blocks.0" in grid["layers"]
    assert grid["places"] == [0, 1]


def test_a_step_of_one_side_alone_can_be_looked_at(tmp_path: Path) -> None:
    runs = pair(tmp_path, Plan(steps=3), Plan(steps=2))
    with opened(*runs) as shown:
        places = shown.overview()["places"]
        assert [one["sides"] for one in places] == [0, 0, 1]
        assert places[2]["status"] == "candidate_only"
        place = shown.place(2)
        assert set(place["status"]) == {0, 5} or set(place["status"]) == {5}
        told = shown.node(2, 1)
    assert english(told["why_unmatched"]) == said("only-side-with-step", "candidate")


def test_the_curve_has_the_loss_and_the_norms_of_every_step(tmp_path: Path) -> None:
    runs = pair(tmp_path, Plan(steps=3, updated={"head.bias": lambda w: w + np.float32(1)}), Plan(steps=3))
    with opened(*runs) as shown:
        shown.wait()
        overview = shown.overview()
    curves = {one["name"]: one for one in overview["curve"]}
    assert overview["curve_complete"] is True
    assert set(curves) == {"loss", "gradient norm", "weight norm"}
    assert curves["loss"]["steps"] == [0, 1, 2]
    assert curves["loss"]["difference"][0] == 0.0
    assert all(value > 0 for value in curves["loss"]["difference"][1:])
    rounding = overview["curve"][0]["allowed"]
    assert 0 < rounding[0] < curves["loss"]["difference"][1]
    assert rounding == [rounding[0]] * 3


@pytest.mark.parametrize("ask", ["place", "node", "picture", "matches"])
def test_what_there_is_not_is_said_in_words(runs: tuple[Path, Path], ask: str) -> None:
    more: dict[str, tuple[Any, ...]] = {"node": (0,), "picture": (0, "input.0")}
    with opened(*runs) as shown:
        for number in (-1, 99):
            with raising(NoSuchThingError, "place-not-there"):
                getattr(shown, ask)(number, *more.get(ask, ()))
        if ask == "node":
            for number in (-1, 10**9):
                with raising(NoSuchThingError, "row-not-there"):
                    shown.node(0, number)
        if ask == "picture":
            with pytest.raises(NoSuchThingError, match=r"no tensor 'output\.77'"):
                shown.picture(0, shown.place(0)["first"], "output.77")
            with raising(NoSuchThingError, "values-not-on-both-sides"):
                shown.picture(0, shown.place(0)["first"], "output.0")


def test_a_picture_shows_where_values_differ(tmp_path: Path) -> None:
    def change(x: np.ndarray) -> np.ndarray:
        y = x.copy()
        y[2, 3] += 1
        return y

    runs = pair(tmp_path, Plan(results={"blocks.0.tanh": change}, values=True), Plan(values=True))
    with opened(*runs) as shown:
        found = shown.picture(0, shown.place(0)["first"], "output.0")
    cells = np.array(found["cells"])
    assert np.argwhere(cells > 0).tolist() == [[2, 3]]
    assert found["largest"] == pytest.approx(1.0)
    assert sum(found["histogram"]["candidate"]) == cells.size


def test_a_changed_or_vanished_file_is_reported(tmp_path: Path) -> None:
    runs = pair(tmp_path)
    with opened(*runs) as shown:
        shown.place(0)
        file = next(runs[0].rglob("dump.json"))
        before = file.stat()
        os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns + 10**9))
        for ask in (lambda: shown.place(0), lambda: shown.node(0, 0)):
            with raising(ChangedError, "file-changed-since"):
                ask()
        os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))
        shown.place(0)
        file.rename(file.with_suffix(".away"))
        with pytest.raises(ChangedError, match="vanished"):
            shown.place(0)


def test_inputs_are_only_read(tmp_path: Path) -> None:
    runs = pair(tmp_path)
    before = {path: path.stat().st_mtime_ns for path in sorted(tmp_path.rglob("*"))}
    with opened(*runs, matches=tmp_path.parent) as shown:
        for number in range(len(shown.places)):
            shown.node(number, shown.place(number)["first"])
        shown.ranks(0)
    assert {path: path.stat().st_mtime_ns for path in sorted(tmp_path.rglob("*"))} == before


def test_judged_steps_leave_memory_when_others_come(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    runs = pair(tmp_path, Plan(steps=4), Plan(steps=4))
    monkeypatch.setattr(steps_source, "MOST_RECORDS", 1)
    with opened(*runs) as shown:
        answers = [shown.place(number) for number in range(4)]
        assert len(shown._steps._entries) == 1
        assert [shown.place(number) for number in range(4)] == answers


def test_an_interrupted_dump_says_so(tmp_path: Path) -> None:
    runs = pair(tmp_path, Plan(), Plan())
    file = next(runs[0].rglob("dump.json"))
    content = json.loads(file.read_bytes())
    content.setdefault("msprobe", {})["complete"] = False
    file.write_text(json.dumps(content))
    with opened(*runs) as shown:
        assert [side["interrupted"] for side in shown.overview()["sides"]] == [True, False]
        assert said("interrupted-shown", "the candidate") in map(english, shown.place(0)["notes"])


def test_a_run_that_is_about_to_take_its_journals_away_is_not_interrupted(tmp_path: Path) -> None:
    runs = pair(tmp_path, Plan(), Plan())
    for file in runs[0].rglob("dump.json"):
        (file.parent / "dump-12-ab.journal").write_bytes(b"")
    with opened(*runs) as shown:
        assert [side["interrupted"] for side in shown.overview()["sides"]] == [False, False]


def test_a_result_folder_shows_the_dumps_that_it_names(tmp_path: Path) -> None:
    runs = pair(tmp_path)
    results = tmp_path / "results"
    results.mkdir()
    (results / "verdict.json").write_text(json.dumps(compare_runs(*runs).to_json()))
    with opened(results) as shown:
        assert shown.overview()["verdict"]["status"] == "diverged"
    (results / "verdict.json").rename(results / "gone.json")
    (results / "check.json").write_text(json.dumps(check_run(runs[0]).to_json()))
    with opened(results) as shown:
        assert shown.overview()["kind"] == "single"


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("{", "no readable JSON"),
        ("[]", "does not name candidate and reference"),
        ('{"candidate": 3, "reference": "x"}', "does not name candidate and reference"),
        ('{"candidate": "/nowhere/a", "reference": "/nowhere/b"}', 'names "/nowhere/a" and "/nowhere/b"'),
    ],
)
def test_a_broken_result_is_reported(tmp_path: Path, content: str, words: str) -> None:
    (tmp_path / "verdict.json").write_text(content)
    with pytest.raises((InvalidInputError, PathError), match=words):
        open_source([tmp_path])


def test_all_paths_without_a_dump_are_reported_at_once(tmp_path: Path) -> None:
    with pytest.raises(PathError) as caught:
        open_source([tmp_path / "one", tmp_path / "two"])
    for name in ("one", "two"):
        assert mentions(caught.value.message, "dump-missing", path=tmp_path / name)
    with pytest.raises(InvalidInputError, match="found 3"):
        open_source([tmp_path] * 3)
    with pytest.raises(PathError, match="holds no dump"):
        open_source([tmp_path])


def test_the_same_mistake_is_found_in_a_recording_of_others(tmp_path: Path) -> None:
    runs = pair(tmp_path, Plan(results=LARGER, ours=False, digests=False), Plan(ours=False, digests=False))
    with opened(*runs) as shown:
        place = shown.place(0)
    assert "tanh" in place["names"][place["first"]]


def test_a_call_that_communicates_leads_to_its_partners_on_other_ranks(tmp_path: Path) -> None:
    runs = pair(tmp_path, [Plan(), Plan(), Plan()], [Plan(), Plan(), Plan()])
    for file in tmp_path.rglob("dump.json"):
        content = json.loads(file.read_bytes())
        leaf = {"type": "torch.Tensor", "dtype": "torch.float32", "shape": [2], "Max": 1.0, "Min": 1.0, "Mean": 1.0}
        rank = int(file.parent.name.removeprefix("rank"))
        made = {"Distributed.all_reduce.0.forward": {"input_args": [leaf], "input_kwargs": {}, "output": [leaf]}}
        if rank < 2:
            peer = {"type": "int", "value": 1 - rank}
            word = "isend" if rank == 0 else "irecv"
            made[f"Distributed.{word}.0.forward"] = {"input_args": [leaf, peer], "input_kwargs": {}, "output": []}
        content["data"] = {**content["data"], **made}
        file.write_text(json.dumps(content))
    with opened(*runs) as shown:
        place = shown.place(0)
        told = shown.node(0, row(place, "Distributed.all_reduce.0.forward"))["partners"]
        assert [(one["rank"], one["place"], one["direction"]) for one in told] == [(1, 1, "both"), (2, 2, "both")]
        assert {one["name"] for one in told} == {"Distributed.all_reduce.0.forward"}
        sent = shown.node(0, row(place, "Distributed.isend.0.forward"))["partners"]
        assert [(one["rank"], one["name"], one["direction"]) for one in sent] == [
            (1, "Distributed.irecv.0.forward", "send")
        ]
        assert {one["side"] for one in (*told, *sent)} == {0}
        assert shown.node(0, row(place, "Torch.tanh.0.forward"))["partners"] == []


def test_nothing_is_called_the_first_divergence_where_the_verdict_finds_none(tmp_path: Path) -> None:
    # A module around the model is there on one side alone, and changes nothing.
    with opened(*pair(tmp_path, Plan(around="model"), Plan())) as shown:
        assert shown.overview()["verdict"]["status"] == "agree"
        assert [one["status"] for one in shown.overview()["places"]] == ["agree"]
        place = shown.place(0)
    assert 5 in place["status"]
    assert (place["first"], place["culprits"]) == (-1, [])


def test_a_step_that_cannot_be_compared_is_distinguished_from_those_that_agree(tmp_path: Path) -> None:
    runs = pair(tmp_path, Plan(steps=3), Plan(steps=3))
    file = runs[1] / "step1" / "rank" / "dump.json"
    file.write_text(json.dumps({**json.loads(file.read_bytes()), "level": "debug", "data": {}}))
    with opened(*runs) as shown:
        assert [one["status"] for one in shown.overview()["places"]] == ["agree", "incomparable", "agree"]
        assert shown.place(1)["first"] == -1


def test_rows_have_the_line_that_they_were_called_from(runs: tuple[Path, Path]) -> None:
    with opened(*runs) as shown:
        place, found = shown.place(0), shown.lines(0)
        assert len(found["rows"]) == len(place["names"])
        assert len(set(found["lines"])) == len(found["lines"])
        for name in ("Torch.tanh.0.forward", "Torch.tanh.0.backward"):
            number = row(place, name)
            assert found["lines"][found["rows"][number]] == shown.node(0, number)["source"]["candidate"][0]
        assert found["rows"][row(place, "Apis_Between_Modules.0")] == -1


def test_runs_without_a_step_in_common_are_shown_side_by_side(tmp_path: Path) -> None:
    with opened(*pair(tmp_path, Plan(steps=2), Plan(steps=2, first_step=5))) as shown:
        overview = shown.overview()
        assert [(one["step"], one["sides"]) for one in overview["places"]] == [(0, 1), (1, 1), (5, 2), (6, 2)]
        (note,) = overview["notes"]
        assert note["zh"] == in_language(note["en"], "zh") != note["en"]
        for number in range(4):
            assert shown.place(number)["first"] == -1


def test_a_part_that_cannot_be_read_leaves_the_others_to_be_seen(tmp_path: Path) -> None:
    runs = pair(tmp_path, Plan(steps=2), Plan(steps=2))
    (runs[0] / "step0" / "rank" / "dump.json").write_text("{")
    with opened(*runs) as shown:
        notes = " ".join(map(english, shown.overview()["verdict"]["notes"]))
        assert mentions(notes, "json-unreadable") or mentions(notes, "dump-json-unreadable")
        assert shown.overview()["places"][1]["sides"] == 0
        assert shown.place(1)["names"]


@pytest.mark.parametrize("content", ["{}", '{"a": "a", "Torch.tanh.0.forward": "Torch.tanh.0.backward"}'])
def test_a_broken_tree_loses_no_row(tmp_path: Path, content: str) -> None:
    runs = pair(tmp_path)
    with opened(*runs) as shown:
        names = {name for name in shown.place(0)["names"] if not name.startswith("Apis_Between_Modules")}
    for side in runs:
        (side / "step0" / "rank" / "construct.json").write_text(content)
    with opened(*runs) as shown:
        assert names <= set(shown.place(0)["names"])
