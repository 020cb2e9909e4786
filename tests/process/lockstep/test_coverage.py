"""`msprobe lockstep` and `msprobe confirm` say what of the reference they did not look at: half of it is taken away."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support import forked

SCRIPT = """
import sys
import torch
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(4, 6), nn.GELU(approximate="tanh" if "gelu" in sys.argv else "none"), nn.Linear(6, 2))
optimizer = torch.optim.SGD(model.parameters(), 1e-2)
for _ in range(4):
    optimizer.zero_grad()
    model(torch.randn(6, 4)).square().mean().backward()
    optimizer.step()
"""

Taking = Callable[[Path], None]


def msprobe(folder: Path, *words: str) -> forked.Completed:
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "COLUMNS": "100"}
    return forked.run("-m", "msprobe", *words, cwd=folder, env=environment, timeout=240)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a script, its reference of four steps, and the verdict on a wrong activation."""
    folder = tmp_path_factory.mktemp("whole")
    (folder / "train.py").write_text(SCRIPT)
    config = {"task": "tensor", "level": "mix", "optimizer": True, "dump_path": "reference", "step": [0, 1, 2, 3]}
    (folder / "reference.json").write_text(json.dumps(config))
    assert msprobe(folder, "run", "--config", "reference.json", "--", "train.py").returncode == 0
    assert msprobe(folder, "lockstep", "reference", "-o", "wrong", "--", "train.py", "gelu").returncode == 1
    verdict = json.loads((folder / "wrong/verdict.json").read_text())
    (folder / "verdict.json").write_text(json.dumps({**verdict, "reference": str(folder / "less/reference")}))
    return folder


@pytest.fixture
def less(whole: Path, tmp_path: Path) -> Path:
    """The folder, and in it a reference that half of may be taken from."""
    shutil.rmtree(whole / "less", ignore_errors=True)
    shutil.copytree(whole / "reference", whole / "less/reference")
    return whole


def half_of_the_values(reference: Path) -> None:
    every = sorted(reference.glob("step*/*/dump_tensor_data/*"))
    # Those of the call that is put right are left.
    for path in [one for one in every if "gelu" not in one.name][::2]:
        path.unlink()


def half_of_a_record(reference: Path) -> None:
    (path,) = (reference / "step1").glob("*/dump.json")
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def a_record(reference: Path) -> None:
    (path,) = (reference / "step1").glob("*/dump.json")
    path.unlink()


def the_format(reference: Path) -> None:
    (path,) = (reference / "step1").glob("*/dump.json")
    path.rename(path.with_suffix(".msgpack"))


TAKEN: list[tuple[Taking, str]] = [
    (half_of_the_values, "could be read"),
    (half_of_a_record, "could be read"),
    (a_record, "could be read"),
    (the_format, "could be read"),
]


def assert_incomplete(covered: dict[str, Any]) -> None:
    assert covered["complete"] is False
    assert covered["not_read"]
    assert all(one["what"] and one["why"] for one in covered["not_read"])


@pytest.mark.parametrize(("take", "says"), TAKEN, ids=lambda one: getattr(one, "__name__", ""))
def test_lockstep_with_half_of_a_reference_is_no_all_clear(less: Path, take: Taking, says: str) -> None:
    take(less / "less/reference")
    done = msprobe(less, "lockstep", "less/reference", "-o", "less/out", "--", "train.py")
    assert done.returncode == 2, done.stdout + done.stderr
    assert any(says in line for line in done.stdout.splitlines() if line.startswith("AGREE")), done.stdout
    assert_incomplete(json.loads((less / "less/out/verdict.json").read_text())["coverage"])
    # Asked again, `compare` says the same of both.
    again = msprobe(less, "compare", "less/out", "less/reference", "-o", "less/again")
    assert again.returncode == 2, again.stdout + again.stderr
    assert_incomplete(json.loads((less / "less/again/verdict.json").read_text())["coverage"])


@pytest.mark.parametrize("take", [half_of_a_record, a_record], ids=lambda one: one.__name__)
def test_a_step_that_cannot_be_read_hides_no_bug_of_the_others(less: Path, take: Taking) -> None:
    take(less / "less/reference")
    done = msprobe(less, "lockstep", "less/reference", "-o", "less/out", "--", "train.py", "gelu")
    assert done.returncode == 1, done.stdout + done.stderr
    written = json.loads((less / "less/out/verdict.json").read_text())
    counting = [one for one in written["findings"] if not one["harmless"]]
    assert {one["entry"] for one in counting} == {"Functional.gelu.0.forward"}
    assert counting[0]["evidence"]["steps"] == [0, 2, 3]
    assert_incomplete(written["coverage"])


def test_a_reference_that_is_longer_than_the_training_is_said(less: Path) -> None:
    text = (less / "train.py").read_text().replace("range(4)", "range(2)")
    (less / "short.py").write_text(text)
    done = msprobe(less, "lockstep", "less/reference", "-o", "less/out", "--", "short.py")
    assert done.returncode == 2, done.stdout + done.stderr
    assert_incomplete(json.loads((less / "less/out/verdict.json").read_text())["coverage"])


def test_lockstep_with_all_of_a_reference_is_complete(less: Path) -> None:
    done = msprobe(less, "lockstep", "less/reference", "-o", "less/out", "--", "train.py")
    assert done.returncode == 0, done.stdout + done.stderr
    assert json.loads((less / "less/out/verdict.json").read_text())["coverage"]["complete"] is True


@pytest.mark.parametrize(("take", "says"), TAKEN, ids=lambda one: getattr(one, "__name__", ""))
def test_confirm_with_half_of_a_reference_is_no_all_clear(less: Path, take: Taking, says: str) -> None:
    take(less / "less/reference")
    words = ["--every-call", "-o", "less/out", "--json", "-", "--", "train.py", "gelu"]
    done = msprobe(less, "confirm", "verdict.json", *words)
    found = json.loads(done.stdout)
    assert_incomplete(found["coverage"])
    assert done.returncode == 2, done.stdout + done.stderr
    assert found["is_confirmed"] is True
    assert says in found["sentence"]


def test_confirm_with_all_of_a_reference_is_complete(less: Path) -> None:
    words = ["--every-call", "-o", "less/out", "--json", "-", "--", "train.py", "gelu"]
    done = msprobe(less, "confirm", "verdict.json", *words)
    assert done.returncode == 0, done.stdout + done.stderr
    assert json.loads(done.stdout)["coverage"]["complete"] is True
