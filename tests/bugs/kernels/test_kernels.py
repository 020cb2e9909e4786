"""The bench itself, on the smallest of its networks: its devices lie below the recorder, and its truth holds."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from support.coded_texts import pieces_of
from torch import nn
from unit.diagnose.real_pairs import Training, compare_trainings

from msprobe.diagnose.measured.classes import shipped
from msprobe.diagnose.measured.judge import judge_nodes
from msprobe.diagnose.runs import compare_runs

from .classes import unlike
from .device import Device
from .faults import FAULTS
from .judges import nodes_of
from .networks import ALL
from .record import Recording, recorded
from .recordings import KernelPair, faulty_pairs
from .truth import first_wrong
from .variants import VARIANTS
from .whole import Tensors


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Recordings of this module, each made once."""
    return tmp_path_factory.mktemp("kernels")


def test_there_are_enough_wrong_kernels_and_healthy_devices() -> None:
    assert len(FAULTS) >= 100
    assert len(VARIANTS) >= 5
    assert {one.network for one in FAULTS.values()} == {*ALL}


def test_classes_that_show_more_than_the_table_allows_are_named() -> None:
    table = {"operators": {"add forward half": [-0.5, 0.1]}, "families": {}}
    for usual, is_unlike in (([0.4, -3.0], False), ([0.6, 0.1], True), ([-1.0, 0.7], True)):
        assert bool(unlike({"operators": {"add forward half": usual}, "families": {}}, table)) is is_unlike
    assert len(unlike({"operators": {}, "families": {"sums forward half": [0.0, 0.0]}}, table)) == 1


@pytest.mark.parametrize("precision", ["float32", "autocast"])
def test_a_different_device_changes_bits_forward_and_backward_and_no_call(precision: str, cache: Path) -> None:
    ours = Tensors.read(recorded(Recording("images", precision), cache)).digests
    theirs = Tensors.read(recorded(Recording("images", precision, "splits"), cache)).digests
    changed = {name.rpartition(".")[2] for name, _ in ours if any(ours[k] != theirs[k] for k in ours if k[0] == name)}
    assert set(ours) == set(theirs)
    assert {"forward", "backward"} <= changed


def test_the_same_device_gives_the_same_bits(cache: Path, tmp_path: Path) -> None:
    one, again = (recorded(Recording("images", "bfloat16", "fast"), place) for place in (cache, tmp_path))
    assert Tensors.read(one).digests == Tensors.read(again).digests
    assert first_wrong(one, again) is None


@pytest.mark.parametrize(
    ("fault", "entry"),
    [
        ("images-native_batch_norm-unbiased-0", "Functional.batch_norm.0.forward"),
        ("images-convolution-scale-0.005-call2", "Functional.conv2d.2.forward"),
        ("images-native_batch_norm_backward-scale-0.02-call1", "Functional.batch_norm.1.backward"),
    ],
)
def test_the_first_wrong_call_is_found_by_its_bits(fault: str, entry: str, cache: Path) -> None:
    (pair,) = faulty_pairs("images", "float32", cache, [fault])
    assert pair.truth is not None
    assert pair.truth.accepts(entry)
    assert not pair.truth.accepts("Functional.conv2d.0.forward")


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
@pytest.mark.parametrize("variant", ["splits", "halves", "cores"])
def test_the_measuring_judge_names_no_call_of_a_healthy_device(precision: str, variant: str, cache: Path) -> None:
    sides = (recorded(Recording("images", precision, one), cache) for one in (variant, ""))
    judgement = judge_nodes(nodes_of(KernelPair("images", precision, variant, None, *sides, None)), shipped())
    assert judgement.first is None
    assert judgement.calls > 50
    assert judgement.not_judged < judgement.calls / 10


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
@pytest.mark.parametrize("fault", ["images-native_batch_norm-last-rows-10", "images-convolution-lost-terms-9"])
def test_the_measuring_judge_names_a_wrong_kernel_first(precision: str, fault: str, cache: Path) -> None:
    (pair,) = faulty_pairs("images", precision, cache, [fault])
    first = judge_nodes(nodes_of(pair), shipped()).first
    assert first is not None
    assert pair.truth is not None
    assert pair.truth.accepts(first.node.event.name)


def test_a_kernel_that_no_call_shows_by_itself_is_named_by_its_calls_together(cache: Path) -> None:
    (pair,) = faulty_pairs("experts", "bfloat16", cache, ["experts-silu-flushed-0.02"])
    found, *_ = compare_runs(pair.candidate / "dump", pair.reference / "dump").findings
    assert pair.truth is not None
    assert pair.truth.accepts(found.entry)
    assert found.evidence["calls_together"] >= 3
    assert "beyond-together" in pieces_of(found.message)
    assert found.evidence["difference"] > found.evidence["explained"]


def _on_a_device_in_its_first_step(variant: str, momentum: bool) -> Training:
    """Gradients are rounded otherwise once, and nothing moves a weight: what the optimizer keeps of them has their
    shape, and is all that differs in the second step.
    """
    model = nn.Sequential(nn.Linear(48, 96), nn.GELU(), nn.LayerNorm(96), nn.Linear(96, 10))
    optimizer: torch.optim.Optimizer = torch.optim.AdamW(model.parameters(), lr=0.0, foreach=False)
    if momentum:
        optimizer = torch.optim.SGD(model.parameters(), lr=0.0, momentum=0.9, foreach=False)
    x, goals = torch.randn(64, 48), torch.randint(0, 10, (64,))

    def step(number: int) -> None:
        optimizer.zero_grad()
        with Device(variant if number == 0 else ""):
            with torch.autocast("cpu", torch.bfloat16):
                loss = F.cross_entropy(model(x).float(), goals)
            loss.backward()
        optimizer.step()

    return model, step


@pytest.mark.parametrize("momentum", [False, True], ids=["AdamW", "SGD"])
def test_what_an_optimizer_keeps_of_rounding_is_no_gradient_that_something_changed(
    momentum: bool, tmp_path: Path
) -> None:
    sides = (partial(_on_a_device_in_its_first_step, variant, momentum) for variant in ("wide", ""))
    verdict = compare_trainings(tmp_path, *sides, steps=2)
    assert verdict.status in ("agree", "harmless")
    assert "parameter_gradient" not in {finding.kind for finding in verdict.findings}
