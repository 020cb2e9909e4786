"""Trainers of other packages: one folder for each of their steps, and the training is what it was.

Each program trains three times from one seed (``trainers_*.py``): recorded by ``msprobe run``, by the callback, and by
nobody. Both recordings hold the same, and the three trainings are equal to the last bit.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from support import forked
from support.coded_texts import mentions
from support.torch_dumps import Dump

from msprobe.messages import said

HERE = Path(__file__).parent
pytestmark = [pytest.mark.trainers, pytest.mark.timeout(600)]


def _really_run(*words: str, cwd: Path, env: dict[str, str], timeout: float) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, *words]
    return subprocess.run(command, cwd=cwd, env=env, capture_output=True, text=True, timeout=timeout)


class Ended:
    """What a program left: what it told by the name of the training and the rank, its warnings, and its dumps."""

    def __init__(self, folder: Path, script: str, *words: str, ranks: int = 1, lead: tuple[str, ...] = ()) -> None:
        self.folder, self.ranks = folder, ranks
        command = ["-m", "msprobe", "run", "--level", "mix", "--dump-path", str(folder / "launcher")]
        command += ["--", *lead, str(HERE / script), words[0], str(folder), *words[1:]]
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1", "ACCELERATE_USE_CPU": "true"}
        # What starts further processes is a real one.
        run = forked.run if ranks == 1 and not lead else _really_run
        ended = run(*command, cwd=folder, env=environment, timeout=590)
        assert ended.returncode == 0, ended.stderr[-4000:]
        self.trained = {}
        for rank in range(ranks):
            for line in (folder / f"told.{rank}").read_text().splitlines():
                name, text = line.split(": ", 1)
                self.trained[name, rank] = text
        # Two ranks write to one pipe: a line of one may stand behind a line of the other that has not ended.
        self.warnings = re.findall(r"\[WARNING\] ([^\[\n]*)", ended.stdout)
        self.info = re.findall(r"\[INFO\] ([^\[\n]*)", ended.stdout)

    def names(self, rank: int) -> str:
        return f"rank{rank}" if self.ranks > 1 else "rank"

    def check(
        self, *, entries: tuple[str, ...], passes: dict[str, int], steps: int = 3, compared: tuple[str, ...] = ("",)
    ) -> None:
        """The recordings hold the same ``steps`` steps with such entries and so many passes of modules, and changed
        nothing.
        """
        ways = {"launcher", "callback", "bare"}
        assert {key for key in self.trained if key[0] in ways} == {(way, r) for way in ways for r in range(self.ranks)}
        for rank in range(self.ranks):
            assert len({self.trained[way, rank] for way in ways}) == 1
        for line in self.warnings:
            assert mentions(line, "script-records-itself")
        assert len(self.warnings) == self.ranks
        launcher, callback = Dump(self.folder / "launcher"), Dump(self.folder / "callback")
        assert launcher.steps() == callback.steps() == [f"step{i}" for i in range(steps)]
        for step in range(steps):
            for rank in map(self.names, range(self.ranks)):
                records = launcher.data(step, rank=rank)
                assert_same_records(records, callback.data(step, rank=rank), compared)
                assert set(entries) <= set(records)
                for part, count in passes.items():
                    found = [name for name in records if part in name and ".forward" in name]
                    assert len(found) == count, (step, part, found)
                for dump in (launcher, callback):
                    assert dump.file(step, rank=rank)["msprobe"]["complete"] is True


def read_pack(folder: Path) -> dict[str, Any]:
    """What the configuration check of the callback collected: the first micro-step of the first rank."""
    with zipfile.ZipFile(folder / "pack.zip") as archive:
        assert not [name for name in archive.namelist() if "step1" in name]
        return {name: json.loads(archive.read(name)) for name in archive.namelist() if name.endswith(".json")}


def assert_same_records(one: dict[str, Any], other: dict[str, Any], compared: tuple[str, ...] = ("",)) -> None:
    """The same names; records that begin with ``compared`` have the same contents, but for the line that called."""
    assert list(one) == list(other)
    for name in (name for name in one if name.startswith(compared)):
        here, there = ({key: tree[key] for key in tree if key != "msprobe"} for tree in (one[name], other[name]))
        assert here == there, name


def test_trainer_of_hugging_face(tmp_path: Path) -> None:
    """With evaluation before, in and behind the training, generation, accumulated gradients and a checkpoint."""
    ended = Ended(tmp_path, "trainers_huggingface.py", "plain", "resume")
    ended.check(entries=("Optimizer.AdamW.0.forward",), passes={"transformer.h.0.GPT2Block": 2, "Optimizer.": 1})
    pack = read_pack(tmp_path)
    assert pack["hyperparameters/hyperparameters_dynamic.json"]["per_device_train_batch_size"] == 2
    assert "input_ids" in pack["dataset/step0/rank0/dataset.json"]["kwargs"]
    assert "transformer.wte.weight" in pack["weights/step0/rank0/weight.json"]
    # Resumed, a step has the number of its global_step and is the same step.
    resumed = Dump(tmp_path / "resumed")
    assert resumed.steps() == ["step2"]
    assert_same_records(Dump(tmp_path / "callback").data(2), resumed.data(2))
    assert any(mentions(line, "evaluation-before-training") for line in ended.info)


@pytest.mark.parametrize("way", [pytest.param("sft", marks=pytest.mark.slow), "dpo"])
def test_trainers_of_trl(tmp_path: Path, way: str) -> None:
    ended = Ended(tmp_path, "trainers_huggingface.py", way)
    # The loss is computed in pieces in a buffer that nobody has written before.
    ended.check(entries=("Optimizer.AdamW.0.forward",), passes={"Optimizer.": 1}, compared=("Module.", "Optimizer."))


def test_trainer_of_hugging_face_with_two_ranks(tmp_path: Path) -> None:
    lead = ("-m", "torch.distributed.run", "--nproc-per-node", "2", "--standalone")
    ended = Ended(tmp_path, "trainers_huggingface.py", "plain", ranks=2, lead=lead)
    ended.check(entries=("Optimizer.AdamW.0.forward",), passes={"module.transformer.h.0.GPT2Block": 2, "Optimizer.": 1})


def test_trainer_of_lightning(tmp_path: Path) -> None:
    """Forward and backward run inside of the optimizer's step."""
    ended = Ended(tmp_path, "trainers_lightning.py", "automatic", "resume")
    ended.check(entries=("Optimizer.AdamW.0.forward",), passes={"Module.first.Linear": 2, "Optimizer.": 1})
    parents = Dump(tmp_path / "launcher").file(1, "construct.json")
    assert parents["Functional.mse_loss.0.forward"] is None
    assert parents["Functional.mse_loss.1.forward"] is None
    resumed = Dump(tmp_path / "resumed")
    assert resumed.steps() == ["step2"]
    pack = read_pack(tmp_path)
    assert "0" in pack["dataset/step0/rank0/dataset.json"]["args"]
    assert "first.weight" in pack["weights/step0/rank0/weight.json"]
    # The free benchmark changes nothing; it looks at the closure that the optimizer is given, and not at the optimizer.
    assert ended.trained["benchmark", 0] == ended.trained["bare", 0]
    (summary,) = (tmp_path / "benchmark").rglob("free_benchmark_summary.csv")
    looked_at = {line.split(",")[0] for line in summary.read_text().splitlines()[1:]}
    assert {"Functional.linear", "Functional.mse_loss"} <= looked_at
    assert not looked_at & {"Tensor.mul_", "Tensor.lerp_", "Tensor.addcdiv_", "Torch._foreach_add_"}


def test_two_optimizers_of_lightning_make_one_step(tmp_path: Path) -> None:
    ended = Ended(tmp_path, "trainers_lightning.py", "manual")
    ended.check(
        entries=("Optimizer.SGD.0.forward", "Optimizer.SGD.1.forward"),
        passes={"Module.first.Linear": 2, "Optimizer.": 2},
        # Lightning counts the steps of each optimizer, and ends with the fourth.
        steps=2,
    )


def test_trainer_of_lightning_with_two_ranks(tmp_path: Path) -> None:
    """The second rank is started by Lightning, as a plain script."""
    ended = Ended(tmp_path, "trainers_lightning.py", "two_ranks", ranks=2)
    ended.check(entries=("Optimizer.AdamW.0.forward",), passes={"first.Linear": 1, "Optimizer.": 1})


@pytest.mark.parametrize("ranks", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_accelerate(tmp_path: Path, ranks: int) -> None:
    if ranks == 1:
        lead = ("-m", "accelerate.commands.launch", "--cpu", "--num_processes", "1", "--num_machines", "1")
        lead += ("--mixed_precision", "no", "--dynamo_backend", "no")
    else:
        lead = ("-m", "torch.distributed.run", "--nproc-per-node", "2", "--standalone")
    ended = Ended(tmp_path, "trainers_lightning.py", "accelerated", ranks=ranks, lead=lead)
    ended.check(
        entries=("Optimizer.AdamW.0.forward",),
        passes={"0.Linear": 2, "Optimizer.": 1},
        steps=4 if ranks == 1 else 2,
    )


def in_lockstep(folder: Path, script: str, ways: Sequence[str], bugs: Sequence[str]) -> list[str]:
    """Record a training, run it against itself, which must agree, and with bugs; what is named then."""
    config = {"task": "tensor", "level": "mix", "optimizer": True, "dump_path": "reference", "step": [0, 1]}
    (folder / "config.json").write_text(json.dumps(config))

    def msprobe(*words: str) -> subprocess.CompletedProcess[str]:
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "COLUMNS": "120"}
        return forked.run("-m", "msprobe", *words, cwd=folder, env=environment, timeout=290)

    training = (str(HERE / script), *ways)
    recorded = msprobe("run", "--config", "config.json", "--", *training)
    assert recorded.returncode == 0, recorded.stderr
    healthy = msprobe("lockstep", "reference", "-o", "healthy", "--", *training)
    wrong = msprobe("lockstep", "reference", "-o", "wrong", "--", *training, *bugs)
    assert healthy.returncode == 0, healthy.stdout + healthy.stderr
    assert f"AGREE: {said('nothing-differs', 'recorded')}" in healthy.stdout
    assert wrong.returncode == 1, wrong.stdout + wrong.stderr
    found = json.loads((folder / "wrong" / "verdict.json").read_text())["findings"]
    return [one["entry"] for one in found if not one["harmless"]]


def test_lightning_in_lockstep_agrees_with_itself_and_names_every_bug_in_one_run(tmp_path: Path) -> None:
    assert in_lockstep(tmp_path, "trainers_lockstep.py", (), ("elu", "scale", "lr")) == [
        "Functional.elu.0.forward",
        "Tensor.__mul__.0.forward",
        "Optimizer.SGD.0.forward",
    ]


@pytest.mark.parametrize(
    ("way", "activation", "product"),
    [
        ("llama", "gelu", 23),
        *(pytest.param(way, "silu", 0, marks=pytest.mark.slow) for way in ("plain", "recomputed", "autocast")),
    ],
)
def test_the_trainer_in_lockstep_agrees_with_itself_and_names_every_bug_in_one_run(
    tmp_path: Path, way: str, activation: str, product: int
) -> None:
    assert in_lockstep(tmp_path, "trainers_huggingface_lockstep.py", (way,), ("act", "loss", "lr")) == [
        f"Functional.{activation}.0.forward",
        f"Functional.{activation}.1.forward",
        f"Tensor.__mul__.{product}.forward",
        "Optimizer.AdamW.0.forward",
    ]
