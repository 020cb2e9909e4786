"""What is written otherwise and computes the same is no finding in lockstep; a bug in the midst of it is."""

from __future__ import annotations

import json
import math
from collections.abc import Collection
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from msprobe.diagnose.evidence import Listed
from msprobe.diagnose.findings import Finding
from msprobe.diagnose.origin.ledger import Suspect
from msprobe.lockstep import account_files
from msprobe.lockstep.account import StepAccount
from msprobe.lockstep.confirm import confirmed, named_calls
from msprobe.lockstep.healthy import Healthy
from msprobe.lockstep.regions import Region, Regions
from msprobe.pytorch import PrecisionDebugger

from .trainings import entries, in_lockstep, record

WIDTH, HEADS, LENGTH = 8, 2, 6


@pytest.fixture(autouse=True)
def _no_debugger_is_left() -> Any:
    yield
    PrecisionDebugger.reset()


class Activation(nn.Module):
    """A module without parameters."""

    def __init__(self, ways: Collection[str]) -> None:
        super().__init__()
        self.ways = ways

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """GELU."""
        return F.gelu(x, approximate="tanh" if "gelu" in self.ways else "none")


class Attention(nn.Module):
    """Attention in several forms; ``ways`` says what is written otherwise, and what is wrong."""

    def __init__(self, ways: Collection[str]) -> None:
        super().__init__()
        self.ways = ways
        self.activation = Activation(ways)
        self.q, self.k, self.v, self.out = (nn.Linear(WIDTH, WIDTH) for _ in range(4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Causal attention."""
        ways = self.ways
        size = x.shape[0], x.shape[1], HEADS, WIDTH // HEADS
        scale = 1.0 / math.sqrt(WIDTH // HEADS)
        if "one product" in ways:
            parts = (self.q, self.k, self.v)
            weight, bias = torch.cat([p.weight for p in parts]), torch.cat([p.bias for p in parts])
            q, k, v = (y.view(size).transpose(1, 2) for y in F.linear(x, weight, bias).chunk(3, dim=-1))
        else:
            q, k, v = (part(x).view(size).transpose(1, 2) for part in (self.q, self.k, self.v))
        mask = torch.ones(LENGTH, LENGTH, dtype=torch.bool).tril()
        if "scaled before" in ways:
            scores = (q * scale) @ k.transpose(-2, -1)
        else:
            scores = q @ k.transpose(-2, -1)
            scores = scores * (scale * (1.1 if "scale" in ways else 1.0))
        if "smallest number" in ways:
            scores = scores.masked_fill(~mask, torch.finfo(scores.dtype).min)
        else:
            scores = scores.masked_fill(~mask, float("-inf"))
        probs = torch.softmax(scores, dim=-1)
        if "cut" in ways:
            probs = probs.detach()
        if "twice" in ways:
            v = v * 1.01
        mixed = (probs @ v).transpose(1, 2).reshape(x.shape)
        return self.out(self.activation(mixed))


def train(ways: Collection[str] = (), passes: int = 2, seed: int = 0, watched: bool = True) -> list[torch.Tensor]:
    """Train for a step; the batch of four rows goes through the model in so many passes. The weights."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, WIDTH), Attention(ways), nn.Linear(WIDTH, 3))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    torch.manual_seed(seed)
    batch, goals = torch.randn(4, LENGTH, 4), torch.randint(0, 3, (4, LENGTH))
    if watched:
        PrecisionDebugger.start(model)
    for rows, goal in zip(batch.chunk(passes), goals.chunk(passes), strict=True):
        loss = F.cross_entropy(model(rows).flatten(0, 1), goal.flatten(), reduction="sum")
        (loss / goals.numel()).backward()
    optimizer.step()
    if watched:
        PrecisionDebugger.stop()
        PrecisionDebugger.step()
    return [weight.detach().clone() for weight in model.parameters()]


@pytest.fixture(scope="module")
def reference(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The training as it was recorded."""
    return record(train, tmp_path_factory.mktemp("recorded") / "reference")


def test_against_its_own_recording_a_training_stays_as_it_is_bit_for_bit(reference: Path, tmp_path: Path) -> None:
    found: list[list[torch.Tensor]] = []

    verdict = in_lockstep(lambda: found.append(train()), reference, tmp_path / "own")

    assert verdict.status == "agree"
    assert all(map(torch.equal, found[0], train(watched=False)))


def test_another_batch_is_the_only_finding_and_weights_become_the_reference_s(reference: Path, tmp_path: Path) -> None:
    found: list[list[torch.Tensor]] = []

    verdict = in_lockstep(lambda: found.append(train(("gelu",), seed=5)), reference, tmp_path / "own")

    kinds = {one.kind for one in verdict.findings if not one.harmless}
    assert kinds == {"data", "argument"}
    assert "Functional.gelu.0.forward" in entries(verdict)
    assert all(map(torch.equal, found[0], train(watched=False)))


@pytest.mark.parametrize("ways", [("scaled before", "smallest number"), ("one product",)])
def test_what_is_written_otherwise_and_comes_to_the_same_is_harmless(
    ways: tuple[str, ...], reference: Path, tmp_path: Path
) -> None:
    verdict = in_lockstep(partial(train, ways), reference, tmp_path / "own")

    assert verdict.status in ("agree", "harmless")
    assert verdict.exit_code == 0
    assert not entries(verdict)
    assert verdict.summary["lockstep"]["regions"] > 0
    assert verdict.summary["lockstep"]["regions_healthy"] == verdict.summary["lockstep"]["regions"]


def test_other_micro_batches_are_harmless(reference: Path, tmp_path: Path) -> None:
    verdict = in_lockstep(partial(train, passes=4), reference, tmp_path / "own")

    assert not entries(verdict)


@pytest.mark.parametrize(
    ("ways", "named"),
    [
        (("scaled before", "gelu"), {"Functional.gelu.0.forward"}),
        (("scaled before", "twice"), {"Tensor.__mul__.1.forward"}),
        (("scale", "gelu"), {"Tensor.__mul__.0.forward", "Functional.gelu.0.forward"}),
        (("cut",), {"Tensor.detach.0.forward"}),
    ],
)
def test_a_bug_in_the_midst_of_what_is_written_otherwise_is_named(
    ways: tuple[str, ...], named: set[str], reference: Path, tmp_path: Path
) -> None:
    verdict = in_lockstep(partial(train, ways), reference, tmp_path / "own")

    assert verdict.status == "diverged"
    assert named <= entries(verdict)


@pytest.mark.parametrize("direction", ["forward", "backward"])
def test_a_module_that_a_verdict_names_is_put_right_as_a_whole(direction: str, tmp_path: Path) -> None:
    reference = record(partial(train, passes=1), tmp_path / "reference")
    entry = f"Module.1.activation.Activation.{direction}.0"
    finding = {"kind": "computation", "entry": entry, "message": "it differs"}
    verdict = tmp_path / "verdict.json"
    verdict.write_text(json.dumps({"findings": [finding], "reference": str(reference)}))
    named = named_calls(verdict, [1])

    in_lockstep(partial(train, ("gelu",), passes=1), reference, tmp_path / "own", only=",".join(named.entries))
    found = confirmed(named, tmp_path / "own")

    # In the forward pass it is all that is wrong; with its gradients alone the result is still another.
    assert found.is_confirmed is (direction == "forward")
    counts = account_files.read(tmp_path / "own")["counts"]
    assert counts["gradients_replaced"] > 0
    assert ("results_replaced" in counts) is (direction == "forward")


def test_regions_that_meet_are_one_and_one_disagreement_stays() -> None:
    regions = Regions(2.0**-23)
    first, second, third = (torch.zeros(2) for _ in range(3))
    regions.enter("Module.a.A.forward.0")
    one = regions.join("Torch.mul.0.forward", (), (), begins=True)
    regions.keep(first, one, 0)
    regions.enter("Module.a.b.B.forward.0")
    other = regions.join("Torch.mul.1.forward", (), (), begins=True)
    regions.keep(second, other, 0)
    other.end("Torch.add.0.forward", False)
    other.end("Torch.add.0.forward", True)
    owned = [own for own in (regions.own(first), regions.own(second)) if own is not None]

    met = regions.join("Torch.add.1.forward", owned, (first, second), begins=False)

    assert [met] == list(regions)
    assert met.passes == ("Module.a.A.forward.0",)
    assert met.ends == {"Torch.add.0.forward": False}
    assert list(met.calls) == ["Torch.mul.0.forward", "Torch.mul.1.forward", "Torch.add.1.forward"]
    assert regions.own(third) is None


@pytest.mark.parametrize("further", ["", "Tensor.mul.0.backward", "Module.a.A.forward.0", "Optimizer.SGD.0.forward"])
def test_calls_are_excused_by_ends_that_report_them(further: str) -> None:
    regions = Regions(2.0**-23)
    scaled, first, second = (torch.zeros(2) for _ in range(3))

    def made_of(tensors: list[torch.Tensor], name: str, result: torch.Tensor) -> None:
        owned = [own for own in map(regions.own, tensors) if own is not None]
        regions.keep(result, regions.join(name, owned, tensors, begins=True), 0, call=name)

    # One call scales the gradients of two parameters; that of the second one arrives where the reference has it.
    made_of([], "Torch._foreach_mul_.0.forward", scaled)
    made_of([scaled], "Tensor.__add__.0.forward", first)
    made_of([scaled], "Tensor.__add__.1.forward", second)
    own = regions.own(second)
    assert own is not None
    own.region.root.arrive("Tensor.sub_.1.forward", "input.1", own.call)
    (region,) = regions
    if further:  # these tell of all that came before
        region.end(further, True)

    healthy = Healthy(StepAccount([region.to_json()]))
    assert region.unreported == ([] if further else ["Tensor.__add__.0.forward"])
    for number, is_told in enumerate((bool(further), True)):
        name = f"Tensor.__add__.{number}.forward"
        finding = Finding("structure", "it does something else", name, name)
        assert healthy.explains(Suspect(finding, 0.0, clear=True)) is is_told


def test_an_account_of_an_earlier_version_is_read_as_it_was_meant() -> None:
    region = Region((), calls={"Tensor.__add__.0.forward": None}).to_json()
    region["untold"] = ["Tensor.__add__.0.forward"]
    del region["unreported"]
    content = {**StepAccount().to_json(), "regions": [region]}
    assert StepAccount.from_json(content).regions[0]["unreported"] == ["Tensor.__add__.0.forward"]


@pytest.mark.parametrize(("weights", "is_excused"), [((), True), (("fc.weight",), False)])
def test_a_gradient_may_take_another_way_but_weights_without_any_are_never_excused(
    weights: tuple[str, ...], is_excused: bool
) -> None:
    entry = "Functional.linear.0.forward"
    region = Region((), followed={entry: None}).to_json()
    finding = Finding(
        "missing_gradient", "no gradient reaches it", entry, entry, facts=(Listed("parameters", weights),)
    )
    assert Healthy(StepAccount([region])).explains(Suspect(finding, 0.0, clear=True)) is is_excused


def test_types_of_few_digits_leave_no_more_to_a_region_than_rounding_does() -> None:
    fine, coarse = (Region((), unit, {str(number): None for number in range(9)}) for unit in (2.0**-23, 2.0**-7))

    assert fine.allowed(2.0**-23) < 1e-5
    assert coarse.allowed(2.0**-7) < 0.03
    assert coarse.allowed(2.0**-7, gradient=True) < 0.06
