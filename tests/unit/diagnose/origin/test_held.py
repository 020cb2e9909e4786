"""What modules keep, what writes leave, and what modules give back is named as what it is."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from support.coded_texts import mentions
from torch import nn
from unit.diagnose.real_pairs import Training, compare_trainings

from msprobe.messages import said

MODES = ("statistics", "digest")


def training(
    model: Callable[[], nn.Module], change: Callable[[Any], Any] = lambda model: None
) -> Callable[[], Training]:
    """A training of a model; ``change``: what is done to it before."""

    def build() -> Training:
        made = model()
        with torch.no_grad():
            change(made)
        optimizer = torch.optim.SGD(made.parameters(), lr=1e-2)

        def step(number: int) -> None:
            x = torch.randn(6, 8, generator=torch.Generator().manual_seed(number))
            optimizer.zero_grad()
            made(x).pow(2).mean().backward()
            optimizer.step()

        return made, step

    return build


def normed() -> nn.Module:
    return nn.Sequential(nn.Linear(8, 8), nn.BatchNorm1d(8), nn.Linear(8, 4))


def spectral() -> nn.Module:
    inner = nn.utils.parametrizations.spectral_norm(nn.Linear(8, 8))
    return nn.Sequential(nn.Linear(8, 8), inner, nn.Linear(8, 4))


class Scaled(nn.Module):
    """A layer that multiplies by a table it holds."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(8, 8)
        self.register_buffer("table", torch.linspace(0.5, 2.0, 8))

    def forward(self, x: torch.Tensor) -> Any:
        return self.linear(x * self.table)


@pytest.mark.parametrize("mode", MODES)
def test_a_running_average_is_a_buffer(tmp_path: Path, mode: str) -> None:
    verdict = compare_trainings(
        tmp_path, training(normed, lambda m: m[1].running_mean.add_(0.5)), training(normed), mode=mode
    )
    found = verdict.findings[0]
    assert (verdict.status, found.kind, found.where) == ("diverged", "initial_weights", "1.running_mean")


@pytest.mark.parametrize("mode", MODES)
def test_a_counter_is_a_buffer_and_has_no_effect_by_itself(tmp_path: Path, mode: str) -> None:
    change = training(normed, lambda m: m[1].num_batches_tracked.add_(5))
    verdict = compare_trainings(tmp_path, change, training(normed), mode=mode)
    found = verdict.findings[0]
    assert (verdict.status, found.kind) == ("harmless", "initial_weights")
    assert mentions(found.message, "a-buffer-of-module")
    assert '"1"' in found.message


def test_a_vector_of_a_spectral_norm_is_a_buffer(tmp_path: Path) -> None:
    def turn(model: Any) -> None:
        vectors = model[1].parametrizations.weight[0]
        for one in (vectors._u, vectors._v):
            one.copy_(nn.functional.normalize(torch.linspace(-0.3, 1.0, 8), dim=0))

    verdict = compare_trainings(tmp_path, training(spectral, turn), training(spectral))
    found = verdict.findings[0]
    assert (verdict.status, found.kind) == ("diverged", "initial_weights")
    assert mentions(found.message, "a-buffer-of-module")
    assert '"1.parametrizations.weight.0"' in found.message


@pytest.mark.parametrize("mode", MODES)
def test_a_table_that_a_module_holds_is_no_data(tmp_path: Path, mode: str) -> None:
    def model() -> nn.Module:
        return nn.Sequential(Scaled())

    verdict = compare_trainings(tmp_path, training(model, lambda m: m[0].table.mul_(1.1)), training(model), mode=mode)
    found = verdict.findings[0]
    assert (verdict.status, found.kind, found.module) == ("diverged", "initial_weights", "0")
    assert mentions(found.message, "a-buffer-of-module")
    assert '"0"' in found.message


def test_the_batch_is_data_also_inside_a_module(tmp_path: Path) -> None:
    """Each module around the call was given it."""

    def model() -> nn.Module:
        return nn.Sequential(Scaled())

    def build() -> Training:
        made = model()
        return made, lambda number: made(torch.full((6, 8), 0.3).uniform_(generator=torch.Generator().manual_seed(9)))

    verdict = compare_trainings(tmp_path, build, training(model))
    assert verdict.findings[0].kind != "initial_weights"


def test_recorded_buffers_have_their_names(tmp_path: Path) -> None:
    def model() -> nn.Module:
        return nn.Sequential(Scaled())

    change = training(model, lambda m: m[0].table.mul_(1.1))
    verdict = compare_trainings(tmp_path, change, training(model), buffers=True)
    assert verdict.findings[0].where == "0.table"
    message = verdict.findings[0].message
    assert message.startswith('buffer "0.table" ')
    assert mentions(message, "buffer-differs", when="before the first step")


class Holding(nn.Module):
    """A model that has buffers and a parameter besides its layers."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(8, 8)
        self.shift = nn.Parameter(torch.linspace(-1.0, 1.0, 8))
        for name, value in (
            ("table", torch.linspace(0.5, 2.0, 8)),
            ("running_mean", torch.zeros(8)),
            ("running_var", torch.ones(8)),
            ("average", torch.linspace(0.1, 0.2, 8)),
        ):
            self.register_buffer(name, value)

    def forward(self, x: torch.Tensor) -> Any:
        y = self.linear(x * self.table) + self.shift
        with torch.no_grad():
            self.average.lerp_(y.mean(0), 0.1)  # type: ignore[operator]
        return nn.functional.batch_norm(y, self.running_mean, self.running_var, training=True)  # type: ignore[arg-type]


@pytest.mark.parametrize("level", ["L1", "mix"])
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", ["table", "running_mean", "running_var", "average"])
def test_a_buffer_of_the_model_itself_has_its_name(tmp_path: Path, name: str, mode: str, level: str) -> None:
    changed = training(Holding, lambda m: getattr(m, name).add_(0.25))
    verdict = compare_trainings(tmp_path, changed, training(Holding), mode=mode, level=level)
    found = verdict.findings[0]
    assert (verdict.status, found.kind, found.where) == ("diverged", "initial_weights", name)
    assert found.message.startswith(f'buffer "{name}" ')
    assert mentions(found.message, "buffer-differs", when="before the first step")


@pytest.mark.parametrize("level", ["L1", "mix"])
@pytest.mark.parametrize("mode", MODES)
def test_a_parameter_of_the_model_itself_has_its_name(tmp_path: Path, mode: str, level: str) -> None:
    changed = training(Holding, lambda m: m.shift.mul_(1.5))
    verdict = compare_trainings(tmp_path, changed, training(Holding), mode=mode, level=level)
    found = verdict.findings[0]
    assert (verdict.status, found.kind, found.where) == ("diverged", "initial_weights", "shift")
    assert compare_trainings(tmp_path / "same", training(Holding), training(Holding), mode=mode).status == "agree"


class Writing(nn.Module):
    """Writes to a part of what it has made, and takes the whole of it."""

    def __init__(self, how: str, by: float) -> None:
        super().__init__()
        self.first, self.last, self.how, self.by = nn.Linear(8, 8), nn.Linear(8, 4), how, by

    def forward(self, x: torch.Tensor) -> Any:
        y = self.first(x)
        z = y.clone()
        value = torch.tanh(y[0] * self.by)
        if self.how == "row":
            z[1] = value
        elif self.how == "mask":
            z[z > 0.3] = value.detach().sum()
        elif self.how == "view":
            z.view(-1)[3:11].mul_(value.detach())
        return self.last(torch.tanh(z))


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("how", ["row", "mask", "view"])
def test_what_a_write_leaves_is_its_result(tmp_path: Path, how: str, mode: str) -> None:
    """The factor is to blame, and what follows from it is not called data from outside."""
    pair = (training(lambda: Writing(how, 0.5)), training(lambda: Writing(how, 0.7)))
    verdict = compare_trainings(tmp_path, *pair, mode=mode)
    assert [(one.kind, one.entry) for one in verdict.findings] == [("argument", "Tensor.__mul__.0.forward")]


class Returning(nn.Module):
    """Gives back one of the tensors that it has made, or was given."""

    def __init__(self, which: str) -> None:
        super().__init__()
        self.a, self.b, self.which = nn.Linear(8, 8), nn.Linear(8, 8), which

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        p = self.a(x)
        q = self.b(torch.tanh(p))
        return {"x": x, "p": p, "q": q, "sum": q + p}[self.which]


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(
    ("mine", "told"),
    [
        ("p", "is the result of Functional.linear.0.forward; in the reference it is the result of Functional.linear.1"),
        ("sum", "is the result of Tensor.__add__.0.forward; in the reference it is the result of Functional.linear.1"),
        ("x", "is its input (input.0); in the reference it is the result of Functional.linear.1.forward"),
    ],
)
def test_which_call_a_modules_result_came_from(tmp_path: Path, mine: str, told: str, mode: str) -> None:
    def model(which: str) -> Callable[[], nn.Module]:
        return lambda: nn.Sequential(Returning(which), nn.Linear(8, 4))

    verdict = compare_trainings(tmp_path, training(model(mine)), training(model("q")), mode=mode)
    found = verdict.findings[0]
    assert (found.kind, found.entry) == ("structure", "Module.0.Returning.forward.0")
    assert told in found.message


def test_the_public_function_around_a_private_one_is_named(tmp_path: Path) -> None:
    def clipped(most: float) -> Callable[[], Training]:
        def build() -> Training:
            model = normed()
            optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)

            def step(number: int) -> None:
                model(torch.randn(6, 8, generator=torch.Generator().manual_seed(number))).pow(2).mean().backward()
                if most:
                    nn.utils.clip_grad_norm_(model.parameters(), most)
                optimizer.step()

            return model, step

        return build

    for most in (0.0, 1e-3):
        verdict = compare_trainings(tmp_path / str(most), clipped(most), clipped(1e-2))
        found = verdict.findings[0]
        assert found.evidence["called_in"] == "clip_grad_norm_"
        assert "(in clip_grad_norm_)" in found.message


def test_an_argument_by_position_has_its_name(tmp_path: Path) -> None:
    def model(eps: float) -> Callable[[], nn.Module]:
        return lambda: nn.Sequential(nn.LayerNorm(8, eps=eps), nn.Linear(8, 4))

    found = compare_trainings(tmp_path, training(model(0.1)), training(model(0.2))).findings[0]
    assert found.message == said("argument-differs", "Functional.layer_norm.0.forward", "input.4 (eps)", "0.1", "0.2")
    assert found.where == "Functional.layer_norm.0.forward, input.4 (eps)"
    assert found.evidence["arguments"][0]["name"] == "eps"
