"""What goes into modules and comes out: containers, repeated calls, in-place work, evaluation, checkpointing."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint
from unit.monitor.torch import monitored as shared
from unit.monitor.torch.monitored import SIX, Attach, Measured, assert_row, monitored, number

way = shared.way
XY = {"xy_distribution": True, "ops": SIX, "squash_name": False}


def train_of(
    build: Callable[[], nn.Module],
    steps: int = 2,
    accumulated: int = 1,
    loss_of: Callable[[Any], torch.Tensor] = lambda out: out.square().mean(),
    batch: Callable[[], Any] = lambda: torch.randn(3, 4),
    between: Callable[[nn.Module], None] = lambda model: None,
) -> shared.Train:
    """Train any model with SGD."""

    def train(attach: Attach) -> Any:
        torch.manual_seed(0)
        model = build()
        sgd = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
        attach(model, sgd)
        for _ in range(steps):
            for _ in range(accumulated):
                (loss_of(model(batch())) / accumulated).backward()
            sgd.step()
            sgd.zero_grad()
            between(model)
        return [model, sgd]

    return train


class Unusual(nn.Module):
    """Returns what acceptance check 15 asks for."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = _Many()
        self.fc = nn.Linear(4, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out = self.inner(self.fc(x))
        loss: torch.Tensor = out[0].square().mean()
        return loss


class _Many(nn.Module):
    def forward(self, x: torch.Tensor) -> Any:
        return x * 2, x > 0, 7, [x + 1], torch.tensor(math.inf), torch.zeros(0, 4), None


def test_unusual_results(tmp_path: Path, way: str) -> None:
    found = monitored(tmp_path, XY, train_of(Unusual))
    rows = {row["name"]: row for row in found.rows("actv", step=0) if row["name"].startswith("inner.")}
    assert list(rows) == ["inner.input", *(f"inner.output_{end}" for end in ("0", "1", "2", "3_0", "4", "5", "6"))]
    mask = rows["inner.output_1"]
    assert (mask["dtype"], mask["shape"], mask["zeros"], mask["nans"]) == ("torch.bool", "[3, 4]", "nan", "0")
    assert number(mask["norm"]) == pytest.approx(math.sqrt(12 * number(mask["mean"])), rel=1e-6)
    assert number(mask["min"]) in (0, 1)
    for end in ("2", "6"):
        assert {rows[f"inner.output_{end}"][op] for op in (*SIX, "shape", "dtype")} == {"nan"}
    infinite = rows["inner.output_4"]
    assert [infinite[op] for op in SIX] == ["inf", "inf", "inf", "inf", "0", "0"]
    assert infinite["shape"] == "[]"
    empty = rows["inner.output_5"]
    assert [empty[op] for op in SIX] == ["nan", "nan", "nan", "0", "0", "nan"]
    assert empty["shape"] == "[0, 4]"


@dataclass
class Answer:
    logits: torch.Tensor
    hidden: dict[str, Any]
    loss: Any = None


class Named(NamedTuple):
    first: torch.Tensor
    second: torch.Tensor


class Containers(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(4, 4)
        self.answer = _Answers()
        self.named = _Names()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        answer = self.answer(self.fc(x), [x, {"mask": x > 0}], scale=2.0, other=(x, None))
        named = self.named({"a": answer.logits, "b": {"c": answer.hidden["states"][1]}})
        out: torch.Tensor = named.first + named.second
        return out


class _Answers(nn.Module):
    def forward(self, x: torch.Tensor, more: Any, scale: float, other: Any) -> Answer:
        return Answer(x * scale, {"states": [x, x + more[0]]})


class _Names(nn.Module):
    def forward(self, given: dict[str, Any]) -> Named:
        return Named(given["a"] + 1, given["b"]["c"] * 3)


def test_dicts_dataclasses_and_nested_lists(tmp_path: Path, way: str) -> None:
    found = monitored(tmp_path, XY, train_of(Containers))
    rows = {row["name"]: row for row in found.rows("actv", step=0)}
    for name in (
        "answer.input_0",
        "answer.input_1_0",
        "answer.input_1_1.mask",
        "answer.input_2_0",
        "answer.output.logits",
        "answer.output.hidden.states_0",
        "answer.output.hidden.states_1",
        "named.input_0.a",
        "named.input_0.b.c",
    ):
        assert rows[name]["shape"] == "[3, 4]", sorted(rows)
    assert len(found.rows("actv", step=0)) == len(rows)
    gradients = {row["name"]: row for row in found.rows("actv_grad", step=0)}
    assert number(gradients["answer.output.logits"]["norm"]) > 0
    assert number(gradients["answer.output.hidden.states_1"]["norm"]) > 0
    assert number(gradients["named.input_0.b.c"]["norm"]) > 0


class Twice(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(4, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = self.fc(self.fc(x).relu())
        return out


def test_a_module_called_twice_has_rows_of_both_calls(tmp_path: Path, way: str) -> None:
    found = monitored(tmp_path, XY, train_of(Twice, accumulated=2), grad_acc_steps=2)
    for quantity in ("actv", "actv_grad"):
        rows = [(row["name"], row["micro_step"]) for row in found.rows(quantity, step=1)]
        names = ["fc.input", "fc.output", "fc#1.input", "fc#1.output", ".input", ".output"]
        assert sorted(rows) == sorted((name, micro) for name in names for micro in "01")
    rows_of = {row["name"]: row for row in found.rows("actv", step=0, micro_step=0)}
    assert rows_of["fc.input"]["norm"] == rows_of[".input"]["norm"]
    assert rows_of["fc#1.output"]["norm"] == rows_of[".output"]["norm"]


class InPlace(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(4, 4)
        self.relu = nn.ReLU(inplace=True)
        self.last = nn.Linear(4, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = self.last(self.relu(self.fc(x)))
        return out


def test_the_input_of_a_module_that_works_in_place_is_that_before_it(tmp_path: Path, way: str) -> None:
    found = monitored(tmp_path, XY, train_of(InPlace))
    rows = {row["name"]: row for row in found.rows("actv", step=0)}
    same = ("norm", "min", "max", "mean")
    assert [rows["relu.input"][op] for op in same] == [rows["fc.output"][op] for op in same]
    assert number(rows["relu.input"]["min"]) < 0
    assert number(rows["relu.output"]["min"]) == 0
    gradients = {row["name"]: row for row in found.rows("actv_grad", step=0)}
    assert [gradients["relu.output"][op] for op in same] == [gradients["last.input"][op] for op in same]


def test_gradients_of_activations_are_those_of_autograd(tmp_path: Path, way: str) -> None:
    kept: dict[str, torch.Tensor] = {}

    class Keeping(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first = nn.Linear(4, 4)
            self.second = nn.Linear(4, 2)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            middle = self.first(x)
            middle.register_hook(lambda g: kept.__setitem__("first.output", g.clone()))
            out: torch.Tensor = self.second(middle.tanh())
            out.register_hook(lambda g: kept.__setitem__("second.output", g.clone()))
            return out

    found = monitored(tmp_path, XY, train_of(Keeping, steps=1))
    for name, gradient in kept.items():
        assert_row(next(iter(found.rows("actv_grad", name=name))), gradient)


def test_evaluation_between_steps_changes_nothing(tmp_path: Path, way: str) -> None:
    def evaluate(model: nn.Module) -> None:
        model.eval()
        with torch.no_grad():
            for _ in range(3):
                model(torch.ones(5, 4))
        model(torch.ones(5, 4))
        model.train()

    config = {**XY, "wg_distribution": True}
    found = monitored(tmp_path, config, train_of(InPlace, steps=3, accumulated=2, between=evaluate), grad_acc_steps=2)
    for step in range(3):
        rows = found.rows("actv", step=step)
        assert {row["micro_step"] for row in rows} == {"0", "1"}
        assert len(rows) == 16
        assert {row["shape"].split(",")[0] for row in rows} == {"[3"}


def test_passes_in_evaluation_mode_have_gradients(tmp_path: Path) -> None:
    """A model that is fine-tuned in evaluation mode has no rows of activations, and has those of their gradients."""
    found = monitored(tmp_path, XY, train_of(lambda: InPlace().eval(), accumulated=2), grad_acc_steps=2)
    assert found.quantities == {"actv_grad"}
    rows = [(row["name"], row["micro_step"]) for row in found.rows("actv_grad", step=1)]
    assert len(set(rows)) == len(rows) == 16


class Checkpointed(nn.Module):
    def __init__(self, reentrant: bool) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(nn.Sequential(nn.Linear(4, 4), nn.Dropout(0.3), nn.Tanh()) for _ in range(2))
        self.last = nn.Linear(4, 2)
        self.reentrant = reentrant

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x.detach().requires_grad_()
        for block in self.blocks:
            x = checkpoint(block, x, use_reentrant=self.reentrant)
        out: torch.Tensor = self.last(x)
        return out


@pytest.mark.parametrize("reentrant", [True, False])
@pytest.mark.parametrize("accumulated", [1, 3])
def test_recomputation_adds_no_rows(tmp_path: Path, way: str, reentrant: bool, accumulated: int) -> None:
    train = train_of(lambda: Checkpointed(reentrant), accumulated=accumulated)
    found = monitored(tmp_path, {**XY, "wg_distribution": True}, train, grad_acc_steps=accumulated)
    modules = ["blocks.0", "blocks.0.0", "blocks.0.1", "blocks.0.2", "blocks.1", "blocks.1.0", "last", ""]
    for step in (0, 1):
        for quantity in ("actv", "actv_grad"):
            rows = [(row["name"], row["micro_step"]) for row in found.rows(quantity, step=step)]
            assert len(set(rows)) == len(rows) == 20 * accumulated, quantity
            for module in modules:
                for micro in range(accumulated):
                    assert (f"{module}.input", str(micro)) in rows
        gradients = {(r["name"], r["micro_step"]): r for r in found.rows("actv_grad", step=step)}
        for micro in range(accumulated):
            ends = gradients["last.input", str(micro)]["norm"], gradients["blocks.1.output", str(micro)]["norm"]
            assert ends[0] == ends[1]
            inner = gradients["blocks.1.2.output", str(micro)]["norm"]
            assert inner == ends[0], "the rows of recomputed modules are of the micro step that goes backward"


def test_chunks_of_a_virtual_pipeline_have_stages(tmp_path: Path) -> None:
    """Each chunk counts its own micro batches, in whatever order they run."""

    def train(attach: Attach) -> Any:
        torch.manual_seed(0)
        chunks = [nn.Sequential(nn.Linear(4, 4), nn.Tanh()), nn.Sequential(nn.Linear(4, 2))]
        adam = torch.optim.Adam([one for chunk in chunks for one in chunk.parameters()], lr=0.01)
        attach(chunks, adam)
        for interleaved in (True, False):
            batches = [torch.randn(3, 4) for _ in range(2)]
            if interleaved:
                for batch in batches:
                    chunks[1](chunks[0](batch)).square().mean().backward()
            else:
                middles = [chunks[0](batch) for batch in batches]
                for middle in middles:
                    chunks[1](middle).square().mean().backward()
            adam.step()
            adam.zero_grad()
        return [*chunks, adam]

    config = {**XY, "wg_distribution": True, "targets": {}}
    found = monitored(tmp_path, config, train, grad_acc_steps=2)
    for step in (0, 1):
        rows = found.rows("actv", step=step)
        assert sorted((row["vpp_stage"], row["name"], row["micro_step"]) for row in rows) == sorted(
            (stage, f"{module}.{side}", micro)
            for stage, modules in (("0", ["0", "1", ""]), ("1", ["0", ""]))
            for module in modules
            for side in ("input", "output")
            for micro in "01"
        )
        names = [(row["vpp_stage"], row["name"]) for row in found.rows("grad_reduced", step=step)]
        assert names == [("0", "0.weight"), ("0", "0.bias"), ("1", "0.weight"), ("1", "0.bias")]
    one = monitored(tmp_path, {**config, "targets": {"1:0": {}}}, train, grad_acc_steps=2)
    assert {row["vpp_stage"] for row in one.rows("actv")} == {"1"}


def test_a_step_without_a_forward_pass_has_no_stale_rows(tmp_path: Path) -> None:
    def train(attach: Attach) -> Any:
        torch.manual_seed(0)
        model = nn.Linear(4, 2)
        sgd = torch.optim.SGD(model.parameters(), lr=0.1)
        attach(model, sgd)
        for step in range(3):
            if step != 1:
                model(torch.randn(3, 4)).square().mean().backward()
            sgd.step()
            sgd.zero_grad()
        return [model]

    found = monitored(tmp_path, {**XY, "wg_distribution": True}, train)
    for quantity in ("actv", "actv_grad", "grad_reduced", "grad_unreduced"):
        assert found.steps(quantity) == [0, 2]


def test_short_names(tmp_path: Path) -> None:
    class Deep(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embedding = nn.Linear(4, 4)
            self.layers = nn.ModuleList([nn.Linear(4, 4), nn.Linear(4, 4)])

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            x = self.embedding(x)
            for layer in self.layers:
                x = layer(x)
            return x

    config = {**XY, "wg_distribution": True, "squash_name": True}
    found: Measured = monitored(tmp_path, config, train_of(Deep))
    assert found.names("grad_reduced") == ["weight", "bias", "0.weight", "0.bias", "1.weight", "1.bias"]
    assert set(found.names("actv")) == {
        f"{module}.{side}" for module in ("embedding", "0", "1", "") for side in ("input", "output")
    }
