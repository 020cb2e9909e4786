"""Optimizer states have the names of their parameters, whatever the format numbers or calls them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed.checkpoint as dcp
from support.coded_texts import mentions
from support.megatron_made import dense, save
from torch.distributed.checkpoint.state_dict import get_state_dict

from msprobe.environment.checkpoint.comparison import CheckpointComparison, CheckpointRequest, compare_checkpoints
from msprobe.messages import said

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning", "ignore::FutureWarning")


def compared(first: Path, second: Path) -> CheckpointComparison:
    return compare_checkpoints(CheckpointRequest(str(first), str(second)))


def trained(split: str) -> tuple[torch.nn.Module, torch.optim.Optimizer]:
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.BatchNorm1d(4), torch.nn.Linear(4, 4))
    flat = [one for one in model.parameters() if one.dim() < 2]
    whole = [one for one in model.parameters() if one.dim() > 1]
    groups: Any = {"one": [*model.parameters()], "two": [{"params": whole}, {"params": flat, "weight_decay": 0.0}]}
    if split == "named":
        groups["named"] = [{"params": [*reversed([*model.named_parameters()])]}]
    optimizer = torch.optim.AdamW(groups[split], lr=0.01)
    for _ in range(2):
        model(torch.randn(5, 4)).square().mean().backward()
        optimizer.step()
    return model, optimizer


@pytest.mark.parametrize("split", ["one", "two", "named"])
def test_torch_numbers_are_the_names_that_torch_itself_gives(tmp_path: Path, split: str) -> None:
    model, optimizer = trained(split)
    torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, tmp_path / "a.pt")
    weights, states = get_state_dict(model, optimizer)
    dcp.save({"model": weights, "optim": states}, checkpoint_id=tmp_path / "dcp", no_dist=True)
    found = compared(tmp_path / "a.pt", tmp_path / "dcp")
    moments = {name for name in found.first.optimizer if name.endswith((".exp_avg", ".exp_avg_sq", ".step"))}
    assert len(moments) == 3 * 6
    assert {row.kind for row in found.rows} == {"equal"}
    assert moments <= {row.name for row in found.rows}


def test_numbers_stay_where_the_order_of_parameters_is_not_known(tmp_path: Path) -> None:
    model, optimizer = trained("one")
    state = optimizer.state_dict()
    state["param_groups"][0]["params"].reverse()
    torch.save({"model": model.state_dict(), "optimizer": state}, tmp_path / "a.pt")
    found = compared(tmp_path / "a.pt", tmp_path / "a.pt")
    assert "state.0.exp_avg" in found.first.optimizer
    assert not found.differs


def test_a_moment_that_is_gone_or_changed_is_reported_by_its_parameter(tmp_path: Path) -> None:
    model, optimizer = trained("two")
    torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, tmp_path / "a.pt")
    state = optimizer.state_dict()
    state["state"][1]["exp_avg_sq"].mul_(2)
    state["state"][3] = {"exp_avg": state["state"][3]["exp_avg"]}
    torch.save({"model": model.state_dict(), "optimizer": state}, tmp_path / "b.pt")
    found = compared(tmp_path / "a.pt", tmp_path / "b.pt")
    assert [(row.kind, row.name) for row in found.rows if row.kind != "equal"] == [
        ("missing", "1.weight.exp_avg_sq"),
        ("missing", "1.weight.step"),
        ("scaled", "2.weight.exp_avg_sq"),
    ]


def test_a_checkpoint_without_optimizer_is_no_difference_and_is_said_to_be_not_compared(tmp_path: Path) -> None:
    model, optimizer = trained("one")
    torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, tmp_path / "a.pt")
    torch.save({"model": model.state_dict()}, tmp_path / "b.pt")
    found = compared(tmp_path / "a.pt", tmp_path / "b.pt")
    assert not found.differs
    assert [one.what for one in found.coverage.not_read] == [
        said("what-of-checkpoint", said("section-state", "optimizer"), str(tmp_path / "a.pt"))
    ]
    assert not found.coverage.is_complete


def buffer(model: dict[str, torch.Tensor], factor: float) -> torch.Tensor:
    """What the distributed optimizer keeps of a rank: the last parameter first, each at a multiple of 64."""
    parts: list[torch.Tensor] = []
    for tensor in reversed(model.values()):
        filled = sum(one.numel() for one in parts)
        parts += [torch.zeros(-filled % 64), factor * tensor.flatten()]
    return torch.cat(parts)


def test_buffers_of_the_distributed_optimizer_are_checked_with_the_weights(tmp_path: Path) -> None:
    model = dense(layers=2)
    for name, other in (("a", model), ("b", dense(seed=1, layers=2))):
        folder = save(tmp_path / name, model, pp=1) / "iter_0000100" / "mp_rank_00"
        flat = {"param": buffer(other, 1), "exp_avg": buffer(other, 0.5), "exp_avg_sq": buffer(other, 0.25)}
        torch.save({0: {(torch.float32, torch.float32): flat}, "buckets_coalesced": True}, folder / "distrib_optim.pt")
    found = compared(tmp_path / "a", tmp_path / "b")
    assert len(found.first.optimizer) == 3 * len(model)
    weight = "decoder.layers.1.mlp.linear_fc2.weight"
    assert torch.equal(torch.from_numpy(found.first.optimizer[weight + ".exp_avg"].read().copy()), 0.5 * model[weight])
    assert not found.second.optimizer
    assert any(mentions(one.why, "state-of-other-weights") for one in found.coverage.not_read)


def test_a_tied_head_that_one_side_keeps_twice_is_no_difference(tmp_path: Path) -> None:
    model = dense(layers=2)
    model["output_layer.weight"] = model["embedding.word_embeddings.weight"].clone()
    slim = {name: one for name, one in model.items() if name != "output_layer.weight"}
    found = compared(save(tmp_path / "a", model), save(tmp_path / "b", slim))
    assert not found.differs
    twice = {"name": "output_layer.weight", "twin": "embedding.word_embeddings.weight"}
    assert mentions(found.notes[0], "weight-kept-twice", **twice)
    model["output_layer.weight"][0, 0] += 1
    found = compared(save(tmp_path / "c", model), tmp_path / "b")
    assert found.counts["missing"] == 1
