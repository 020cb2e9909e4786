"""Whatever a program calls what it saves, it is compared, or named as not compared."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed.checkpoint as dcp
from safetensors.torch import save_file
from support.checkpoints import compared
from support.coded_texts import mentions
from support.command_line import call
from torch import nn

State = dict[str, Any]


def trained(seed: int = 0) -> State:
    """A model, its optimizer and an average after one step, as a program that knows no convention calls them."""
    torch.manual_seed(seed)
    model = nn.Sequential(nn.Linear(4, 5), nn.LayerNorm(5), nn.Linear(5, 3))
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
    model(torch.ones(2, 4)).square().sum().backward()
    optimizer.step()
    average = {name: 0.9 * one for name, one in model.state_dict().items()}
    return {"model": model.state_dict(), "opt": optimizer.state_dict(), "ema": average, "epoch": 3}


def saved(path: Path, state: Any) -> Path:
    torch.save(state, path)
    return path


def a_moment(state: State) -> None:
    state["opt"]["state"][0]["exp_avg"].mul_(1.5)


def a_learning_rate(state: State) -> None:
    state["opt"]["param_groups"][0]["lr"] = 0.2


def an_average(state: State) -> None:
    state["ema"]["2.weight"][0, 0] += 1


CHANGES: list[tuple[Callable[[State], None], str]] = [
    (a_moment, "0.weight.exp_avg"),
    (a_learning_rate, "param_groups.0.lr"),
    (an_average, "ema.2.weight"),
]


@pytest.mark.parametrize(("change", "name"), CHANGES, ids=lambda one: getattr(one, "__name__", ""))
def test_state_under_any_key_is_compared(tmp_path: Path, change: Callable[[State], None], name: str) -> None:
    first, other = saved(tmp_path / "a.pt", trained()), trained()
    assert not compared(first, saved(tmp_path / "same.pt", trained())).differs
    change(other)
    found = compared(first, saved(tmp_path / "b.pt", other))
    assert [row.name for row in found.rows if row.kind != "equal"] == [name]
    assert found.coverage.is_complete


@pytest.mark.parametrize("keys", [("opt", "ema"), ("trainer", "shadow"), ("adam", "model_ema"), ("o", "teacher")])
def test_two_programs_may_call_the_same_state_differently(tmp_path: Path, keys: tuple[str, str]) -> None:
    state, other = trained(), trained()
    renamed = {"state_dict": other["model"], keys[0]: other["opt"], keys[1]: other["ema"]}
    found = compared(saved(tmp_path / "a.pt", state), saved(tmp_path / "b.pt", renamed))
    assert set(found.counts) == {"equal"}
    assert {row.section for row in found.rows} == {"weights", "optimizer", "other"}
    assert found.coverage.is_complete


def test_several_optimizers_are_compared_each(tmp_path: Path) -> None:
    def state(factor: float) -> State:
        one, two = trained(), trained(1)
        two["opt"]["state"][2]["exp_avg_sq"].mul_(factor)
        return {"generator": one["model"], "critic": two["model"], "opt_g": one["opt"], "opt_c": two["opt"]}

    found = compared(saved(tmp_path / "a.pt", state(1)), saved(tmp_path / "b.pt", state(2)))
    ((kind, name),) = [(row.kind, row.name) for row in found.rows if row.kind != "equal"]
    assert (kind, name.startswith("opt_c."), name.endswith("exp_avg_sq")) == ("scaled", True, True)
    assert {row.section for row in found.rows} == {"weights", "optimizer"}


def test_numbers_of_a_scheduler_under_any_key_are_compared(tmp_path: Path) -> None:
    state = trained()
    first = saved(tmp_path / "a.pt", state | {"sched": {"last_epoch": 3, "base_lrs": [0.1]}})
    found = compared(first, saved(tmp_path / "b.pt", state | {"sched": {"last_epoch": 4, "base_lrs": [0.1]}}))
    assert [row.name for row in found.rows if row.kind != "equal"] == ["sched.last_epoch"]


def test_sparse_tensors_and_those_of_subclasses_are_compared(tmp_path: Path) -> None:
    def state(value: float) -> State:
        values = torch.tensor([1.0, value])
        return {"model": {"table": torch.sparse_coo_tensor(torch.tensor([[0, 2]]), values, (4,)), "w": torch.ones(2)}}

    first = saved(tmp_path / "a.pt", state(2.0))
    assert not compared(first, saved(tmp_path / "same.pt", state(2.0))).differs
    (row,) = [row for row in compared(first, saved(tmp_path / "b.pt", state(3.0))).rows if row.kind != "equal"]
    assert row.name.startswith("table.")


def test_what_stands_beside_a_folder_s_weights_is_compared(tmp_path: Path) -> None:
    for name, factor in (("a", 1.0), ("b", 2.0)):
        state = trained()
        (tmp_path / name).mkdir()
        save_file({key: one.contiguous() for key, one in state["model"].items()}, tmp_path / name / "model.safetensors")
        torch.save({key: factor * one for key, one in state["ema"].items()}, tmp_path / name / "ema_weights.pt")
    found = compared(tmp_path / "a", tmp_path / "b")
    assert {row.kind for row in found.rows if row.name.startswith("ema_weights.")} >= {"scaled"}
    (tmp_path / "b/ema_weights.pt").write_bytes(b"no file of torch")
    found = compared(tmp_path / "a", tmp_path / "b")
    assert not found.differs
    assert any("ema_weights" in one.what for one in found.coverage.not_read)


def test_a_distributed_checkpoint_s_own_keys_are_compared(tmp_path: Path) -> None:
    for name, factor in (("a", 1.0), ("b", 2.0)):
        state = trained()
        state["ema"]["0.weight"].mul_(factor)
        dcp.save({"model": state["model"], "ema": state["ema"]}, checkpoint_id=tmp_path / name, no_dist=True)
    found = compared(tmp_path / "a", tmp_path / "b")
    assert [(row.kind, row.name) for row in found.rows if row.kind != "equal"] == [("scaled", "ema.0.weight")]
    assert saved(tmp_path / "c.pt", {key: one for key, one in trained().items() if key in ("model", "ema")})
    assert not compared(tmp_path / "a", tmp_path / "c.pt").differs


@pytest.mark.parametrize("gone", ["opt", "ema"])
def test_what_one_side_lacks_is_named_and_the_status_is_2(tmp_path: Path, gone: str) -> None:
    state = trained()
    first = saved(tmp_path / "a.pt", state)
    second = saved(tmp_path / "b.pt", {key: one for key, one in state.items() if key != gone})
    done = call("config_check", "-c", first, second, "-o", tmp_path / "o.json")
    assert done.returncode == 2
    covered = json.loads((tmp_path / "o_summary.json").read_text())["coverage"]
    assert covered["complete"] is False
    (entry,) = covered["not_read"]
    assert entry["what"].startswith({"opt": "optimizer state", "ema": "ema"}[gone])
    headline = done.stdout.splitlines()[1]
    assert entry["what"] in headline
    assert not mentions(headline, "checkpoints-agree")
    assert call("config_check", "-c", first, second, "-o", tmp_path / "w.json", "--weights-only").returncode == 0


def test_a_true_difference_stays_first_where_something_is_not_compared(tmp_path: Path) -> None:
    state, other = trained(), trained()
    other["model"]["0.bias"].add_(1)
    del other["opt"]
    done = call(
        *("config_check", "-c", saved(tmp_path / "a.pt", state), saved(tmp_path / "b.pt", other)),
        *("-o", tmp_path / "o.json"),
    )
    assert done.returncode == 1
    assert "Not compared: optimizer state" in done.stdout.splitlines()[1]
