"""``msprobe check DUMP``, and over trainings with planted bugs: found there, silent without them."""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path
from typing import Any

import pytest
from bugs.patterns import PATTERNS
from bugs.planting import draw
from bugs.record import record
from support import command_line
from support.coded_texts import mentions
from support.hand_made import call, tensor, write_part

from msprobe.diagnose.check import CHECKS, check_run
from msprobe.messages import said


def run(*words: object) -> command_line.Completed:
    return command_line.call("check", *words)


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("sound")
    write_part(folder / "step0" / "rank", {"Torch.exp.0.forward": call()})
    return folder


@pytest.fixture(scope="module")
def wrong(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wrong")
    data = {
        "Torch.log.0.forward": call(tensor(2, 4, value=-1.0), out=tensor(2, 4, value=float("nan"))),
        "Torch.mul.0.forward": call(tensor(2, 4, value=float("nan")), out=tensor(2, 4, value=float("nan"))),
    }
    stack = ["File /home/me/train.py, line 12, in forward, \n y = torch.log(x)\x1b[31m"]
    write_part(folder / "step0" / "rank", data, stacks={"Torch.log.0.forward": stack})
    return folder


def test_a_process_says_and_answers_what_the_call_does(sound: Path, wrong: Path, tmp_path: Path) -> None:
    for folder, status in ((sound, 0), (wrong, 1), (tmp_path, 2)):
        as_users, called = command_line.process("check", folder), command_line.call("check", folder)
        assert as_users.returncode == called.returncode == status
        assert (as_users.stdout, as_users.stderr) == (called.stdout, called.stderr)


def test_nothing_is_found_in_a_sound_dump(sound: Path) -> None:
    done = run(sound)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("NOTHING FOUND\n")


def test_what_is_found_is_reported_and_written(wrong: Path, tmp_path: Path) -> None:
    done = run(wrong, "-o", tmp_path / "out")
    assert (done.returncode, done.stderr) == (1, "")
    assert done.stdout.startswith("FOUND at step 0")
    assert said("logarithm-of-negative", -1) in " ".join(done.stdout.split())
    assert "/home/me/train.py:12 in forward" in done.stdout
    assert "\x1b" not in done.stdout
    file = tmp_path / "out" / "check.json"
    content = json.loads(file.read_text())
    assert stat.S_IMODE(file.stat().st_mode) == 0o640
    assert [found["entry"] for found in content["findings"]] == ["Torch.log.0.forward"]
    assert content["summary"]["kinds"] == {"overflow": 1}


def test_every_line_fits_the_terminal(wrong: Path) -> None:
    assert max(len(line) for line in run(wrong).stdout.splitlines() if str(wrong) not in line) <= 80


def test_the_checks_are_listed_and_chosen(wrong: Path) -> None:
    listed = run("--list")
    assert listed.returncode == 0
    assert [line.split()[0] for line in listed.stdout.splitlines()] == [check.name for check in CHECKS]
    assert run(wrong, "--skip", "overflow").returncode == 0
    assert run(wrong, "--only", "softmax,dtypes").returncode == 0
    assert run(wrong, "--only", "overflow").returncode == 1


@pytest.mark.parametrize("how", ["cut", "gone"])
def test_a_part_that_cannot_be_read_is_reported_and_the_rest_checked(tmp_path: Path, how: str) -> None:
    for step in range(3):
        write_part(tmp_path / f"step{step}" / "rank", {"Torch.exp.0.forward": call()}, construct={})
    file = tmp_path / "step1" / "rank" / "dump.json"
    file.write_text(file.read_text()[:-60]) if how == "cut" else file.unlink()
    done = run(tmp_path, "-o", tmp_path / "out")
    assert (done.returncode, done.stderr) == (2, "")
    headline = "NOTHING FOUND IN WHAT COULD BE READ"
    assert done.stdout.startswith(headline)
    content = json.loads((tmp_path / "out" / "check.json").read_text())
    assert len(content["unread"]) == 1
    assert content["unread"][0].startswith(said("cannot-be-read", "step 1", ""))
    assert content["summary"]["records"] == 2


def test_a_rank_that_was_killed_earlier_than_another_is_reported(tmp_path: Path) -> None:
    for step, rank in ((0, 0), (0, 1), (1, 0)):
        write_part(tmp_path / f"step{step}" / f"rank{rank}", {"Torch.exp.0.forward": call()}, construct={})
    assert mentions(" ".join(run(tmp_path).stdout.split()), "rank-missing-in-step", step=1, ranks=1)


PLANTED = {
    "F04": ("overflow", "Torch.softmax.0.forward"),
    "F13": ("dtypes", r"Torch.softmax"),
    "F16": ("dropout", "Functional.dropout"),
    "F17": ("labels", ""),
    "B01": ("unreached", "Tensor.detach.0.forward"),
    "B02C": ("mutation", "Tensor.mul_"),
    "B03": ("recompute", "Functional.dropout"),
    "B04": ("overflow", "Torch.sqrt"),
    "B05U": ("scale", "Tensor.__mul__"),
    "B06": ("ties", "Module.head"),
    "B07": ("clearing", "Optimizer.AdamW.0.forward"),
    "O08": ("updates", "Optimizer.AdamW.0.forward"),
    "D05": ("replicas", "Optimizer.SGD.0.forward"),
    "D06": ("collectives", "Distributed.all_reduce"),
}


#: Some of them for every run of the tests.
OFTEN = ("F17", "B02C")


@pytest.mark.parametrize("name", [pytest.param(n, marks=() if n in OFTEN else pytest.mark.slow) for n in PLANTED])
def test_planted_bugs_show_in_their_own_dump_and_in_no_other(tmp_path: Path, name: str) -> None:
    os.environ.setdefault("MSPROBE_LOG_LEVEL", "3")
    pattern = PATTERNS[name]
    pair = record(pattern, draw(pattern, 11), "digest", tmp_path / "pair")
    assert [told(found) for found in check_run(pair.dump("reference")).findings] == []
    check, entry = PLANTED[name]
    first = check_run(pair.dump("candidate")).findings[0]
    assert first.evidence["check"] == check
    assert str(first.entry).startswith(entry)


def told(found: Any) -> tuple[str, str]:
    return found.evidence["check"], found.message
