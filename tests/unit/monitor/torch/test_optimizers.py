"""Optimizers and ways of training: what is measured is what the optimizer gets and leaves, and nothing changes."""

from __future__ import annotations

import contextlib
import copy
import math
import pickle
from pathlib import Path
from typing import Any

import pytest
import torch
from support.coded_texts import mentions
from torch import nn
from torch.optim import optimizer as every
from unit.monitor.torch import monitored as shared
from unit.monitor.torch.monitored import (
    EVERYTHING,
    PARAMETERS,
    SIX,
    Attach,
    ModelM,
    assert_row,
    attached,
    make,
    monitored,
    number,
    train_m,
)

from msprobe.monitor.torch.trainer import TrainerMon

way = shared.way


@pytest.mark.parametrize(
    "settings",
    [
        {"fused": True},
        {"foreach": True},
        {"foreach": False},
        {"amsgrad": True},
        {"weight_decay": 0.1},
        {"maximize": True},
        {"lr": torch.tensor(0.01)},
    ],
    ids=str,
)
@pytest.mark.parametrize("kind", [torch.optim.Adam, torch.optim.AdamW])
def test_forms_of_adam(tmp_path: Path, kind: Any, settings: dict[str, Any]) -> None:
    found = monitored(tmp_path, EVERYTHING, train_m(steps=3, dropout=0.3, optimizer=kind, **settings))
    for step in range(3):
        for quantity in ("grad_reduced", "grad_unreduced", "param_origin", "param_updated", "other"):
            assert sorted(found.names(quantity, step)) == sorted(PARAMETERS)
    assert found.steps("exp_avg") == found.steps("exp_avg_sq") == [1, 2]
    # The first step of Adam moves each weight by its rate, whatever the gradient.
    model_norms = found.norms("update", 0)
    assert model_norms["fc2.bias"] == pytest.approx(0.01 * math.sqrt(2), rel=1e-3)


def test_steps_that_are_kept_on_a_device(tmp_path: Path) -> None:
    """Optimizers that say capturable keep the number of steps where the weights are: no one waits for it there."""
    if not torch.cuda.is_available():
        pytest.skip("needs a device that torch calls supported for capturable")
    settings = {"capturable": True}

    def train(attach: Attach) -> Any:
        torch.manual_seed(0)
        model = ModelM().cuda()
        adam = torch.optim.Adam(model.parameters(), **settings)  # type: ignore[arg-type]
        attach(model, adam)
        for _ in range(3):
            model(torch.ones(3, 4).cuda()).square().mean().backward()
            adam.step()
            adam.zero_grad()
        return [[one.detach().cpu() for one in model.parameters()]]

    assert monitored(tmp_path, EVERYTHING, train).steps("exp_avg") == [1, 2]


@pytest.mark.parametrize(
    ("kind", "settings"),
    [
        (torch.optim.SGD, {}),
        (torch.optim.SGD, {"momentum": 0.9, "nesterov": True}),
        (torch.optim.SGD, {"fused": True}),
        (torch.optim.RMSprop, {}),
        (torch.optim.Adagrad, {}),
        (torch.optim.Adadelta, {}),
        (torch.optim.Rprop, {}),
    ],
    ids=str,
)
def test_optimizers_without_moments(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], kind: Any, settings: dict[str, Any]
) -> None:
    found = monitored(tmp_path, EVERYTHING, train_m(steps=3, optimizer=kind, **settings))
    assert not {"exp_avg", "exp_avg_sq", "update"} & found.quantities
    assert found.steps("grad_reduced") == found.steps("param_updated") == [0, 1, 2]
    said = capfd.readouterr().out
    assert mentions(said, "optimizer-without-moments", name=kind.__name__) == 1


@pytest.mark.parametrize("kind", [torch.optim.NAdam, torch.optim.RAdam, torch.optim.Adamax])
def test_relatives_of_adam(tmp_path: Path, kind: Any) -> None:
    found = monitored(tmp_path, EVERYTHING, train_m(steps=3, optimizer=kind))
    assert found.steps("exp_avg") == [1, 2]
    assert found.steps("exp_avg_sq") == ([] if kind is torch.optim.Adamax else [1, 2])


def test_lbfgs_with_its_closure(tmp_path: Path, way: str) -> None:
    def train(attach: Attach) -> Any:
        torch.manual_seed(0)
        model = ModelM()
        lbfgs = torch.optim.LBFGS(model.parameters(), lr=0.1, max_iter=3)
        attach(model, lbfgs)
        losses = []
        for _ in range(3):
            batch = torch.randn(3, 4)

            def closure(batch: torch.Tensor = batch) -> torch.Tensor:
                lbfgs.zero_grad()
                loss = model(batch).square().mean()
                loss.backward()
                losses.append(loss.detach())
                return loss

            lbfgs.step(closure)
        return [model, lbfgs, losses]

    found = monitored(tmp_path, EVERYTHING, train)
    assert found.steps("param_origin") == found.steps("param_updated") == [0, 1, 2]
    # The closure computes them inside of the step: what is there when it begins is of the step before.
    assert found.steps("grad_reduced") == [0, 1, 2]
    assert found.steps("grad_unreduced") == [0, 1, 2]
    assert len(found.rows("grad_unreduced", step=0)) == 4


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float64])
def test_other_types(tmp_path: Path, way: str, dtype: torch.dtype) -> None:
    gradients: dict[str, torch.Tensor] = {}

    def train(attach: Attach) -> Any:
        torch.manual_seed(0)
        model = ModelM().to(dtype)
        sgd = torch.optim.SGD(model.parameters(), lr=0.1)
        attach(model, sgd)
        for _ in range(2):
            model(torch.randn(3, 4).to(dtype)).square().mean().backward()
            gradients.update({name: one.grad.clone() for name, one in model.named_parameters()})  # type: ignore[union-attr]
            sgd.step()
            sgd.zero_grad()
        return [model]

    found = monitored(tmp_path, {**EVERYTHING, "mv_distribution": False, "mg_direction": False}, train)
    for row in found.rows("grad_reduced", step=1):
        assert_row(row, gradients[row["name"]])


def test_autocast(tmp_path: Path, way: str) -> None:
    def train(attach: Attach) -> Any:
        torch.manual_seed(0)
        model = ModelM(0.2)
        adam = torch.optim.Adam(model.parameters(), lr=0.01)
        attach(model, adam)
        for _ in range(3):
            with torch.autocast("cpu", dtype=torch.bfloat16):
                loss = model(torch.randn(3, 4)).float().square().mean()
            loss.backward()
            adam.step()
            adam.zero_grad()
        return [model, adam]

    found = monitored(tmp_path, EVERYTHING, train)
    types = {row["name"]: row["dtype"] for row in found.rows("actv", step=1)}
    assert types["fc1.input"] == "torch.float32"
    assert types["fc1.output"] == types["fc2.output"] == "torch.bfloat16"
    assert {row["dtype"] for row in found.rows("grad_reduced")} == {"torch.float32"}


def test_scaler_with_accumulation_and_an_infinity(tmp_path: Path) -> None:
    def train(attach: Attach) -> Any:
        torch.manual_seed(0)
        model = ModelM()
        adam = torch.optim.Adam(model.parameters(), lr=0.01)
        scaler = torch.amp.GradScaler("cpu", init_scale=256.0)
        attach(model, adam)
        for step in range(4):
            for _ in range(2):
                scaler.scale(model(torch.randn(3, 4)).square().mean() / 2).backward()
            if step in (0, 2):
                model.fc2.bias.grad[0] = math.nan  # type: ignore[index]
            scaler.unscale_(adam)
            nn.utils.clip_grad_norm_(model.parameters(), 0.1)
            scaler.step(adam)
            scaler.update()
            adam.zero_grad()
        return [model, adam]

    found = monitored(tmp_path, EVERYTHING, train, grad_acc_steps=2)
    assert found.steps("grad_reduced") == [0, 1]
    for step in (0, 1):
        total = math.sqrt(sum(norm**2 for norm in found.norms("grad_reduced", step).values()))
        assert total <= 0.1 + 1e-6
        assert {row["micro_step"] for row in found.rows("actv", step=step)} == {"0", "1"}
        assert len(found.rows("actv", step=step)) == 16
        assert {row["nans"] for row in found.rows("grad_unreduced", step=step)} == {"0"}


def test_a_discriminator_with_two_backward_passes_in_a_step(tmp_path: Path) -> None:
    """What the optimizer gets is the sum of all backward passes, more than were said."""

    def train(attach: Attach) -> Any:
        torch.manual_seed(0)
        model = ModelM()
        sgd = torch.optim.SGD(model.parameters(), lr=0.1)
        attach(model, sgd)
        for _ in range(2):
            for sign in (1, -1):
                (sign * model(torch.randn(3, 4)).mean()).backward()
            sgd.step()
            sgd.zero_grad()
        return [model]

    found = monitored(tmp_path, {**EVERYTHING, "mv_distribution": False, "mg_direction": False}, train)
    for step in (0, 1):
        assert found.norms("grad_unreduced", step) == found.norms("grad_reduced", step)
        assert [row["name"] for row in found.rows("actv", step=step) if row["name"].startswith("fc1")] == [
            "fc1.input",
            "fc1.output",
            "fc1#1.input",
            "fc1#1.output",
        ]


def test_two_optimizers_that_are_both_monitored(tmp_path: Path) -> None:
    """A generator and a critic, each with a monitor of its own."""
    monitors: list[TrainerMon] = []

    def train(watched: bool) -> Any:
        torch.manual_seed(0)
        models = [ModelM(), ModelM()]
        adams = [torch.optim.Adam(model.parameters(), lr=0.01) for model in models]
        if watched:
            for model, adam in zip(models, adams, strict=True):
                (tmp_path / str(len(monitors))).mkdir()
                monitors.append(make(tmp_path / str(len(monitors)), EVERYTHING))
                monitors[-1].set_monitor(model, optimizer=adam)
        for step in range(4):
            for which in (0, 1) if step % 2 else (0,):
                models[which](torch.randn(3, 4)).square().mean().backward()
                adams[which].step()
                adams[which].zero_grad()
        return shared.bits([models, adams, torch.get_rng_state()])

    bare = train(watched=False)
    shared.assert_same(bare, train(watched=True))
    for monitor in monitors:
        monitor.stop()
    first, second = (shared.Measured(monitor) for monitor in monitors)
    assert first.steps("grad_reduced") == first.steps("actv") == [0, 1, 2, 3]
    assert second.steps("grad_reduced") == second.steps("actv") == [0, 1]


def test_a_wrapper_around_an_optimizer(tmp_path: Path) -> None:
    class Wrapper:
        def __init__(self, optimizer: Any) -> None:
            self.optimizer = optimizer

        def step(self) -> None:
            self.optimizer.step()

        def zero_grad(self) -> None:
            self.optimizer.zero_grad()

        def state_dict(self) -> Any:
            return self.optimizer.state_dict()

    def wrapped(*given: Any, **more: Any) -> Any:
        return Wrapper(torch.optim.AdamW(*given, **more))

    found = monitored(tmp_path, EVERYTHING, train_m(steps=3, optimizer=wrapped))
    assert found.steps("exp_avg") == [1, 2]
    assert found.steps("update") == [0, 1, 2]


def test_main_gradients(tmp_path: Path) -> None:
    """Where gradients gather in ``main_grad``, as in Megatron, these are measured; unless the user forbids it."""

    def train(attach: Attach) -> Any:
        torch.manual_seed(0)
        model = ModelM()
        sgd = torch.optim.SGD(model.parameters(), lr=0.1)
        for one in model.parameters():
            one.main_grad = torch.zeros_like(one)  # type: ignore[attr-defined]
        attach(model, sgd)
        for _ in range(2):
            model(torch.randn(3, 4)).square().mean().backward()
            for one in model.parameters():
                one.main_grad.add_(one.grad, alpha=3)  # type: ignore[attr-defined, arg-type]
                one.grad = one.main_grad.clone()  # type: ignore[attr-defined]
            sgd.step()
            for one in model.parameters():
                one.main_grad.zero_()  # type: ignore[attr-defined]
                one.grad *= 100  # type: ignore[operator]
                one.grad = None
        return [model]

    config = {"wg_distribution": True}
    auto = monitored(tmp_path, config, train)
    forced = monitored(tmp_path, config, train, made={"params_have_main_grad": True})
    plain = monitored(tmp_path, config, train, made={"params_have_main_grad": False})
    for step in (0, 1):
        norms = auto.norms("grad_reduced", step)
        assert norms == forced.norms("grad_reduced", step) == plain.norms("grad_reduced", step)


def test_forced_main_gradients_that_are_missing_are_left_out(tmp_path: Path) -> None:
    found = monitored(tmp_path, {"wg_distribution": True}, train_m(), made={"params_have_main_grad": True})
    assert found.quantities == {"grad_unreduced"}


# ---------------------------------------------------------------- models that change, are copied, compiled, ...


def test_parameters_that_are_frozen_in_flight(tmp_path: Path) -> None:
    def train(attach: Attach) -> Any:
        torch.manual_seed(0)
        model = ModelM()
        adam = torch.optim.Adam(model.parameters(), lr=0.01)
        attach(model, adam)
        for step in range(3):
            if step == 1:
                model.fc1.requires_grad_(False)
            model(torch.randn(3, 4)).square().mean().backward()
            adam.step()
            adam.zero_grad()
        return [model, adam]

    found = monitored(tmp_path, EVERYTHING, train)
    assert found.names("grad_reduced", 0) == PARAMETERS
    assert found.names("grad_reduced", 2) == PARAMETERS[2:]
    assert found.names("param_origin", 2) == PARAMETERS


def test_parameters_and_modules_that_are_added_in_flight(tmp_path: Path) -> None:
    def train(attach: Attach) -> Any:
        torch.manual_seed(0)
        model = ModelM()
        adam = torch.optim.Adam(model.parameters(), lr=0.01)
        attach(model, adam)
        for step in range(4):
            if step == 2:
                model.drop = nn.Linear(8, 8)  # type: ignore[assignment]
                adam.add_param_group({"params": list(model.drop.parameters())})
            model(torch.randn(3, 4)).square().mean().backward()
            adam.step()
            adam.zero_grad()
        return [model, adam]

    found = monitored(tmp_path, EVERYTHING, train)
    assert found.names("grad_reduced", 3)[:2] == PARAMETERS[:2]
    assert found.steps("param_updated") == [0, 1, 2, 3]


def test_weights_that_are_replaced(tmp_path: Path) -> None:
    """``load_state_dict`` between steps, ``weight.data`` given other memory, a model moved to another type."""

    def train(attach: Attach) -> Any:
        torch.manual_seed(0)
        model = ModelM()
        adam: Any = torch.optim.SGD(model.parameters(), lr=0.01)
        attach(model, adam)
        first = copy.deepcopy(model.state_dict())
        for step in range(4):
            if step == 1:
                model.load_state_dict(first)
            elif step == 2:
                model.fc1.weight.data = model.fc1.weight.data * 2
            elif step == 3:
                model.double()
            model(torch.randn(3, 4).to(model.fc1.weight.dtype)).square().mean().backward()
            adam.step()
            adam.zero_grad()
        return [model, adam]

    found = monitored(tmp_path, EVERYTHING, train)
    assert found.steps("grad_unreduced") == found.steps("grad_reduced") == [0, 1, 2, 3]
    assert {row["dtype"] for row in found.rows("param_updated", step=3)} == {"torch.float64"}
    assert number(found.rows("param_origin", step=2)[0]["norm"]) > 1.5 * number(found.rows("param_origin")[0]["norm"])


def test_copies_of_a_model_that_is_monitored(tmp_path: Path) -> None:
    """Deep copies and pickles are made as without the monitor, work, and are not monitored."""
    copies: list[nn.Module] = []

    def train(attach: Attach) -> Any:
        torch.manual_seed(0)
        model = ModelM()
        adam = torch.optim.Adam(model.parameters(), lr=0.01)
        attach(model, adam)
        for _ in range(2):
            model(torch.randn(3, 4)).square().mean().backward()
            teacher = copy.deepcopy(model)
            stored = pickle.loads(pickle.dumps(model))
            averaged = torch.optim.swa_utils.AveragedModel(model)
            for one in (teacher, stored, averaged):
                one(torch.ones(3, 4)).sum().backward()
                copies.append(one)
            copy.deepcopy(adam).step()
            pickle.dumps(adam)
            adam.step()
            adam.zero_grad()
        return [model, adam]

    found = monitored(tmp_path, EVERYTHING, train)
    assert found.steps("grad_reduced") == [0, 1]
    for step in (0, 1):
        assert len(found.rows("actv", step=step)) == 8
        assert len(found.rows("grad_unreduced", step=step)) == 4


def test_a_model_without_memory(tmp_path: Path) -> None:
    """On the device meta there are no numbers: shapes and types only."""

    def train(attach: Attach) -> Any:
        torch.manual_seed(0)
        model = ModelM().to("meta")
        sgd = torch.optim.SGD(model.parameters(), lr=0.1)
        attach(model, sgd)
        for _ in range(2):
            model(torch.randn(3, 4, device="meta")).square().mean().backward()
            sgd.step()
            sgd.zero_grad()
        return ["done"]

    found = monitored(tmp_path, {**EVERYTHING, "mv_distribution": False, "mg_direction": False}, train)
    rows = found.rows("grad_reduced", step=0)
    assert [row["name"] for row in rows] == PARAMETERS
    for row in rows:
        assert {row[op] for op in SIX} == {"nan"}
        assert row["shape"] != "nan"
        assert row["dtype"] == "torch.float32"


def test_sparse_gradients(tmp_path: Path, way: str) -> None:
    def train(attach: Attach) -> Any:
        torch.manual_seed(0)
        model = nn.Embedding(6, 3, sparse=True)
        sgd = torch.optim.SGD(model.parameters(), lr=0.1)
        attach(model, sgd)
        for _ in range(2):
            model(torch.tensor([1, 2, 2])).square().sum().backward()
            sgd.step()
            sgd.zero_grad()
        return [model.weight.detach()]

    found = monitored(tmp_path, {"wg_distribution": True, "ops": SIX}, train)
    assert found.steps("grad_reduced") == [0, 1]
    assert found.rows("grad_reduced", step=0)[0]["shape"] == "[6, 3]"
    assert number(found.rows("grad_reduced", step=0)[0]["norm"]) > 0


@pytest.mark.parametrize("what", ["the model", "in place", "a part"])
def test_compiled_models(tmp_path: Path, what: str) -> None:
    """What can be measured is; nothing breaks, nothing changes."""

    def train(attach: Attach) -> Any:
        torch.manual_seed(0)
        torch._dynamo.reset()
        model: Any = ModelM()
        if what == "the model":
            model = torch.compile(model, backend="aot_eager")
        elif what == "in place":
            model.compile(backend="aot_eager")
        else:
            model.fc1.compile(backend="aot_eager")
        adam = torch.optim.Adam(model.parameters(), lr=0.01)
        attach(model, adam)
        torch.manual_seed(1)
        for _ in range(3):
            model(torch.randn(3, 4)).square().mean().backward()
            adam.step()
            adam.zero_grad()
        return [[one.detach() for one in model.parameters()], adam]

    found = monitored(tmp_path, EVERYTHING, train)
    names = [f"_orig_mod.{name}" for name in PARAMETERS] if what == "the model" else PARAMETERS
    for step in range(3):
        assert found.names("grad_reduced", step) == names
        assert sorted(found.names("grad_unreduced", step)) == sorted(names)
        assert found.names("param_updated", step) == names
    if what == "a part":
        assert {"fc2.input", "fc2.output"} <= set(found.names("actv", 1))


def test_the_same_numbers_in_all_ways_of_measuring(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the C extension, without it, and as on an accelerator."""
    from msprobe.capture import native
    from msprobe.monitor import framework as deferring

    found = []
    for way in range(3):
        with contextlib.ExitStack() as stack:
            patch = stack.enter_context(pytest.MonkeyPatch.context())
            if way == 1:
                patch.setattr(native, "numbers", None)
                patch.setattr(native, "count_below", None)
            elif way == 2:
                patch.setenv(deferring.DEFER, "1")
            (tmp_path / str(way)).mkdir()
            found.append(monitored(tmp_path / str(way), EVERYTHING, train_m(steps=3, dropout=0.2)))
    for quantity in sorted(found[0].quantities - {"update"}):
        for other in found[1:]:
            one, two = found[0].rows(quantity), other.rows(quantity)
            assert len(one) == len(two)
            for row, same in zip(one, two, strict=True):
                for word, cell in row.items():
                    if word in SIX:
                        assert number(cell) == pytest.approx(number(same[word]), rel=1e-7, abs=1e-12, nan_ok=True)
                    else:
                        assert cell == same[word]


def test_a_monitor_beside_a_debugger(tmp_path: Path) -> None:
    """The monitor watches all steps, the debugger dumps one."""
    from msprobe.pytorch import PrecisionDebugger

    monitor = make(tmp_path, EVERYTHING)
    torch.manual_seed(0)
    model = ModelM()
    adam = torch.optim.Adam(model.parameters(), lr=0.01)
    monitor.set_monitor(model, optimizer=adam)
    debugger = PrecisionDebugger(dump_path=str(tmp_path / "dump"), task="statistics", level="mix", step=[1])
    try:
        for _ in range(3):
            with debugger.recording(model):
                model(torch.randn(3, 4)).square().mean().backward()
                adam.step()
                adam.zero_grad()
    finally:
        PrecisionDebugger.reset()
    monitor.stop()
    found = shared.Measured(monitor)
    assert found.steps("actv") == found.steps("grad_reduced") == found.steps("actv_grad") == [0, 1, 2]
    assert (tmp_path / "dump" / "step1" / "rank" / "dump.json").exists()
    assert attached(model) == []


def test_hooks_of_the_user_run_as_without_the_monitor(tmp_path: Path) -> None:
    """Hooks of one optimizer and of all, before and behind the step, also in steps in which ours come and go."""

    def train(attach: Attach) -> Any:
        torch.manual_seed(0)
        model = ModelM()
        adam = torch.optim.Adam(model.parameters(), lr=0.01)
        told: list[str] = []
        handles = [adam.register_step_post_hook(lambda *given: told.append("behind, of one"))]
        attach(model, adam)
        handles += [
            adam.register_step_pre_hook(lambda *given: told.append("before, of one")),
            adam.register_step_post_hook(lambda *given: told.append("behind, of one again")),
            every.register_optimizer_step_pre_hook(lambda *given: told.append("before, of all")),
            every.register_optimizer_step_post_hook(lambda *given: told.append("behind, of all")),
        ]
        for _ in range(5):
            model(torch.randn(3, 4)).square().mean().backward()
            adam.step()
            adam.zero_grad()
        for handle in handles:
            handle.remove()
        return [model, adam, told]

    for config in ({"step_interval": 2}, {"collect_times": 1}, {"print_struct": "continue"}):
        folder = tmp_path / next(iter(config))
        folder.mkdir()
        found = monitored(folder, {**EVERYTHING, **config}, train)
        assert len(found.result[-1]) == 25


# ---------------------------------------------------------------- stand-ins for optimizers of Megatron


class ChainedOptimizer:
    """A stand-in for that of Megatron: members that step in a row."""

    def __init__(self, members: list[Any]) -> None:
        self.chained_optimizers = members

    def step(self) -> None:
        for member in self.chained_optimizers:
            member.step()

    def zero_grad(self) -> None:
        for member in self.chained_optimizers:
            member.zero_grad()


class Float16OptimizerWithFloat16Params:
    """A stand-in for that of Megatron: half parameters of a model, and float32 copies that are stepped on."""

    def __init__(self, parameters: list[Any], **settings: Any) -> None:
        self.float16_groups = [parameters]
        self.fp32_from_float16_groups = [[one.detach().clone().float().requires_grad_() for one in parameters]]
        self.fp32_from_fp32_groups: list[list[Any]] = []
        self.optimizer = torch.optim.Adam(self.fp32_from_float16_groups[0], **settings)

    def pairs(self) -> Any:
        return zip(self.float16_groups[0], self.fp32_from_float16_groups[0], strict=True)

    def step(self) -> None:
        for half, single in self.pairs():
            single.grad = None if half.main_grad is None else half.main_grad.float()
        self.optimizer.step()
        for half, single in self.pairs():
            half.data.copy_(single.data)

    def zero_grad(self) -> None:
        for half, _ in self.pairs():
            half.grad = None
            half.main_grad.zero_()


@pytest.mark.parametrize("interval", [1, 2])
def test_stand_in_for_a_chained_optimizer(tmp_path: Path, interval: int) -> None:
    def train(attach: Attach) -> Any:
        torch.manual_seed(0)
        model = ModelM()
        members = [torch.optim.Adam(part.parameters(), lr=0.01) for part in (model.fc1, model.fc2)]
        chained = ChainedOptimizer(members)
        attach(model, chained)
        torch.manual_seed(1)
        for _ in range(4):
            model(torch.randn(3, 4)).square().mean().backward()
            chained.step()
            chained.zero_grad()
        return [model, *members]

    found = monitored(tmp_path, {**EVERYTHING, "step_interval": interval}, train)
    plain = tmp_path / "plain"
    plain.mkdir()
    same = monitored(plain, {**EVERYTHING, "step_interval": interval}, train_m(steps=4))
    assert found.files == same.files
    for quantity in sorted(found.quantities):
        key = lambda row: (row["step"], row["name"], row.get("micro_step"))  # noqa: E731
        assert sorted(found.rows(quantity), key=key) == sorted(same.rows(quantity), key=key), quantity


class ClippingChain(ChainedOptimizer):
    """That of newer cores: it takes no step if a gradient is not finite, and clips all together."""

    def parameters(self) -> list[Any]:
        return [one for member in self.chained_optimizers for group in member.param_groups for one in group["params"]]

    def prepare_grads(self) -> bool:
        return not all(bool(torch.isfinite(one.grad).all()) for one in self.parameters())

    def step(self) -> None:
        if not self.prepare_grads():
            nn.utils.clip_grad_norm_(self.parameters(), 0.1)
            super().step()


def test_a_chain_has_its_gradients_before_it_clips_and_leaves_a_step_out_as_a_whole(tmp_path: Path) -> None:
    def train(attach: Attach) -> Any:
        torch.manual_seed(0)
        model = ModelM()
        members = [torch.optim.Adam(part.parameters(), lr=0.01) for part in (model.fc1, model.fc2)]
        chain = ClippingChain(members)
        attach(model, chain)
        norms: list[float] = []
        for step in range(4):
            model(torch.randn(3, 4)).square().mean().backward()
            if step == 1:
                model.fc1.bias.grad[0] = math.nan  # type: ignore[index]
            norms.append(float(model.fc2.weight.grad.norm()))  # type: ignore[union-attr]
            chain.step()
            chain.zero_grad()
        return [model, *members, norms]

    measured = monitored(tmp_path, EVERYTHING, train)
    norms = measured.result[-1]
    assert measured.steps("grad_reduced") == measured.steps("actv") == [0, 1, 2]
    for step, batch in enumerate((0, 2, 3)):
        assert measured.norms("grad_reduced", step)["fc2.weight"] == pytest.approx(norms[batch], rel=1e-6)
        assert len(measured.rows("actv", step=step)) == 8
        assert {row["nans"] for row in measured.rows("grad_unreduced", step=step)} == {"0"}


def test_stand_in_for_half_parameters_with_copies(tmp_path: Path) -> None:
    copies: list[Any] = []

    def train(attach: Attach) -> Any:
        torch.manual_seed(0)
        model = ModelM().bfloat16()
        for one in model.parameters():
            one.main_grad = torch.zeros(one.shape)  # type: ignore[attr-defined]
        stepping = Float16OptimizerWithFloat16Params(list(model.parameters()), lr=0.01)
        copies.append(stepping.fp32_from_float16_groups[0])
        attach(model, stepping)
        for _ in range(3):
            model(torch.randn(3, 4).bfloat16()).square().mean().backward()
            for one in model.parameters():
                one.main_grad.add_(one.grad)  # type: ignore[attr-defined]
            stepping.step()
            stepping.zero_grad()
        return [[one.detach() for one in model.parameters()], stepping.optimizer]

    found = monitored(tmp_path, EVERYTHING, train)
    assert found.steps("exp_avg") == [1, 2]
    for quantity in ("grad_reduced", "param_origin", "param_updated", "exp_avg"):
        assert {row["dtype"] for row in found.rows(quantity)} == {"torch.float32"}
        assert found.names(quantity, 1) == PARAMETERS
    for row, copy_of in zip(found.rows("param_updated", step=2), copies[-1], strict=True):
        assert_row(row, copy_of)


class ClipsInside:
    """Steps as the optimizers of Megatron do: prepares gradients, leaves out what is not finite, clips, steps."""

    def __init__(self, parameters: Any, **settings: Any) -> None:
        self.optimizer = torch.optim.Adam(parameters, **settings)
        self.weights = [one for group in self.optimizer.param_groups for one in group["params"]]

    def prepare_grads(self) -> bool:
        for one in self.weights:
            one.grad.div_(4)
        return any(not bool(one.grad.isfinite().all()) for one in self.weights)

    def step(self) -> bool:
        if self.prepare_grads():
            return False
        nn.utils.clip_grad_norm_(self.weights, 0.01)
        self.optimizer.step()
        return True

    def zero_grad(self) -> None:
        self.optimizer.zero_grad()

    def state_dict(self) -> Any:
        return self.optimizer.state_dict()


@pytest.mark.parametrize("interval", [1, 2])
def test_gradients_that_are_clipped_inside_the_step_are_measured_before(tmp_path: Path, interval: int) -> None:
    norms: dict[int, dict[str, float]] = {}
    kept: list[Any] = []

    def clipped(*given: Any, **more: Any) -> Any:
        kept.append(ClipsInside(*given, **more))
        return kept[-1]

    def train(attach: Attach) -> Any:
        torch.manual_seed(0)
        model, times = ModelM(), 0
        optimizer = clipped(model.parameters(), lr=0.01)
        attach(model, optimizer)
        for batch in range(6):
            (model(torch.full((3, 4), 1.0 + batch)).square().mean() * 4).backward()
            if batch in (0, 3):
                model.fc2.bias.grad[0] = math.inf  # type: ignore[index]
            unclipped = {name: float(one.grad.norm()) / 4 for name, one in model.named_parameters()}  # type: ignore[union-attr]
            if optimizer.step():
                norms[times] = unclipped
                times += 1
            optimizer.zero_grad()
        return [model, optimizer.state_dict()]

    found = monitored(tmp_path, {**EVERYTHING, "step_interval": interval, "ndigits": 9}, train)
    steps = list(range(0, 4, interval))
    assert found.steps("grad_reduced") == found.steps("param_updated") == steps
    for step in steps:
        assert found.norms("grad_reduced", step) == pytest.approx(norms[step], rel=1e-5)
        assert {row["nans"] for row in found.rows("grad_unreduced", step=step)} == {"0"}
    assert [vars(one).keys() for one in kept] == [{"optimizer", "weights"}] * 2
