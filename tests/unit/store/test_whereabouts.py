"""A path that leads to no dump is answered with the path that does."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from support.coded_texts import mentions

from msprobe.cli import main
from msprobe.errors import PathError
from msprobe.messages import code_of, in_language
from msprobe.store import whereabouts
from msprobe.store.reader import open_dump
from msprobe.store.writer import DumpWriter


@pytest.fixture
def runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """``runs/good`` and ``runs/bad``, two steps of two ranks each; we are beside ``runs``."""
    for run in ("good", "bad"):
        for step in range(2):
            for rank in range(2):
                folder = tmp_path / "runs" / run / f"step{step}" / f"rank{rank}"
                writer = DumpWriter(folder, {"task": "statistics", "level": "L1", "framework": "pytorch"})
                writer.put("Torch.add.0.forward", {"input_args": [], "input_kwargs": {}, "output": []})
                writer.publish(final=True)
                (folder / "dump_tensor_data").mkdir()
    (tmp_path / "runs" / "logs" / "today").mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    return tmp_path / "runs"


ALL = 'There are dumps in "runs/bad" and "runs/good": give one of these paths.'


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ("runs", ALL),
        (".", ALL),
        ("runs/logs", ""),
        (
            "runs/good/step0/rank1/dump_tensor_data",
            'It belongs to the dump in "runs/good/step0/rank1": give this path, or "runs/good" for all steps.',
        ),
        (
            "runs/good/step0/rank1/stack.json",
            'It belongs to the dump in "runs/good/step0/rank1": give this path, or "runs/good" for all steps.',
        ),
        (
            "runs/good/step0/rank1/dump_tensor_data/a.pt",
            'It belongs to the dump in "runs/good/step0/rank1": give this path, or "runs/good" for all steps.',
        ),
        ("runs/god", 'Did you mean "runs/good"?'),
        ("runs/Good", 'Did you mean "runs/good"?'),
        ("run/good/step1", 'Did you mean "runs/good/step1"?'),
        ("run", f'Did you mean "runs"? {ALL}'),
        ("runs/new", 'There are dumps in "runs/bad" and "runs/good".'),
        ("runs/good/stpe1", 'Did you mean "runs/good/step1"?'),
        ("runs/good/step2", '"runs/good" has step0, step1.'),
        ("runs/good/step1/rank2", '"runs/good/step1" has rank0, rank1.'),
        ("runs/good/step1/rank", '"runs/good/step1" has rank0, rank1.'),
        ("runs/good/step1/rank1/dump.jsn", 'Did you mean "runs/good/step1/rank1/dump.json"?'),
        ("xyz/a/b", "Give the folder of a dump or its dump.json."),
    ],
)
def test_a_wrong_path_is_answered_with_the_right_one(
    runs: Path, given: str, told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(PathError) as caught:
        open_dump(given)
    assert caught.value.message.endswith(f" {told}" if told else " a dump.json.")
    for command in ("summary", "check"):
        assert main([command, given]) == 2
        assert capsys.readouterr().err == f"msprobe: {caught.value.message} [{code_of(caught.value.message)[0]}]\n"


@pytest.mark.parametrize(
    "given", ["runs/good", "runs/good/step0", "runs/good/step0/rank1", "runs/good/step0/rank1/dump.json"]
)
def test_a_dump_can_be_named_by_each_of_its_folders(runs: Path, given: str) -> None:
    for path in (given, runs.parent / given, f"{given}/" if given[-1] != "n" else given):
        assert all(part.complete for part in open_dump(path).parts())


def test_a_path_that_is_reported_is_written_as_the_one_that_was_given(
    runs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert f'"{runs}/bad" and "{runs}/good"' in whereabouts.where_instead(runs)
    assert f'"{runs}/good/step0/rank0"' in whereabouts.where_instead(runs / "good/step0/rank0/stack.json")
    monkeypatch.chdir(runs / "good/step0/rank0/dump_tensor_data")
    told = whereabouts.where_instead(Path("."))
    assert mentions(told, "belongs-to-dump-of-steps", path="..", whole="../../..")
    assert all(part.complete for part in open_dump("../../..").parts())


def test_both_sides_of_a_comparison_are_reported_at_once(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["compare", "run/good", "runs"]) == 2
    error = capsys.readouterr().err
    assert mentions(error, "dump-missing", path="run/good")
    assert '"runs/good"?' in error
    assert error.endswith(f"{ALL} [S153]\n")
    assert main(["compare", "-tp", "run/good/step0", "-gp", "runs/bad/step0", "-o", "out"]) == 2
    assert mentions(capsys.readouterr().err, "mean-path", path="runs/good/step0")
    assert main(["compare", "-tp", "runs", "-gp", "runs/bad/step0", "-o", "out"]) == 2
    assert ALL in capsys.readouterr().err


def test_the_noise_of_a_comparison_is_looked_for_as_well(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["compare", "runs/good", "runs/bad", "--noise", "runs/agood"]) == 2
    error = capsys.readouterr().err
    assert mentions(error, "dump-missing", path="runs/agood")
    assert error.endswith('"runs/good"? [S153]\n')


def test_two_dumps_of_one_program_are_distinguished(runs: Path) -> None:
    (runs / "good").rename(runs / "pynative")
    (runs / "bad").rename(runs / "graph")
    with pytest.raises(PathError) as caught:
        open_dump("runs")
    folders = {"step_by_step": "runs/pynative", "compiled": "runs/graph"}
    assert mentions(caught.value.message, "two-dumps-in-folder", **folders)


def test_only_so_many_folders_are_looked_at(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A path that is wrong may be the root of a large disk."""
    looked = []
    scandir = os.scandir
    monkeypatch.setattr(whereabouts.os, "scandir", lambda path: looked.append(path) or scandir(path))
    monkeypatch.setattr(whereabouts, "_MOST_FOLDERS", 20)
    for number in range(300):
        (tmp_path / f"{number}" / "inner").mkdir(parents=True)
    with pytest.raises(PathError, match="holds no dump"):
        open_dump(tmp_path)
    assert len(looked) < 200


def test_names_that_are_no_text_are_shown_on_one_line(tmp_path: Path) -> None:
    for name in (b"a\nb", b"\xff\xfe"):
        writer = DumpWriter(tmp_path / os.fsdecode(name) / "step0" / "rank", {})
        writer.put("a", 1)
        writer.publish(final=True)
    told = whereabouts.where_instead(tmp_path)
    assert told.isprintable()
    told.encode()
    assert "a_b" in told


def test_the_sentence_is_a_message_in_both_languages(tmp_path: Path) -> None:
    for name in ("one", "two"):
        (tmp_path / name / "step0" / "rank0").mkdir(parents=True)
        (tmp_path / name / "step0" / "rank0" / "dump.json").write_text("{}")
    text = whereabouts.where_instead(tmp_path / "missing")
    assert mentions(text, "dumps-are-in")
    assert "There are" not in in_language(text, "zh")


@pytest.mark.parametrize(
    ("file", "given", "name"),
    [
        ("run/Dec01_02-53-04-rank0-fd6e9368/run.json", "run", "is-output-of-monitor"),
        ("run/rank0/grad_summary_0.csv", "run", "is-of-grad-probe"),
        ("model.safetensors", "model.safetensors", "may-be-checkpoint"),
        ("pack.zip", "pack.zip", "may-be-pack"),
    ],
)
def test_what_a_different_command_reads_is_answered_with_its_name(
    tmp_path: Path, file: str, given: str, name: str
) -> None:
    (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / file).write_text("")
    with pytest.raises(PathError) as raised:
        open_dump(tmp_path / given)
    assert mentions(str(raised.value), name)


def test_a_file_of_a_dump_is_no_checkpoint(runs: Path) -> None:
    tensor = runs / "good" / "step0" / "rank1" / "dump_tensor_data" / "Torch.add.0.forward.output.0.pt"
    tensor.write_text("")
    with pytest.raises(PathError) as raised:
        open_dump(tensor)
    assert mentions(str(raised.value), "belongs-to-dump-of-steps")
    assert not mentions(str(raised.value), "may-be-checkpoint")
