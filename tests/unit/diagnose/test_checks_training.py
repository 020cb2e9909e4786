"""Checks of a step as a whole: calls that raise, parameters that no gradient reaches, ranks that do the same work."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.checked import call, found, module, of, of_ranks, one, optimizer, plain, some, write
from support.coded_texts import mentions
from support.hand_made import backward, tensor, write_part

from msprobe.diagnose.check import CHECKS, check_run
from msprobe.diagnose.steps.timeline import Timeline
from msprobe.messages import explained, said
from msprobe.report.check_text import check_text

# ---------------------------------------------------------------- errors


def failing(after: bool) -> tuple[dict[str, Any], dict[str, Any]]:
    linear = {**call([some(1, 3, 5), some(2, 8, 4)], None), "error": "RuntimeError: shapes cannot be\nmultiplied"}
    data = {
        "Torch.relu.0.forward": call([some(3, 3, 5)], some(1, 3, 5)),
        "Functional.linear.0.forward": {**linear, "msprobe": {"order": 1, "source": "/home/me/train.py:12"}},
        "Module.m.Linear.forward.0": {**module([some(1, 3, 5)], None), "error": "RuntimeError: shapes cannot be"},
        "Module.m.Linear.parameters_grad": {"weight": [None]},
    }
    if after:
        data["Torch.relu.1.forward"] = call([some(3, 3, 5)], some(1, 3, 5))
    return data, {"Functional.linear.0.forward": "Module.m.Linear.forward.0"}


@pytest.mark.parametrize("after", [False, True])
def test_a_call_that_raised_is_told_and_harmless_if_the_program_went_on(tmp_path: Path, after: bool) -> None:
    data, parents = failing(after)
    write(tmp_path, data, parents=parents)
    finding = found(tmp_path, "raised")[0]
    assert (finding.entry, finding.kind, finding.harmless) == ("Functional.linear.0.forward", "error", after)
    beginning = "a call" if after else "the last call"
    told = f"{beginning} raised RuntimeError: shapes cannot be multiplied, at /home/me/train.py:12"
    assert finding.message.startswith(told)


def test_a_module_that_did_not_return_is_no_error_of_its_own(tmp_path: Path) -> None:
    write(tmp_path, {"Module.m.Linear.forward.0": {**module([some(1, 2)], None), "error": "the pass did not return"}})
    assert found(tmp_path, "raised") == []


# ---------------------------------------------------------------- parameters without a gradient


def cut(held: str, gradient: Any = None, **more: Any) -> dict[str, Any]:
    """Two models of a layer; what the first makes is detached. ``held``: the model that the optimizer has."""
    weights = {name: some(number, 4, 4, requires_grad=True) for number, name in enumerate(("one", "two"))}
    hidden = some(3, 2, 4, requires_grad=True)
    taken = None if held == "one" else some(8, 4, 4)
    return {
        "Module.one.Linear.forward.0": module([some(2, 2, 4)], hidden, parameters={"weight": weights["one"]}),
        "Module.one.Linear.parameters_grad": {"weight": [gradient]},
        "Tensor.detach.0.forward": call([hidden], {**hidden, "requires_grad": False}),
        "Torch.relu.0.forward": call([hidden], some(5, 2, 4)),
        "Module.two.Linear.forward.0": module(
            [some(5, 2, 4)], some(7, 2, 4, requires_grad=True), parameters={"weight": weights["two"]}
        ),
        "Module.two.Linear.parameters_grad": {"weight": [some(8, 4, 4)]},
        "Optimizer.SGD.0.forward": optimizer({f"{held}.weight": (weights[held], taken, some(9, 4, 4))}, **more),
    }


@pytest.mark.parametrize(("held", "harmless"), [("one", False), ("two", True)])
def test_a_model_without_gradients_is_not_meant_where_an_optimizer_is_to_train_it(
    tmp_path: Path, held: str, harmless: bool
) -> None:
    write(tmp_path, cut(held))
    finding = one(tmp_path, "unreached")
    assert (finding.entry, finding.harmless) == ("Tensor.detach.0.forward", harmless)
    assert (said("though-optimizer-holds-them", "Optimizer.SGD.0.forward") in finding.message) != harmless


def test_a_step_that_was_left_out_holds_nothing(tmp_path: Path) -> None:
    write(tmp_path, cut("one", skipped=True))
    assert one(tmp_path, "unreached").harmless


def test_gradients_that_are_cleared_before_the_step(tmp_path: Path) -> None:
    write(tmp_path, cut("one", gradient=some(6, 4, 4)))
    finding = one(tmp_path, "unreached")
    assert finding.entry == "Optimizer.SGD.0.forward"
    assert "cleared in between" in finding.message
    assert not finding.harmless


def stack(called: tuple[int, ...], held: int = 3, prefix: str = "blocks.", chained: bool = True) -> dict[str, Any]:
    """A step of a stack of layers of which some are called, each with what the one before it made."""
    data: dict[str, Any] = {}
    weights = {f"{prefix}{n}.weight": some(n, 4, 4, requires_grad=True) for n in range(held)}
    for place, number in enumerate(called):
        given = some(100 + place if chained else 100, 2, 4)
        name = f"Module.{prefix}{number}.Linear"
        own = {"weight": weights[f"{prefix}{number}.weight"]}
        data[f"{name}.forward.0"] = module([given], some(101 + place, 2, 4), parameters=own)
        data[f"{name}.parameters_grad"] = {"weight": [some(20 + number, 4, 4)]}
    table = {
        name: (weight, some(20 + n, 4, 4) if n in called else None, some(40 + n, 4, 4))
        for n, (name, weight) in enumerate(weights.items())
    }
    return {**data, "Optimizer.SGD.0.forward": optimizer(table)}


@pytest.mark.parametrize("prefix", ["blocks.", ""])
def test_a_layer_of_a_stack_that_no_step_calls(tmp_path: Path, prefix: str) -> None:
    for step in range(2):
        write(tmp_path, stack((0, 2), prefix=prefix), step)
    finding = one(tmp_path, "unreached")
    assert (finding.step, finding.harmless) == (1, False)
    assert finding.evidence["modules"] == [f"{prefix}1"]
    assert finding.evidence["parameters"] == [f"{prefix}1.weight"]


@pytest.mark.parametrize(
    "steps",
    [
        [{"called": (0, 2)}],
        [{"called": (0, 2, 4), "held": 5}, {"called": (0, 2, 3, 4), "held": 5}],
        [{"called": (0, 2), "chained": False}] * 2,
        [{"called": (0, 1)}] * 2,
    ],
    ids=["one step", "layers left out at random", "experts", "the last one"],
)
def test_a_module_that_may_wait_for_its_turn(tmp_path: Path, steps: list[dict[str, Any]]) -> None:
    for step, how in enumerate(steps):
        write(tmp_path, stack(**how), step)
    assert one(tmp_path, "unreached").harmless


def test_a_layer_that_another_step_calls(tmp_path: Path) -> None:
    write(tmp_path, stack((0, 1, 2)), 0)
    write(tmp_path, stack((0, 2)), 2)
    assert found(tmp_path, "unreached") == []


def test_parameters_that_no_module_has_tell_nothing_of_calls(tmp_path: Path) -> None:
    data = stack((0, 1), held=2)
    data["Optimizer.SGD.0.forward"]["input_kwargs"]["g0.p7"] = {"weight": some(7, 4, requires_grad=True), "grad": None}
    write(tmp_path, data)
    assert found(tmp_path, "unreached") == []


# ---------------------------------------------------------------- gradients that stay, weights that are NaN


def kept(folder: Path, optimizers: int) -> None:
    """Two steps of five parameters of an optimizer that get one gradient each and keep those of the step before; one of
    them is far larger than the others, and about the same in both steps.
    """
    random = np.random.default_rng(4)
    shape = (50, 40)
    left = {n: np.zeros(shape) for n in range(5)}
    large = 100 + random.standard_normal(shape)
    for step in range(2):
        data: dict[str, Any] = {}
        held = {}
        for n in range(5):
            made = large if n == 0 else random.standard_normal(shape) + 0.02
            data[f"Module.m{n}.Linear.parameters_grad"] = {"weight": [of(made, f"xxh3:{step}{n}")]}
            left[n] = left[n] + made
            held[f"m{n}.weight"] = (some(n, *shape), of(left[n], f"xxh3:g{step}{n}"), some(50 + n, *shape))
        data["Optimizer.SGD.0.forward"] = optimizer(held)
        if optimizers == 2:
            gradient = some(60 + step, 4)
            data["Module.d.Linear.parameters_grad"] = {"weight": [some(70 + step, 4)]}
            data["Optimizer.SGD.1.forward"] = optimizer({"d.weight": (some(80, 4), gradient, some(81, 4))})
        write(folder, data, step)


@pytest.mark.parametrize("optimizers", [1, 2])
def test_gradients_that_are_not_cleared_show_beside_a_large_one(tmp_path: Path, optimizers: int) -> None:
    kept(tmp_path, optimizers)
    finding = one(tmp_path, "clearing")
    assert (finding.step, finding.entry) == (1, "Optimizer.SGD.0.forward")
    assert finding.evidence["misfit_without"] < 0.2, "one factor hides most of it"
    assert finding.code == "C401"


@pytest.mark.parametrize("moves", [False, True], ids=["micro-batches", "passes at two places"])
def test_gradients_that_are_cleared_between_two_passes(tmp_path: Path, moves: bool) -> None:
    """Where a weight is moved between them, as in sharpness-aware minimisation, the first pass only says where to."""
    random = np.random.default_rng(5)
    data: dict[str, Any] = {}
    held = {}
    for n in range(5):
        name = f"Module.m{n}.Linear"
        for number in range(2):
            weight = some(10 * n + number * moves, 50, 40, requires_grad=True)
            data[f"{name}.forward.{number}"] = module([some(60, 2, 40)], some(61, 2, 50), parameters={"weight": weight})
        passes = [random.standard_normal((50, 40)) + random.uniform(-1, 1) for _ in range(2)]
        for number, made in enumerate(passes):
            data[f"{name}.parameters_grad.{number}"] = {"weight": [of(made, f"xxh3:{n}{number}")]}
        data[f"{name}.parameters_grad"] = {"weight": [of(passes[1], f"xxh3:{n}1")]}
        held[f"m{n}.weight"] = (some(10 * n, 50, 40), of(passes[1], f"xxh3:{n}1"), some(70 + n, 50, 40))
    data["Optimizer.SGD.0.forward"] = optimizer(held)
    write(tmp_path, data)
    assert bool(found(tmp_path, "clearing")) != moves


def test_weights_that_are_nan_before_and_after_are_not_left_alone(tmp_path: Path) -> None:
    bad = {**tensor(4, value=math.nan), "requires_grad": True, "nan": 4}
    weights = {"a": (bad, some(2, 4), bad), "b": (some(3, 4), some(4, 4), some(5, 4))}
    write(tmp_path, {"Optimizer.SGD.0.forward": optimizer(weights)})
    assert found(tmp_path, "updates") == []


# ---------------------------------------------------------------- ranks


def replica(rank: int, batch: int, lr: float = 0.1, exchange: bool = False) -> dict[str, Any]:
    leaf = some(1, 4, requires_grad=True)
    data: dict[str, Any] = {}
    parents = "Module.m.Linear.forward.0"
    if exchange:
        group = {"process_group": {"type": "torch.ProcessGroup", "group_ranks": [0, 1, 2]}}
        data["Distributed.all_reduce.0.forward"] = call([some(7, 4)], some(6, 4), **group)
    data[parents] = module([some(batch, 2, 4)], some(batch + 50, 2, 4), parameters={"weight": leaf})
    data["Module.m.Linear.backward.0"] = {"input": [some(60 + rank, 2, 4)], "output": [some(70 + rank, 2, 4)]}
    data["Optimizer.SGD.0.forward"] = optimizer({"m.weight": (leaf, some(2, 4), some(3, 4))}, lr=lr)
    return data


def test_ranks_that_get_the_same_batch(tmp_path: Path) -> None:
    of_ranks(tmp_path, lambda rank: replica(rank, batch=9))
    finding = one(tmp_path, "replicas")
    assert mentions(finding.message, "batch-same-on-ranks", ranks="0, 1, 2")
    assert finding.entry == "Module.m.Linear.forward.0"
    assert explained("check-cause:same_batch", "advice")[:30] in check_text(check_run(tmp_path))


def test_ranks_with_batches_of_their_own(tmp_path: Path) -> None:
    of_ranks(tmp_path, lambda rank: replica(rank, batch=9 + rank))
    assert found(tmp_path, "replicas") == []


def test_ranks_that_divide_the_work_of_one_batch(tmp_path: Path) -> None:
    """They exchange data inside the forward pass."""
    above = {"Distributed.all_reduce.0.forward": "Module.m.Linear.forward.0", "Module.m.Linear.forward.0": None}
    for rank in range(3):
        write(tmp_path, replica(rank, 9, exchange=True), rank=f"rank{rank}", parents=above)
    assert found(tmp_path, "replicas") == []


def test_one_rank_with_another_learning_rate(tmp_path: Path) -> None:
    of_ranks(tmp_path, lambda rank: replica(rank, batch=9 + rank, lr=0.2 if rank == 1 else 0.1))
    finding = one(tmp_path, "replicas")
    assert (finding.rank, finding.evidence["setting"]) == (1, "lr")
    assert finding.code == "C506"
    assert [finding.arguments[name] for name in ("rank", "value", "usual")] == [1, "0.2", "0.1"]


def test_settings_that_choose_how_a_step_is_computed_may_differ(tmp_path: Path) -> None:
    def make(rank: int) -> dict[str, Any]:
        data = replica(rank, batch=9 + rank)
        data["Optimizer.SGD.0.forward"]["groups"][0]["foreach"] = plain(rank == 1)
        return data

    of_ranks(tmp_path, make)
    assert found(tmp_path, "replicas") == []


# ---------------------------------------------------------------- what was not recorded


def notes(folder: Path) -> str:
    return "; ".join(check_run(folder).notes)


def test_a_step_without_records_lacks_records_and_nothing_else(tmp_path: Path) -> None:
    write(tmp_path, {"Torch.exp.0.forward": call([some(1, 4)], some(2, 4)), "Torch.exp.0.backward": backward()}, 0)
    write(tmp_path, {}, 1)
    assert notes(tmp_path) == f"step 1: {said('no-calls')}"


def test_values_that_were_saved_by_hand_are_no_modules(tmp_path: Path) -> None:
    write_part(tmp_path / "step0" / "rank", {"loss.0.debug": {"loss": tensor(1)}}, kind="debug")
    assert notes(tmp_path).startswith(said("level-debug"))


@pytest.mark.parametrize(("more", "why"), [({"md5": "a"}, " (summary_mode md5)"), ({}, "")])
def test_why_there_are_no_statistics_is_said_where_it_is_known(tmp_path: Path, more: dict[str, str], why: str) -> None:
    bare = {"type": "torch.Tensor", "dtype": "torch.float32", "shape": [2], **more}
    write(tmp_path, {"Torch.exp.0.forward": call([bare], bare)})
    assert mentions(notes(tmp_path), "statistics-not-recorded", how=why)


def test_checks_that_have_nothing_to_look_at_are_named(tmp_path: Path) -> None:
    write(tmp_path, {"Torch.exp.0.forward": call([some(1, 4)], some(2, 4)), "Torch.exp.0.backward": backward()})
    blind = check_run(tmp_path).summary["blind"]
    assert {"unreached", "updates", "ties", "padding", "collectives", "replicas", "scale"} <= set(blind)
    assert not {"overflow", "softmax", "labels", "mutation", "recompute", "raised"} & set(blind)
    assert (blind["updates"], blind["replicas"]) == ("no modules", "one rank only")


def test_no_check_calls_itself_blind_where_it_finds_something(tmp_path: Path) -> None:
    """What a check needs is told by its line in the list, and by what it finds."""
    for step in range(2):
        write(tmp_path, stack((0, 2)), step)
    result = check_run(tmp_path, [check for check in CHECKS if check.name == "unreached"])
    assert result.findings
    assert result.summary["blind"] == {}


def test_nothing_of_a_rank_stays_open_while_the_next_is_checked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    of_ranks(tmp_path, lambda rank: replica(rank, batch=9 + rank))
    there: list[int] = []
    opening, closing = Timeline.__init__, Timeline.close

    def begin(self: Timeline, *args: Any, **kwargs: Any) -> None:
        there.append(id(self))
        assert len(there) == 1
        opening(self, *args, **kwargs)

    def end(self: Timeline) -> None:
        there.remove(id(self))
        closing(self)

    monkeypatch.setattr(Timeline, "__init__", begin)
    monkeypatch.setattr(Timeline, "close", end)
    assert check_run(tmp_path).summary["records"]
    assert not there
