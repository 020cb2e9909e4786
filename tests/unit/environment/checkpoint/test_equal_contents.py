"""Equal contents are equal, however they were saved; what changed its place is said to have done so."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from support.checkpoints import states_compared
from torch import nn

from msprobe.messages import said


class Tied(nn.Module):
    """A language model whose head is its embedding."""

    def __init__(self) -> None:
        super().__init__()
        self.emb = nn.Embedding(11, 8)
        self.layers = nn.ModuleList(nn.Linear(8, 8) for _ in range(3))
        self.head = nn.Linear(8, 11, bias=False)
        self.head.weight = self.emb.weight

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.emb(x)
        for layer in self.layers:
            x = layer(x)
        result: torch.Tensor = self.head(x)
        return result


def tied() -> dict[str, Any]:
    torch.manual_seed(0)
    model = Tied()
    optimizer = torch.optim.AdamW(model.parameters())
    model(torch.arange(5)).sum().backward()
    optimizer.step()
    return {"model": dict(model.state_dict()), "optimizer": optimizer.state_dict()}


def cloned(model: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    return {name: one.clone() for name, one in model.items()}


def without_head(model: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    return {name: one for name, one in model.items() if name != "head.weight"}


def in_alphabetical_order(model: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    return dict(sorted(model.items()))


def last_first(model: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    return dict(reversed(cloned(model).items()))


@pytest.mark.parametrize("saved_as", [cloned, without_head, in_alphabetical_order, last_first])
def test_one_state_saved_in_two_ways_is_equal(tmp_path: Path, saved_as: Any) -> None:
    state = tied()
    found = states_compared(tmp_path, state, {**state, "model": saved_as(state["model"])})
    assert set(found.counts) == {"equal"}
    assert found.coverage.is_complete
    assert sum(row.section == "optimizer" for row in found.rows) > 20


@pytest.mark.parametrize("saved_as", [cloned, without_head, in_alphabetical_order])
def test_the_one_true_difference_is_the_one_that_is_named(tmp_path: Path, saved_as: Any) -> None:
    state, other = tied(), tied()
    other["optimizer"]["state"][0]["exp_avg_sq"].mul_(3)
    found = states_compared(tmp_path, state, {**other, "model": saved_as(other["model"])})
    assert [(row.kind, row.name) for row in found.rows if row.kind != "equal"] == [("scaled", "emb.weight.exp_avg_sq")]


def test_a_head_that_was_tied_and_has_its_own_values_is_a_difference(tmp_path: Path) -> None:
    state, other = tied(), tied()
    other["model"] = cloned(other["model"])
    other["model"]["head.weight"][0, 0] += 1
    found = states_compared(tmp_path, state, other)
    assert "head.weight" in [row.name for row in found.rows if row.kind == "changed"]


def test_layers_that_begin_alike_are_no_copies_of_each_other(tmp_path: Path) -> None:
    weight = torch.randn(4, 4)
    state = {f"layers.{number}.weight": weight.clone() for number in range(3)}
    found = states_compared(tmp_path, state, {name: one for name, one in state.items() if name != "layers.2.weight"})
    assert found.counts == {"missing": 1, "equal": 2}


def norms(count: int) -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    return {f"{at}.ln.weight": 1 + 0.01 * torch.randn(8, generator=generator) for at in range(count)}


def test_two_exchanged_norms_are_named_as_exchanged(tmp_path: Path) -> None:
    state = norms(3)
    other = {**state, "0.ln.weight": state["1.ln.weight"], "1.ln.weight": state["0.ln.weight"]}
    found = states_compared(tmp_path, state, other)
    assert found.counts == {"exchanged": 2, "equal": 1}
    details = {row.name: row.detail for row in found.of("exchanged")}
    assert "1.ln.weight" in details["0.ln.weight"]
    assert "0.ln.weight" in details["1.ln.weight"]


def test_layers_in_another_order_are_a_circle_of_exchanges(tmp_path: Path) -> None:
    state = norms(4)
    names = list(state)
    other = {name: state[names[(at + 1) % 4]] for at, name in enumerate(names)}
    assert states_compared(tmp_path, state, other).counts == {"exchanged": 4}


def test_one_that_was_written_over_is_changed_and_has_its_source(tmp_path: Path) -> None:
    state = norms(3)
    found = states_compared(tmp_path, state, {**state, "0.ln.weight": state["2.ln.weight"].clone()})
    (row,) = found.of("changed")
    assert (row.name, "2.ln.weight" in row.detail) == ("0.ln.weight", True)


def test_exchanged_states_of_an_optimizer_are_named(tmp_path: Path) -> None:
    state, other = tied(), tied()
    states = other["optimizer"]["state"]
    states[1]["exp_avg"], states[3]["exp_avg"] = states[3]["exp_avg"], states[1]["exp_avg"]
    found = states_compared(tmp_path, state, other)
    assert sorted(row.name for row in found.of("exchanged")) == ["layers.0.weight.exp_avg", "layers.1.weight.exp_avg"]


def averaged(change: Any = None) -> dict[str, Any]:
    """Weights and an average of them, under a name of its own, after a few steps."""
    state = without_head(tied()["model"])
    generator = torch.Generator().manual_seed(3)
    average = {name: one * 0.9 + 0.01 * torch.randn(one.shape, generator=generator) for name, one in state.items()}
    saved = {"net": state, "shadow": average, "scaler": {"scale": torch.tensor(1024.0)}, "steps": torch.tensor(1.0)}
    if change is not None:
        change(saved)
    return saved


def goes_on_with_the_average(saved: dict[str, Any]) -> None:
    """A training is resumed from a checkpoint that was written in an evaluation with the average in the model."""
    saved["net"] = dict(saved["shadow"])


def begins_the_average_anew(saved: dict[str, Any]) -> None:
    """The average is made of the weights when the training is resumed, before or in place of being loaded."""
    saved["shadow"] = dict(saved["net"])


@pytest.mark.parametrize(
    ("change", "at", "has"),
    [(goes_on_with_the_average, "", "shadow."), (begins_the_average_anew, "shadow.", "")],
    ids=["weights are the average", "the average is the weights"],
)
def test_weights_and_their_average_that_were_mixed_up_are_named(tmp_path: Path, change: Any, at: str, has: str) -> None:
    found = states_compared(tmp_path, averaged(), averaged(change))
    rows = {row.name: row for row in found.rows if row.kind != "equal"}
    assert rows
    for name, row in rows.items():
        weight = name.removeprefix("shadow.")
        assert name == f"{at}{weight}"
        assert row.detail == said("second-has-value-of", f"{has}{weight}")


def test_a_single_number_is_not_that_of_another_place(tmp_path: Path) -> None:
    changed = averaged(lambda saved: saved["scaler"].update(scale=torch.tensor(1.0)))
    (row,) = [one for one in states_compared(tmp_path, averaged(), changed).rows if one.kind != "equal"]
    assert "has here what" not in row.detail
