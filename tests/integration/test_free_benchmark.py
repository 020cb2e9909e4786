"""Training under the free benchmark is, bit for bit, the training without, and healthy trainings give no alarm."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import pytest
import torch
import zoo
from innocence_observation import differences
from innocence_ranks import Job, Outcome, run_jobs
from innocence_run import Recorder, Setting, run, run_bare_twice, without_known_once

pytestmark = pytest.mark.usefixtures("one_thread")

# What could notice: writes in place and to views, buffers that a call changes unseen, random numbers, recomputation,
# autocast, inference, one tensor given twice, kernels chosen by gradients, modes and classes of tensors of the user,
# transforms, gradients that the engine adds to in place, hooks that tell of what is saved, anomaly detection.
CHOSEN = [
    "cnn_batchnorm",
    "in_place_relu_chain",
    "module_returning_two_views",
    "random_everywhere",
    "recompute_reentrant",
    "recompute_non_reentrant",
    "autocast_grad_scaler",
    "autocast_bfloat16_transformer",
    "generation_inside_a_training",
    "multihead_attention_shared_input",
    "gru",
    "dispatch_mode_of_the_user",
    "flop_counter",
    "nested_jagged",
    "tensor_subclass",
    "saved_tensor_hooks",
    "per_sample_gradients",
    "batched_gradients",
    "unusual_dtypes",
    "sparse_embedding",
    "anomaly_detection",
    "exceptions_caught_in_forward",
    "lbfgs_closure",
    "hf_llama",
]
SETTINGS: dict[str, dict[str, Any]] = {
    "forward": {"pert_mode": ["no_change", "add_noise"]},
    "backward": {"pert_mode": ["no_change", "bit_noise"], "fuzz_stage": "backward"},
    "precision": {"pert_mode": ["improve_precision", "change_value"]},
    "cpu": {"pert_mode": "to_cpu", "fuzz_device": "cpu"},
    "preheat": {"pert_mode": "bit_noise", "if_preheat": True, "preheat_step": 2},
}
FEW = ("cnn_batchnorm", "in_place_relu_chain", "random_everywhere", "autocast_bfloat16_transformer")


def table(folder: Path, file: str) -> list[dict[str, str]]:
    found = []
    for path in sorted(folder.rglob(file)):
        with open(path, newline="", encoding="utf-8") as lines:
            found += csv.DictReader(lines)
    return found


CASES = [(name, kind) for kind in SETTINGS for name in CHOSEN if kind in ("forward", "backward") or name in FEW]


@pytest.mark.parametrize(("name", "kind"), CASES)
def test_it_changes_nothing_and_healthy_calls_are_no_risk(
    name: str, kind: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    if name not in zoo.load_all():
        pytest.skip("this torch does not have what it needs")
    _, off = run_bare_twice(name)
    watcher = Recorder(tmp_path, Setting("L1", "free_benchmark", SETTINGS[kind]))
    on = run(name, watcher)
    found = differences(*without_known_once(off, on))
    assert not found, f"{name}: {len(found)} differences\n" + "\n".join(map(str, found[:15]))
    assert not watcher.faults(), watcher.faults()[:2000]
    assert "The listener" not in capsys.readouterr().out
    risks = [row for row in table(tmp_path, "free_benchmark_details.csv") if row["verdict"] == "risk"]
    assert not risks, risks[:3]
    # Tensors of classes of the program's and inside of transforms are left alone.
    if kind != "precision" and name not in ("tensor_subclass", "per_sample_gradients", "batched_gradients"):
        assert sum(int(row["checked"]) for row in table(tmp_path, "free_benchmark_summary.csv"))


RANKED = ("fsdp2", "ddp")
KINDS_OF_RANKS = ("forward", "backward")


def watched(name: str, kind: str) -> Job:
    return Job(name, Setting("L1", "free_benchmark", SETTINGS[kind]))


@pytest.fixture(scope="module")
def on_two_ranks(tmp_path_factory: pytest.TempPathFactory) -> dict[Job, list[Outcome]]:
    """All trainings of two ranks in one launch of them: starting them costs more than training."""
    jobs = [job for name in RANKED for job in (Job(name, None), *(watched(name, kind) for kind in KINDS_OF_RANKS))]
    return run_jobs(jobs, tmp_path_factory.mktemp("ranks"))


@pytest.mark.skipif(not torch.distributed.is_gloo_available(), reason="needs gloo")
@pytest.mark.parametrize("name", RANKED)
@pytest.mark.parametrize("kind", KINDS_OF_RANKS)
def test_it_changes_nothing_on_two_ranks(name: str, kind: str, on_two_ranks: dict[Job, list[Outcome]]) -> None:
    bare, recorded = on_two_ranks[Job(name, None)], on_two_ranks[watched(name, kind)]
    for rank, (off, on) in enumerate(zip(bare, recorded, strict=True)):
        assert not off.error, off.error
        assert not on.error, on.error
        assert not differences(*without_known_once(off.observation, on.observation)), f"rank {rank}"
        folder = Path(on.dump) / f"rank{rank}"
        checked = sum(int(row["checked"]) for row in table(folder, "free_benchmark_summary.csv"))
        assert checked, f"rank {rank}"
