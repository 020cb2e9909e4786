"""What lies in a folder is opened if it is a regular file of that folder; whatever a text holds ends in a sentence."""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from support.coded_texts import raising
from support.command_line import call

from hostile.limits import Called
from hostile.made import TENSOR, dump, monitored, pt, record, two_dumps
from msprobe.errors import InvalidInputError
from msprobe.foreign.links import FOLLOW_VARIABLE
from msprobe.store.reader import open_dump

DEEP = '{"a":' * 100_000
CALL = "Functional.relu.0.forward"


def pipe(path: Path) -> None:
    path.unlink(missing_ok=True)
    os.mkfifo(path)


def endless(path: Path) -> None:
    path.unlink(missing_ok=True)
    path.symlink_to("/dev/zero")


def listening(path: Path) -> None:
    path.unlink(missing_ok=True)
    before = os.getcwd()
    os.chdir(path.parent)  # the name of a socket is short
    try:
        socket.socket(socket.AF_UNIX).bind(path.name)
    finally:
        os.chdir(before)


def folder(path: Path) -> None:
    path.unlink(missing_ok=True)
    path.mkdir()


def unwritten(path: Path) -> None:
    """Three gibibytes by its size, of which not one byte was written."""
    path.unlink(missing_ok=True)
    with open(path, "wb") as file:
        file.truncate(3 << 30)


KINDS = [pipe, endless, listening, folder, unwritten]


@pytest.mark.parametrize("make", KINDS)
def test_description_of_a_run(tmp_path: Path, make: Callable[[Path], None]) -> None:
    sides = monitored(tmp_path / "A"), monitored(tmp_path / "B")
    make(next(sides[1].iterdir()) / "run.json")
    Called("monitor", "diff", *sides, cwd=tmp_path, gibibytes=16).demand_quick()


@pytest.mark.parametrize("make", KINDS)
@pytest.mark.parametrize("name", ["dump.json", "stack.json", "construct.json", "dump-1-1.journal"])
def test_files_of_a_dump(tmp_path: Path, make: Callable[[Path], None], name: str) -> None:
    place = dump(tmp_path / "A", {CALL: record()}).parent
    make(place / name)
    Called("check", tmp_path / "A", "-o", tmp_path / "out", cwd=tmp_path).demand_quick()


@pytest.mark.parametrize("make", KINDS)
def test_values_of_a_dump(tmp_path: Path, make: Callable[[Path], None]) -> None:
    words = two_dumps(tmp_path)
    make(tmp_path / "B" / "step0" / "rank" / "dump_tensor_data" / "relu.pt")
    Called(*words, cwd=tmp_path).demand_quick()


@pytest.mark.parametrize("make", [pipe, endless, listening, unwritten])
def test_files_of_a_checkpoint(tmp_path: Path, make: Callable[[Path], None]) -> None:
    for name in ("w.pt", "w.safetensors", "w.npz", "w.npy", "w.ckpt", "pytorch_model.bin.index.json", ".metadata"):
        place = tmp_path / name.strip(".")
        place.mkdir()
        make(place / name)
        given = place if name.startswith((".", "pytorch")) else place / name
        words = "config_check", "-c", given, given, "-o", tmp_path / "out.json"
        Called(*words, cwd=tmp_path).demand_quick()


@pytest.mark.parametrize("make", [pipe, endless, unwritten])
def test_what_is_given_by_hand(tmp_path: Path, make: Callable[[Path], None]) -> None:
    one = tmp_path / "one.json"
    make(one)
    file = dump(tmp_path / "A", {CALL: record()})
    for words in (
        ("reproduce", one, "-o", tmp_path / "out"),
        ("run_ut", "-api_info", file, "-o", tmp_path / "out", "-config", one),
        ("graph", "-i", one, "-o", tmp_path / "out"),
        ("compare", "-i", one, "-o", tmp_path / "out"),
        ("compare", one, one, "-o", tmp_path / "out"),
        ("view", one, "-o", tmp_path / "page.html"),
    ):
        answer = Called(*words, cwd=tmp_path)
        answer.demand_quick()
        assert answer.status, answer.text


TEXTS = {
    "deep": DEEP,
    "deep and closed": '{"a":' * 50_000 + "1" + "}" * 50_000,
    "lists": "[" * 100_000 + "]" * 100_000,
    "digits": '{"findings": [' + "9" * 5000 + "]}",
    "infinite": '{"candidate": Infinity, "reference": NaN, "findings": [{"record": Infinity, "step": 1e999}]}',
    "lone surrogates": '{"candidate": "\\ud800", "reference": "\\ud800", "findings": [{"record": "\\udfff"}]}',
    "large numbers": '{"candidate": "a", "reference": "a", "findings": [{"record": 1, "step": 1' + "0" * 400 + "}]}",
    "a list": "[]",
    "nothing": "",
    "NUL": "\0",
    "a name that stands often": "{" + '"a":1,' * 170_000 + '"b":2}',
}


@pytest.mark.parametrize("name", TEXTS)
def test_texts_that_are_no_verdict(tmp_path: Path, name: str) -> None:
    (tmp_path / "verdict.json").write_text(TEXTS[name])
    for words in (
        ("reproduce", tmp_path / "verdict.json", "-o", tmp_path / "out"),
        ("view", tmp_path / "verdict.json", "-o", tmp_path / "page.html"),
        ("confirm", tmp_path / "verdict.json", "-o", tmp_path / "out", "--", "train.py"),
    ):
        answer = call(*words)
        assert answer.returncode in (1, 2), words
        assert answer.stderr.startswith("msprobe: "), words
        assert len(answer.stderr) < 2000, words


@pytest.mark.parametrize("encoding", ["utf-16", "utf-8-sig", "utf-32"])
def test_a_dump_in_other_encodings(tmp_path: Path, encoding: str) -> None:
    file = dump(tmp_path / "A", {CALL: record()})
    file.write_bytes(file.read_text().encode(encoding))
    answer = Called("summary", tmp_path / "A", cwd=tmp_path)
    answer.demand_quick()
    assert answer.status == 0, answer.text


def graph_of(folder: Path) -> Path:
    """The compare.json of the two dumps in a folder."""
    file = folder / "compare.json"
    file.write_text(json.dumps({"npu_path": str(folder / "A"), "bench_path": str(folder / "B")}))
    return file


LARGE = int("9" * 4000)
RECORDS = {
    "no object": 1,
    "lists of lists": {"input_args": [[[[[TENSOR]]]]] * 2, "output": [[[]]]},
    "shape of infinities": record({**TENSOR, "shape": [float("inf"), float("nan")]}),
    "shape beyond 64 bits": record({**TENSOR, "shape": [1 << 70, 2]}),
    "shape of digits": record({**TENSOR, "shape": [LARGE]}),
    "shape below zero": record({**TENSOR, "shape": [-1, -(1 << 62)]}),
    "shape of a text": record({**TENSOR, "shape": "12"}),
    "shape of objects": record({**TENSOR, "shape": [{}, []]}),
    "large statistics": record({**TENSOR, "Max": LARGE, "Min": -LARGE, "Mean": 1 << 80, "Norm": LARGE}),
    "statistics of texts": record({**TENSOR, "Max": "\ud800", "Min": [], "Mean": {}, "Norm": True}),
    "types that are none": record({"type": [], "dtype": {}, "shape": None}),
    "names of files": record({**TENSOR, "data_name": ["x"]}),
    "a lone surrogate": record({"type": "str", "value": "\ud800"}, key={"type": "\udfff", "value": 1}),
    "parameters": {"input_args": None, "input_kwargs": [], "output": {"a": 1}, "parameters": 3},
    "a value of digits": record({"type": "int", "value": LARGE}),
}


@pytest.mark.parametrize("name", RECORDS)
def test_records_that_hold_anything(tmp_path: Path, name: str) -> None:
    for side in "AB":
        data = {CALL: record() if side == "A" else RECORDS[name], "Functional.add.0.forward": RECORDS[name]}
        dump(tmp_path / side, data)
    for words in (
        ("summary", tmp_path / "B"),
        ("check", tmp_path / "B", "-o", tmp_path / "checked"),
        ("compare", tmp_path / "A", tmp_path / "B", "-o", tmp_path / "compared", "--csv", "--html"),
        ("graph", "-i", graph_of(tmp_path), "-o", tmp_path / "graph"),
        ("op_generate", "--dump", tmp_path / "B/step0/rank/dump.json", "--api", CALL, "-o", tmp_path / "script"),
    ):
        assert call(*words).returncode in (0, 1, 2), words


BESIDE = {
    "stack.json": ['{"0": [[{}], ["x"]]}', '{"0": 1}', '{"0": [[1], [2]]}', DEEP, '{"a": {"b": 1}}', "[]", "9" * 5000],
    "construct.json": ["[]", '{"a": {}}', '{"' + CALL + '": ["x", 1' + "0" * 400 + "]}", DEEP, '{"a": Infinity}'],
}


@pytest.mark.parametrize("name", BESIDE)
def test_what_lies_beside_a_dump(tmp_path: Path, name: str) -> None:
    for number, content in enumerate(BESIDE[name]):
        for side in "AB":
            one = {**TENSOR, "Max": 1.0 if side == "A" else 2.0}
            place = dump(tmp_path / str(number) / side, {CALL: record(one)}, level="mix").parent
            (place / name).write_text(content)
        at = tmp_path / str(number)
        for words in (
            ("compare", at / "A", at / "B", "-o", at / "out", "--csv"),
            ("graph", "-i", graph_of(at), "-o", at / "graph"),
        ):
            assert call(*words).returncode in (0, 1, 2), words


@pytest.mark.parametrize("name", ["dump.json", "rank", "step0"])
def test_links_out_of_a_dump_are_followed_if_asked(tmp_path: Path, name: str) -> None:
    words = two_dumps(tmp_path)
    place = tmp_path / "B" / "step0" / "rank"
    path = {"rank": place, "step0": place.parent}.get(name, place / name)
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    path.rename(elsewhere / name)
    path.symlink_to(elsewhere / name)
    refused = call(*words)
    assert refused.returncode == 2
    assert "--follow-links" in refused.stderr
    followed = call(*words, "--follow-links")
    assert followed.returncode in (0, 1), followed.stderr
    assert "--follow-links" not in followed.stdout + followed.stderr


@pytest.mark.parametrize("name", ["stack.json", "construct.json", "dump_tensor_data"])
def test_links_out_of_the_folder_of_a_rank(tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    two_dumps(tmp_path)
    place = tmp_path / "B" / "step0" / "rank"
    for beside in ("stack.json", "construct.json"):
        (place / beside).write_text("{}")
    (place / name).rename(tmp_path / name)
    (place / name).symlink_to(tmp_path / name)

    def read() -> None:
        part = open_dump(tmp_path / "B").part()
        assert part.stack(CALL) == []
        assert part.parent(CALL) is None
        assert part.tensor_path("relu.pt").is_file()

    with raising(InvalidInputError, "link-leads-out-of-dump"):
        read()
    monkeypatch.setenv(FOLLOW_VARIABLE, "1")
    read()


def test_links_within_a_dump_and_to_a_whole_dump_are_followed(tmp_path: Path) -> None:
    words = two_dumps(tmp_path)
    place = tmp_path / "B" / "step0" / "rank"
    (place / "dump_tensor_data" / "relu.pt").rename(place / "dump_tensor_data" / "other.pt")
    (place / "dump_tensor_data" / "relu.pt").symlink_to("other.pt")
    (tmp_path / "B" / "step1").mkdir()
    (tmp_path / "B" / "step1" / "rank").symlink_to(place)
    (tmp_path / "B").rename(tmp_path / "real")
    (tmp_path / "B").symlink_to(tmp_path / "real")
    answer = Called(*words, cwd=tmp_path)
    # 2: one side alone has step 1.
    assert answer.status in (1, 2), answer.text
    assert "--follow-links" not in answer.text


def test_what_a_user_has_collected_is_followed_and_a_copy_of_its_mark_is_not(tmp_path: Path) -> None:
    for machine, rank in (("one", 0), ("two", 1)):
        place = dump(tmp_path / machine, {CALL: record()}).parent
        place.rename(place.with_name(f"rank{rank}"))
    assert Called("collect", tmp_path / "one", tmp_path / "two", "-o", tmp_path / "all", cwd=tmp_path).status == 0
    answer = Called("summary", tmp_path / "all", cwd=tmp_path)
    assert answer.status == 0, answer.text
    copy = tmp_path / "copy"
    copy.mkdir()
    for entry in (tmp_path / "all").iterdir():
        if entry.is_dir():
            (copy / entry.name).mkdir()
            for link in entry.iterdir():
                (copy / entry.name / link.name).symlink_to(link.resolve())
        else:
            (copy / entry.name).write_bytes(entry.read_bytes())
    Called("summary", copy, cwd=tmp_path).demand_refused()


def test_values_that_a_stranger_names_are_not_those_of_a_user(tmp_path: Path) -> None:
    """A file of values that is a link to a user's weights."""
    words = two_dumps(tmp_path)
    mine = pt(tmp_path / "mine.pt")
    path = tmp_path / "B" / "step0" / "rank" / "dump_tensor_data" / "relu.pt"
    path.unlink()
    path.symlink_to(mine)
    Called(*words, cwd=tmp_path).demand_quick()
    verdict = next((tmp_path / "out").rglob("verdict.json"), None)
    assert verdict is None or json.loads(verdict.read_text())


def test_names_with_lone_surrogates_in_a_database_of_graphs(tmp_path: Path) -> None:
    place = dump(tmp_path / "A", {"Module.a\ud800.Linear.forward.0": record(), CALL: record()}, level="mix").parent
    chain = {"Module.a\ud800.Linear.forward.0": None, CALL: "Module.a\ud800.Linear.forward.0"}
    (place / "construct.json").write_text(json.dumps(chain))
    answer = Called("graph_visualize", "--candidate", tmp_path / "A", "-o", tmp_path / "out", cwd=tmp_path)
    answer.demand_quick()
    assert answer.status == 0, answer.text
    assert list((tmp_path / "out").glob("*.vis.db"))


def test_a_graph_that_was_never_written(tmp_path: Path) -> None:
    unwritten(tmp_path / "graph_build_0.ir")
    os.truncate(tmp_path / "graph_build_0.ir", 1 << 40)
    np.save(tmp_path / "Add.Default_Add-op0.0.0.1.output.0.DefaultFormat.npy", np.zeros(2, np.float32))
    words = "code_mapping", "--ir", tmp_path / "graph_build_0.ir", "--dump-data", tmp_path, "-o", tmp_path / "out"
    Called(*words, cwd=tmp_path).demand_refused()
