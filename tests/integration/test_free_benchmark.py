"""Training under the free benchmark is, bit for bit, the training without, and healthy trainings give no alarm.

On ranks: test_innocence_ranks.py.
"""

from __future__ import annotations

from pathlib import Path

import pytest
import zoo
from innocence_benchmark import SETTINGS, table
from innocence_observation import differences
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
FEW = ("cnn_batchnorm", "in_place_relu_chain", "random_everywhere", "autocast_bfloat16_transformer")


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
