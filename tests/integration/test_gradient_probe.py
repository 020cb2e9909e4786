"""The gradient probe in real trainings: on two gloo ranks, and under a trainer that knows nothing of it."""

from __future__ import annotations

import json
import os
from pathlib import Path

import numpy as np
import pytest
from distributed_ranks import launch
from support import forked
from support.probed import files, read

from msprobe import GradComparator

pytest.importorskip("torch")


@pytest.fixture(scope="module")
def probed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("ranks")
    launch(folder, ["probed"])
    return folder / "probed"


def test_data_parallel_with_filters_of_rank_step_and_parameter(probed: Path) -> None:
    assert files(probed / "ddp") == {
        f"rank1/{name}" for step in (0, 2) for name in (f"grad_summary_{step}.csv", f"step{step}/module.fc1.weight.npy")
    }
    rows = read(probed / "ddp" / "rank1" / "grad_summary_2.csv")
    assert [row["param_name"] for row in rows] == ["module.fc1.weight"]


def test_fsdp2_writes_local_shards_and_the_whole_shape(probed: Path) -> None:
    whole = np.load(probed / "full0.npy")
    parts = []
    for rank in (0, 1):
        folder = probed / "fsdp2" / f"rank{rank}"
        row = read(folder / "grad_summary_2.csv")[0]
        assert (row["param_name"], row["shape"], row["local_shape"]) == ("fc1.weight", "[6, 4]", "[3, 4]")
        parts.append(np.load(folder / "step2" / "fc1.weight.npy"))
        mine = whole[3 * rank : 3 * rank + 3]
        assert float(row["max"]) == mine.max()
        assert float(row["norm"]) == pytest.approx(np.linalg.norm(mine), rel=1e-6)
    assert np.array_equal(np.concatenate(parts), whole > 0)
    assert len(read(probed / "fsdp2_l0" / "rank1" / "grad_summary_0.csv")[0]["MD5"]) == 8


def test_fsdp1_writes_what_each_rank_has(probed: Path) -> None:
    counts = [
        sum(np.load(file).size for file in (probed / "fsdp1" / f"rank{rank}" / "step0").glob("*.npy"))
        for rank in (0, 1)
    ]
    assert sum(counts) == 4 * 6 + 6 + 6 * 2 + 2


def test_ranks_are_compared_with_themselves(probed: Path, tmp_path: Path) -> None:
    found = GradComparator.compare_distributed(probed / "fsdp2", probed / "fsdp2", tmp_path)
    assert not found.problems
    assert [rank.rank for rank in found.ranks] == [0, 1]
    assert (tmp_path / "rank1" / "similarities.csv").exists()


TRAINER = """
import json, os, sys
os.environ["HF_HUB_OFFLINE"] = "1"
sys.path[:0] = json.loads(sys.argv[3])
from pathlib import Path
from trainers_huggingface import COMMON, Rows, new_model
from transformers import Trainer, TrainingArguments
from msprobe.pytorch import PrecisionDebugger

model = new_model()
if sys.argv[2]:
    debugger = PrecisionDebugger(sys.argv[2])
    debugger.monitor(model)
arguments = TrainingArguments(output_dir=sys.argv[1], save_strategy="no", **COMMON)
trainer = Trainer(model=model, args=arguments, train_dataset=Rows())
trainer.train()
losses = [one["loss"] for one in trainer.state.log_history if "loss" in one]
sums = [float(one.double().sum()) for one in model.parameters()]
Path(sys.argv[1], "told.json").write_text(json.dumps([losses, sums]))
"""


@pytest.mark.trainers
@pytest.mark.timeout(600)
def test_under_the_trainer_of_hugging_face_steps_are_those_of_its_optimizer(tmp_path: Path) -> None:
    config = tmp_path / "config.json"
    config.write_text(json.dumps({"task": "grad_probe", "dump_path": str(tmp_path / "probe"), "grad_probe": {}}))
    told = []
    for way, given in (("with", str(config)), ("without", "")):
        folder = tmp_path / way
        folder.mkdir()
        (folder / "train.py").write_text(TRAINER)
        words = ("train.py", str(folder), given, json.dumps([str(Path(__file__).parent)]))
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "ACCELERATE_USE_CPU": "true"}
        ended = forked.run(*words, cwd=folder, env=environment, timeout=590)
        assert ended.returncode == 0, ended.stderr[-3000:]
        told.append(json.loads((folder / "told.json").read_text()))
    assert told[0] == told[1]
    rank = tmp_path / "probe" / "rank0"
    # Three steps of two micro-batches each.
    assert sorted(path.name for path in rank.glob("*.csv")) == [f"grad_summary_{n}.csv" for n in range(3)]
    rows = read(rank / "grad_summary_2.csv")
    assert len(rows) == len(list((rank / "step2").glob("*.npy"))) > 10
    assert "transformer.h.0.attn.c_attn.weight" in {row["param_name"] for row in rows}
