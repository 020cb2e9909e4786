"""``msprobe compare CANDIDATE REFERENCE``: its words, its files, its exit status."""

from __future__ import annotations

import json
import shutil
import stat
from pathlib import Path
from typing import Any

import pytest
from support import command_line
from support.coded_texts import mentions
from support.hand_made import call, tensor, write_part
from support.page_data import page_words

from msprobe import errors, paths
from msprobe.messages import said

STACK = ["File /home/me/train.py, line 12, in forward, \n y = x * self.scale"]


def run(*words: object, cwd: Path | None = None) -> command_line.Completed:
    return command_line.call("compare", *words, cwd=cwd)


def write_dump(folder: Path, scale: float = 2.0, steps: int = 2, noise: float = 0.0, extra: bool = False) -> Path:
    """A training of two layers; the second one multiplies by ``scale``, its result differs by ``noise``."""
    for step in range(steps):
        first = tensor(2, 3, value=3.0 + step)
        second = tensor(2, 3, value=6.0 + step)
        third = tensor(2, 3, value=(6.0 + step) * scale / 2.0 * (1 + noise))
        loss = tensor(value=third["Max"], requires_grad=True)
        data = {
            "Torch.exp.0.forward": call(first, out=second),
            "Tensor.__mul__.0.forward": call(second, {"type": "float", "value": scale}, out=third),
            "Tensor.mean.0.forward": call(third, out=loss),
        }
        if extra:
            data["Tensor.cpu.0.forward"] = call(loss, out=loss)
        write_part(
            folder / f"step{step}" / "rank",
            data,
            construct=dict.fromkeys(data),
            stacks={"Tensor.__mul__.0.forward": STACK},
        )
    return folder


@pytest.fixture(scope="module")
def dumps(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs")
    write_dump(folder / "reference")
    write_dump(folder / "same")
    write_dump(folder / "other", scale=3.0)
    write_dump(folder / "short", steps=1)
    write_part(folder / "stranger", {"Tensor.sin.0.forward": call()})
    return folder


@pytest.mark.parametrize(("candidate", "status"), [("same", 0), ("other", 1), ("stranger", 2), ("missing", 2)])
def test_a_process_says_and_answers_what_the_call_does(dumps: Path, candidate: str, status: int) -> None:
    words = ("compare", dumps / candidate, dumps / "reference")
    as_users = command_line.process(*words)
    called = command_line.call(*words)
    assert as_users.returncode == called.returncode == status
    assert (as_users.stdout, as_users.stderr) == (called.stdout, called.stderr)
    assert as_users.stdout or as_users.stderr


def test_they_agree(dumps: Path) -> None:
    done = run(dumps / "same", dumps / "reference")
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(f"AGREE: {said('nothing-differs', 'recorded')}\n")
    assert done.stderr == ""


def test_they_part(dumps: Path, tmp_path: Path) -> None:
    done = run(dumps / "other", dumps / "reference", cwd=tmp_path)
    assert done.returncode == 1
    assert done.stdout.startswith("DIVERGED at step 0, forward pass\n")
    assert said("argument-differs", "Tensor.__mul__.0.forward", "input.1", "3.0", "2.0") in done.stdout
    assert "/home/me/train.py:12" in done.stdout
    assert done.stderr == ""
    assert list(tmp_path.iterdir()) == [], "without -o nothing is written"


def test_they_cannot_be_compared(dumps: Path) -> None:
    done = run(dumps / "stranger", dumps / "reference")
    assert done.returncode == 2
    assert done.stdout.startswith("CANNOT BE COMPARED: ")


def test_a_step_more_on_one_side_is_reported_and_agrees(dumps: Path) -> None:
    done = run(dumps / "short", dumps / "reference")
    assert done.returncode == 2
    assert said("steps-on-one-side", "step", "1 is", "reference") in done.stdout
    assert run(dumps / "short", dumps / "reference", "--fail-on", "step_count").returncode == 1


def test_all_files_at_once(dumps: Path, tmp_path: Path) -> None:
    polars: Any = pytest.importorskip("polars")
    folder = tmp_path / "a" / "b"
    done = run(
        dumps / "other", dumps / "reference", "-o", folder, "--html", "--xlsx", "--csv", "--parquet", "--all-steps"
    )
    assert done.returncode == 1, done.stderr
    tables = [f"compare_result_step{step}_rank.{kind}" for step in (0, 1) for kind in ("csv", "parquet", "xlsx")]
    assert sorted(path.name for path in folder.iterdir()) == sorted(["verdict.json", "verdict.html", *tables])
    for path in folder.iterdir():
        assert stat.S_IMODE(path.stat().st_mode) == 0o640
        assert str(path) in done.stdout, "what was written is named"
    assert stat.S_IMODE(folder.stat().st_mode) == stat.S_IMODE(folder.parent.stat().st_mode) == 0o750
    found = json.loads((folder / "verdict.json").read_text())
    assert (found["version"], found["status"]) == (1, "diverged")
    assert found["findings"][0]["kind"] == "argument"
    assert "Tensor.__mul__.0.forward" in page_words(folder / "verdict.html")
    frame = polars.read_parquet(folder / "compare_result_step0_rank.parquet")
    csv = (folder / "compare_result_step0_rank.csv").read_text().splitlines()
    assert frame.height == len(csv) - 1 == 7
    assert "Tensor.__mul__.0.forward.input.1" in frame["NPU Name"].to_list()


def test_a_file_that_is_asked_for_goes_to_output(dumps: Path, tmp_path: Path) -> None:
    done = run(dumps / "same", dumps / "reference", "--html", cwd=tmp_path)
    assert done.returncode == 0
    assert sorted(path.name for path in (tmp_path / "output").iterdir()) == ["verdict.html", "verdict.json"]


def test_a_verdict_replaces_the_earlier_one(dumps: Path, tmp_path: Path) -> None:
    for side, status in (("other", "diverged"), ("same", "agree")):
        run(dumps / side, dumps / "reference", "-o", tmp_path)
        assert json.loads((tmp_path / "verdict.json").read_text())["status"] == status
    assert [path.name for path in tmp_path.iterdir()] == ["verdict.json"]


@pytest.mark.parametrize(
    ("side", "words", "status"),
    [
        ("other", "diverged", 1),
        ("other", "harmless", 1),
        ("other", "never", 0),
        ("other", "argument", 1),
        ("other", "data,argument", 1),
        ("other", "dtype", 0),
        ("other", "dtype,diverged", 1),
        ("same", "harmless", 0),
        ("stranger", "never", 2),
    ],
)
def test_fail_on(dumps: Path, side: str, words: str, status: int) -> None:
    assert run(dumps / side, dumps / "reference", "--fail-on", words).returncode == status


def broken(folder: Path, what: str) -> Path:
    """A candidate that cannot be read."""
    place = folder / what
    part = place / "step0" / "rank"
    part.mkdir(parents=True)
    whole = write_dump(folder / "whole") / "step0" / "rank" / "dump.json"
    if what == "empty folder":
        shutil.rmtree(place / "step0")
    elif what == "other files":
        shutil.rmtree(place / "step0")
        (place / "notes.txt").write_text("no dump")
    elif what == "empty file":
        (part / "dump.json").write_text("")
    elif what == "cut file":
        text = whole.read_text()
        (part / "dump.json").write_text(text[: len(text) // 2])
    elif what == "no data":
        (part / "dump.json").write_text('{"task": "statistics", "level": "L1"}')
    elif what == "list":
        (part / "dump.json").write_text("[1, 2]")
    elif what == "file":
        shutil.rmtree(place)
        place.write_text("a file")
    elif what == "missing":
        shutil.rmtree(place)
    return place


@pytest.mark.parametrize("side", ["candidate", "reference"])
@pytest.mark.parametrize(
    "what", ["missing", "empty folder", "other files", "empty file", "cut file", "no data", "list", "file"]
)
def test_bad_input_is_one_line_and_status_2(tmp_path: Path, dumps: Path, what: str, side: str) -> None:
    wrong = broken(tmp_path, what)
    pair = (wrong, dumps / "reference") if side == "candidate" else (dumps / "reference", wrong)
    done = run(*pair, "-o", tmp_path / "out", "--html", "--csv")
    assert done.returncode == 2
    (line,) = done.stderr.splitlines()
    assert line.startswith("msprobe: ")
    assert what in line, "the message names the path"
    assert done.stdout == ""
    assert not (tmp_path / "out").exists()


def test_an_empty_dump_cannot_be_compared(tmp_path: Path) -> None:
    write_part(tmp_path / "empty" / "step0" / "rank", {})
    done = run(tmp_path / "empty", write_dump(tmp_path / "whole"))
    assert done.returncode == 2
    assert done.stdout.startswith("CANNOT BE COMPARED")
    assert "Traceback" not in done.stderr


_OF_ITSELF = "the same dump"


def test_one_dump_given_twice_agrees_with_a_note(tmp_path: Path) -> None:
    dump = write_dump(tmp_path / "dump")
    (tmp_path / "link").symlink_to(dump)
    for twin in (dump, f"{dump}/", tmp_path / "link"):
        done = run(dump, twin)
        assert (done.returncode, done.stderr) == (0, "")
        assert done.stdout.startswith("AGREE")
        assert _OF_ITSELF in done.stdout


def test_a_dump_and_a_part_of_it_are_one_dump(tmp_path: Path) -> None:
    dump = write_dump(tmp_path / "dump")
    (tmp_path / "link").symlink_to(dump)
    for part in (dump / "step0", dump / "step1" / "rank", dump / "step0" / "rank" / "dump.json"):
        for pair in ((dump, part), (part, tmp_path / "link")):
            done = run(*pair)
            assert done.returncode == 2, "a step is on one side alone"
            assert _OF_ITSELF in done.stdout
    # Two steps of one dump are two dumps, and so is a dump that lies in the folder of another.
    for pair in ((dump / "step0", dump / "step1"), (dump, write_dump(dump / "other" / "dump"))):
        done = run(*pair)
        assert done.stderr == ""
        assert _OF_ITSELF not in done.stdout


@pytest.mark.skipif(not Path("/proc/self").exists(), reason="needs a file system that is not to be written to")
@pytest.mark.parametrize("form", [(), ("-tp", "-gp")])
def test_an_output_on_a_disk_that_is_not_to_be_written_is_said_before_the_work(
    dumps: Path, form: tuple[str, ...]
) -> None:
    dumps_of_form = [dumps / side / "step0" for side in ("other", "reference")]
    given = [word for pair in zip(form, dumps_of_form, strict=True) for word in pair] if form else dumps_of_form
    done = run(*given, "-o", "/proc/out")
    assert done.returncode == 2
    assert done.stdout == ""
    (line,) = done.stderr.splitlines()
    assert mentions(line, "place-holds-no-files")


def test_without_dumps_it_says_what_to_give() -> None:
    done = run()
    assert (done.returncode, done.stdout) == (2, "")
    (line,) = done.stderr.splitlines()
    usage = "msprobe compare CANDIDATE REFERENCE"
    assert usage in line
    assert command_line.call("-f", "pytorch", "compare").returncode == 2


def test_a_verdict_is_reported_even_if_it_cannot_be_written(
    dumps: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(path: object, *words: object, **more: object) -> None:
        raise errors.PathError(f"{path}: no space left on device.")

    # The disk is full after all work is done.
    monkeypatch.setattr(paths, "write_atomically", full)
    done = run(dumps / "other", dumps / "reference", "-o", tmp_path / "out")
    assert done.returncode == 2
    assert done.stdout.startswith("DIVERGED")
    assert len(done.stderr.splitlines()) == 1
    assert "verdict.json: no space left" in done.stderr
    assert list((tmp_path / "out").iterdir()) == [], "nothing half-written is left"


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["{same}"], "found 1"),
        (["{same}", "{other}", "{other}"], "found 3"),
        (["{same}", "{other}", "--fail-on", "typo"], "'typo'"),
        (["{same}", "{other}", "--fail-on", "never,data"], "never"),
        (["{same}", "{other}", "--jobs", "0"], "--jobs"),
        (["{same}", "{other}", "--rank", "0"], "--rank"),
        (["{same}", "{other}", "-s"], "-s"),
        (["{same}", "{other}", "-dm", "x.yaml"], "-dm"),
        (["{same}", "{other}", "--csv", "-dm", "missing.yaml"], "missing.yaml"),
    ],
)
def test_wrong_usage_is_one_line_and_status_2(dumps: Path, words: list[str], told: str, tmp_path: Path) -> None:
    done = run(*(word.format(same=dumps / "same", other=dumps / "other") for word in words), cwd=tmp_path)
    assert done.returncode == 2
    assert told in done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert done.stdout == ""
    assert list(tmp_path.iterdir()) == []


def test_options_of_two_dumps_are_refused_by_the_other_forms(dumps: Path, tmp_path: Path) -> None:
    file = dumps / "same" / "step0" / "rank" / "dump.json"
    done = run("-tp", file, "-gp", dumps / "other/step0/rank/dump.json", "--html", cwd=tmp_path)
    assert done.returncode != 0
    assert "--html" in done.stderr
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("how", ["cut", "gone"])
@pytest.mark.parametrize("side", ["candidate", "reference"])
def test_a_part_that_cannot_be_read_is_reported_and_the_rest_compared(
    dumps: Path, tmp_path: Path, how: str, side: str
) -> None:
    one, other = (shutil.copytree(dumps / name, tmp_path / name) for name in ("same", "reference"))
    file = (one if side == "candidate" else other) / "step1" / "rank" / "dump.json"
    (file.parent / "construct.json").write_text("{}")
    if how == "cut":
        file.write_text(file.read_text()[:-40])
    else:
        file.unlink()
    done = run(one, other, "-o", tmp_path / "out", "--csv", "--all-steps")
    assert (done.returncode, done.stderr) == (2, "")
    assert done.stdout.startswith(f"AGREE{said('share-read')}: ")
    assert f"{side}: step 1 cannot be read: " in " ".join(done.stdout.split())
    assert [path.name for path in (tmp_path / "out").glob("*.csv")] == ["compare_result_step0_rank.csv"]
    assert json.loads((tmp_path / "out" / "verdict.json").read_text())["summary"]["unread"] == 1
    assert run(one, other, "--fail-on", "never").returncode == 0


def test_a_difference_in_what_can_be_read_counts_more_than_what_cannot(dumps: Path, tmp_path: Path) -> None:
    one = shutil.copytree(dumps / "other", tmp_path / "other")
    (one / "step1" / "rank" / "dump.json").write_text("{")
    assert run(one, dumps / "reference").returncode == 1
