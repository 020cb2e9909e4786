"""``TrainerMon`` on the model M of the specification: what it measures, in which steps, and what it leaves behind."""

from __future__ import annotations

import json
import math
import weakref
from pathlib import Path
from typing import Any

import pytest
import torch
from support.coded_texts import mentions, raising
from torch import nn
from unit.monitor.torch import monitored as shared
from unit.monitor.torch.monitored import (
    EVERYTHING,
    PARAMETERS,
    SIX,
    Attach,
    Measured,
    ModelM,
    assert_nothing_attached,
    assert_row,
    attached,
    attached_to_torch,
    make,
    monitored,
    number,
    train_m,
)

from msprobe.errors import InvalidInputError
from msprobe.monitor.structure import MonitorStop

way = shared.way
GRADIENTS = {"targets": {}, "wg_distribution": True}
NORMS = {"fc1.weight": 0.186978, "fc1.bias": 0.135641, "fc2.weight": 0.286924, "fc2.bias": 0.331276}


def test_gradients_in_six_operators(tmp_path: Path, way: str) -> None:
    gradients: dict[tuple[int, str], torch.Tensor] = {}

    def keep(step: int, model: nn.Module) -> None:
        gradients.update(((step, name), one.grad.clone()) for name, one in model.named_parameters())  # type: ignore[union-attr]

    found = monitored(tmp_path, {**GRADIENTS, "ops": SIX, "ndigits": 12}, train_m(before_step=keep))
    assert found.files == [
        "grad_reduced_0-0.csv",
        "grad_reduced_1-1.csv",
        "grad_unreduced_0-0.csv",
        "grad_unreduced_1-1.csv",
    ]
    for file in found.files:
        assert found.header(file) == "vpp_stage,name,step,min,max,mean,norm,nans,zeros,shape,dtype"
    for step in (0, 1):
        reduced, unreduced = found.rows("grad_reduced", step=step), found.rows("grad_unreduced", step=step)
        assert [row["name"] for row in reduced] == PARAMETERS
        assert [row["name"] for row in unreduced] == PARAMETERS[::-1]
        assert unreduced[::-1] == reduced
        for row in reduced:
            gradient = gradients[step, row["name"]]
            wanted = shared.expected(gradient)
            for op in SIX:
                assert number(row[op]) == pytest.approx(wanted[op], abs=5e-13), (row["name"], op)
            assert row["shape"] == str(list(gradient.shape))
            assert row["dtype"] == "torch.float32"
            assert row["vpp_stage"] == "0"
    assert found.norms("grad_reduced") == pytest.approx(NORMS, abs=5e-7)


def test_everything_is_measured_and_changes_nothing(tmp_path: Path, way: str) -> None:
    found = monitored(tmp_path, EVERYTHING, train_m(steps=2, dropout=0.5))
    both = ["actv", "actv_grad", "grad_reduced", "grad_unreduced", "other", "param_origin", "param_updated", "update"]
    names = [f"{name}_{step}-{step}.csv" for name in both for step in (0, 1)]
    assert found.files == sorted([*names, "exp_avg_1-1.csv", "exp_avg_sq_1-1.csv", "stack_info.csv"])
    assert {row["norm"] for row in found.rows("other", step=0)} == {"1"}
    assert all(0 <= number(row["norm"]) <= 1 for row in found.rows("other", step=1))
    updated, origin = found.rows("param_updated", step=0), found.rows("param_origin", step=1)
    assert [{**row, "step": "1"} for row in updated] == origin
    model: Any = found.result[0]
    for row in found.rows("param_updated", step=1):
        assert_row(row, dict(model.named_parameters())[row["name"]])


def test_moments_are_those_before_the_step(tmp_path: Path, way: str) -> None:
    moments: dict[tuple[str, str], torch.Tensor] = {}

    def train(attach: Attach) -> Any:
        def keep(step: int, model: nn.Module) -> None:
            for name, one in model.named_parameters():
                for word in ("exp_avg", "exp_avg_sq"):
                    if step == 1:
                        moments[word, name] = adams[-1].state[one][word].clone()

        def adam(*given: Any, **more: Any) -> Any:
            adams.append(torch.optim.Adam(*given, **more))
            return adams[-1]

        adams: list[Any] = []
        return train_m(steps=2, optimizer=adam, before_step=keep)(attach)

    found = monitored(tmp_path, {"mv_distribution": True, "ops": SIX}, train)
    for word in ("exp_avg", "exp_avg_sq"):
        rows = found.rows(word)
        assert [row["name"] for row in rows] == PARAMETERS
        assert {row["step"] for row in rows} == {"1"}
        for row in rows:
            assert_row(row, moments[word, row["name"]])


def test_direction_counts_equal_signs(tmp_path: Path, way: str) -> None:
    shares: dict[str, float] = {}

    def train(attach: Attach) -> Any:
        def keep(step: int, model: nn.Module) -> None:
            for name, one in model.named_parameters():
                if step == 1:
                    moment = adams[-1].state[one]["exp_avg"]
                    shares[name] = float(((one.grad.sign() * moment.sign()).mean() + 1) / 2)  # type: ignore[union-attr]

        def adam(*given: Any, **more: Any) -> Any:
            adams.append(torch.optim.Adam(*given, **more))
            return adams[-1]

        adams: list[Any] = []
        return train_m(steps=2, optimizer=adam, before_step=keep)(attach)

    found = monitored(tmp_path, {"mg_direction": True, "ops": ["norm", "max"]}, train)
    assert found.norms("other", 1) == pytest.approx(shares)
    assert found.norms("other", 1, "max") == pytest.approx(shares)
    assert set(found.norms("other", 0).values()) == {1.0}


def test_update_is_what_the_step_changed(tmp_path: Path) -> None:
    found = monitored(tmp_path, {"ur_distribution": True, "param_distribution": True}, _train_noting_changes())
    changed = found.result[-1]
    for step in (0, 1, 2):
        assert found.norms("update", step) == pytest.approx({n: c for n, (c, _) in changed[step].items()}, rel=1e-3)
        ratios = {name: change / after for name, (change, after) in changed[step].items()}
        assert found.norms("update", step, "ratio") == pytest.approx(ratios, rel=1e-3)


def _train_noting_changes() -> shared.Train:
    def train(attach: Attach) -> Any:
        torch.manual_seed(0)
        model = ModelM()
        adam = torch.optim.Adam(model.parameters(), lr=0.01)
        attach(model, adam)
        changed = []
        for _ in range(3):
            model(torch.randn(3, 4)).square().mean().backward()
            before = {name: one.detach().clone() for name, one in model.named_parameters()}
            adam.step()
            adam.zero_grad()
            after = {name: one.detach() for name, one in model.named_parameters()}
            changed.append(
                {name: (float((after[name] - old).norm()), float(after[name].norm())) for name, old in before.items()}
            )
        return [model, adam, changed]

    return train


def test_rows_of_micro_steps(tmp_path: Path, way: str) -> None:
    found = monitored(
        tmp_path,
        {"xy_distribution": True, "wg_distribution": True},
        train_m(steps=2, accumulated=3),
        grad_acc_steps=3,
    )
    assert found.header("actv_0-0.csv") == "vpp_stage,name,step,micro_step,norm,shape,dtype"
    for quantity in ("actv", "actv_grad"):
        rows = found.rows(quantity, step=1)
        names = [f"{module}.{side}" for module in ("fc1", "drop", "fc2", "") for side in ("input", "output")]
        assert {(row["name"], row["micro_step"]) for row in rows} == {(n, str(k)) for n in names for k in range(3)}
        assert len(rows) == 24
        assert [row["micro_step"] for row in rows] == ["0", "1", "2"] * 8
    first = found.rows("actv", name="fc1.input", step=0)
    assert [number(row["norm"]) for row in first] == pytest.approx([2.401538, 4.955195, 4.049298], abs=5e-7)
    assert len(found.rows("grad_unreduced", step=0)) == 4
    assert "micro_step" not in found.header("grad_unreduced_0-0.csv")
    assert found.norms("grad_unreduced") == found.norms("grad_reduced")


def test_gradients_of_each_micro_step(tmp_path: Path, way: str) -> None:
    found = monitored(
        tmp_path, {**GRADIENTS, "monitor_mbs_grad": True}, train_m(steps=2, accumulated=2), grad_acc_steps=2
    )
    for step in (0, 1):
        rows = found.rows("grad_unreduced", step=step)
        assert len(rows) == 8
        last = {row["name"]: row["norm"] for row in rows if row["micro_step"] == "1"}
        first = {row["name"]: row["norm"] for row in rows if row["micro_step"] == "0"}
        assert last == {row["name"]: row["norm"] for row in found.rows("grad_reduced", step=step)}
        assert all(first[name] != last[name] for name in PARAMETERS)


def test_the_share_of_each_micro_step(tmp_path: Path, way: str) -> None:
    """``micro_delta``: what this micro batch has added, not what has gathered so far."""
    shares: list[dict[str, torch.Tensor]] = []

    def train(attach: Attach) -> Any:
        torch.manual_seed(0)
        model = ModelM()
        sgd = torch.optim.SGD(model.parameters(), lr=0.1)
        attach(model, sgd)
        for _ in range(2):
            before = {name: torch.zeros_like(one) for name, one in model.named_parameters()}
            for _ in range(3):
                model(torch.randn(3, 4)).square().mean().backward()
                now = {name: one.grad.clone() for name, one in model.named_parameters()}  # type: ignore[union-attr]
                shares.append({name: now[name] - before[name] for name in now})
                before = now
            sgd.step()
            sgd.zero_grad()
        return [model]

    config = {**GRADIENTS, "monitor_mbs_grad": True, "micro_delta": True}
    found = monitored(tmp_path, config, train, grad_acc_steps=3)
    for row in found.rows("grad_unreduced"):
        share = shares[3 * int(row["step"]) + int(row["micro_step"])][row["name"]]
        assert number(row["norm"]) == pytest.approx(float(share.double().norm()), rel=1e-5)
    assert len(found.rows("grad_unreduced")) == 24


@pytest.mark.parametrize(
    ("steps", "config", "attached_with", "files", "recorded"),
    [
        (7, {"step_count_per_record": 5}, {}, ["0-4", "5-9"], [0, 1, 2, 3, 4, 5, 6]),
        (7, {"start_step": 2, "step_interval": 2}, {}, ["2-2", "4-4", "6-6"], [2, 4, 6]),
        (2, {}, {"start_iteration": 10}, ["10-10", "11-11"], [10, 11]),
        (5, {"collect_times": 2}, {}, ["0-0", "1-1"], [0, 1]),
        (3, {"collect_times": 0}, {}, ["0-0"], [0]),
        (9, {"start_step": 2, "step_interval": 3, "collect_times": 2}, {}, ["2-2", "5-5"], [2, 5]),
        (4, {"start_step": 3}, {"start_iteration": 2}, ["3-3", "4-4", "5-5"], [3, 4, 5]),
    ],
)
def test_steps_that_are_measured(
    tmp_path: Path,
    steps: int,
    config: dict[str, Any],
    attached_with: dict[str, Any],
    files: list[str],
    recorded: list[int],
) -> None:
    found = monitored(tmp_path, {**EVERYTHING, "mg_direction": False, **config}, train_m(steps=steps), **attached_with)
    for quantity in ("grad_reduced", "grad_unreduced", "actv", "actv_grad", "param_origin", "param_updated"):
        assert found.steps(quantity) == recorded
        assert [name for name in found.files if name.rpartition("_")[0] == quantity] == sorted(
            f"{quantity}_{one}.csv" for one in files
        )


def test_steps_between_have_nothing_attached(tmp_path: Path) -> None:
    seen: list[bool] = []

    def train(attach: Attach) -> Any:
        torch.manual_seed(0)
        model = ModelM()
        adam = torch.optim.Adam(model.parameters())
        attach(model, adam)
        for _ in range(7):
            seen.append(bool(attached(model)))
            model(torch.randn(3, 4)).square().mean().backward()
            adam.step()
            adam.zero_grad()
        return [model, adam]

    found = monitored(tmp_path, {**EVERYTHING, "start_step": 1, "step_interval": 3}, train)
    assert seen == [False] * 7 + [False, True, False, False, True, False, False]
    assert found.steps("grad_reduced") == [1, 4]


def test_after_the_last_step_that_is_asked_for_nothing_is_attached(tmp_path: Path) -> None:
    before = attached_to_torch()
    monitor = make(tmp_path, {**EVERYTHING, "collect_times": 2})
    model = ModelM()
    adam = torch.optim.Adam(model.parameters())
    monitor.set_monitor(model, optimizer=adam)
    assert attached(model)
    for step in range(5):
        model(torch.randn(3, 4)).square().mean().backward()
        adam.step()
        if step:
            assert_nothing_attached(model)
            assert attached_to_torch() == before
    monitor.stop()
    assert Measured(monitor).steps("actv") == [0, 1]


@pytest.mark.parametrize(
    ("target", "parameters", "modules"),
    [
        ("fc1", ["fc1.weight", "fc1.bias"], ["fc1.input", "fc1.output"]),
        ("0:fc1", ["fc1.weight", "fc1.bias"], ["fc1.input", "fc1.output"]),
        ("fc1.weight", ["fc1.weight"], []),
        ("1:fc1", [], []),
        ("nope", [], []),
        ("", PARAMETERS, [".input", ".output"]),
    ],
)
def test_targets(
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
    target: str,
    parameters: list[str],
    modules: list[str],
) -> None:
    found = monitored(tmp_path, {"targets": {target: {}}, "xy_distribution": True, "wg_distribution": True}, train_m())
    said = capfd.readouterr().out
    if parameters:
        assert found.names("grad_reduced") == parameters
        assert found.names("grad_unreduced") == parameters[::-1]
    if modules:
        assert found.names("actv") == modules
    assert found.quantities == {
        *(("grad_reduced", "grad_unreduced") if parameters else ()),
        *(("actv", "actv_grad") if modules else ()),
    }
    assert (target in said and mentions(said, "monitor-targets-unknown")) == (not parameters)
    assert ("nothing was measured" in said) == (not parameters)


@pytest.mark.parametrize(
    ("target", "said"),
    [
        ("fc3", "fc3 (did you mean fc"),
        ("fc1.weigth", "fc1.weigth (did you mean fc1.weight?)"),
        ("fc1.wei", "fc1.wei in targets is no whole name (did you mean fc1.weight?)"),
        ("0:fc", "0:fc in targets is no whole name (did you mean fc"),
    ],
)
def test_a_mistyped_target_is_reported_with_the_nearest_name(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], target: str, said: str
) -> None:
    monitored(tmp_path, {"targets": {target: {}, "fc2": {}}, "xy_distribution": True}, train_m())
    assert said in capfd.readouterr().out


@pytest.mark.parametrize("target", ["fc1", "fc1.", "fc1.weight", "0:fc1", "drop"])
def test_a_target_that_is_a_whole_name_is_not_said(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], target: str
) -> None:
    config = {"targets": {target: {}}, "xy_distribution": True, "all_xy": True, "wg_distribution": True}
    monitored(tmp_path, config, train_m())
    assert "in targets" not in capfd.readouterr().out


def test_rules_that_see_nothing_are_reported_once(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    rules = [{"rule_name": "ExplodingUpdateRatio"}, {"rule_name": "LossSpike"}]
    config = {"wg_distribution": True, "alert": {"rules": rules}}
    monitored(tmp_path, config, train_m(steps=4))
    shown = capfd.readouterr().out
    assert mentions(shown, "rule-never-fires", rule="ExplodingUpdateRatio") == 1
    assert mentions(shown, "rule-saw-no-loss") == 1


def test_all_xy_keeps_targets_for_parameters(tmp_path: Path) -> None:
    config = {"targets": {"fc2": {}}, "xy_distribution": True, "all_xy": True, "wg_distribution": True}
    found = monitored(tmp_path, config, train_m())
    assert found.names("grad_reduced") == ["fc2.weight", "fc2.bias"]
    assert len(found.names("actv")) == 8


@pytest.mark.parametrize(
    ("config", "quantities"),
    [
        ({"forward_only": True}, {"actv"}),
        ({"backward_only": True}, {"actv_grad"}),
        ({"forward_only": True, "backward_only": True}, set()),
    ],
)
def test_one_direction(tmp_path: Path, config: dict[str, Any], quantities: set[str]) -> None:
    assert monitored(tmp_path, {"xy_distribution": True, **config}, train_m()).quantities == quantities


def test_frozen_parameters_are_left_out(tmp_path: Path) -> None:
    def train(attach: Attach) -> Any:
        torch.manual_seed(0)
        model = ModelM()
        model.fc1.weight.requires_grad_(False)
        adam = torch.optim.Adam([one for one in model.parameters() if one.requires_grad])
        attach(model, adam)
        for _ in range(2):
            model(torch.randn(3, 4)).square().mean().backward()
            adam.step()
            adam.zero_grad()
        return [model, adam]

    found = monitored(tmp_path, EVERYTHING, train)
    for quantity in ("grad_reduced", "param_origin", "param_updated"):
        assert found.names(quantity) == PARAMETERS[1:]


def test_a_scheduler_made_before_does_no_harm(tmp_path: Path) -> None:
    def train(attach: Attach) -> Any:
        torch.manual_seed(0)
        model = ModelM()
        adam = torch.optim.Adam(model.parameters(), lr=0.01)
        scheduler = torch.optim.lr_scheduler.StepLR(adam, 1, 0.5)
        attach(model, adam)
        torch.manual_seed(1)
        for _ in range(3):
            model(torch.randn(3, 4)).square().mean().backward()
            adam.step()
            scheduler.step()
            adam.zero_grad()
        return [model, adam, scheduler.state_dict()]

    found = monitored(tmp_path, GRADIENTS, train)
    assert found.steps("grad_reduced") == [0, 1, 2]
    assert found.norms("grad_reduced") == pytest.approx(NORMS, abs=5e-7)


@pytest.mark.parametrize("other", [torch.optim.Adam, torch.optim.AdamW])
@pytest.mark.parametrize("is_first", [True, False])
def test_another_optimizer_counts_no_steps(tmp_path: Path, other: Any, is_first: bool) -> None:
    def train(attach: Attach) -> Any:
        torch.manual_seed(0)
        model, beside = ModelM(), ModelM()
        adam = torch.optim.Adam(model.parameters(), lr=0.01)
        second = other(beside.parameters(), lr=0.01)
        attach(model, adam)
        torch.manual_seed(1)
        for _ in range(3):
            for one, optimizer in [(model, adam), (beside, second)][:: 1 if is_first else -1]:
                one(torch.randn(3, 4)).square().mean().backward()
                optimizer.step()
                optimizer.zero_grad()
        return [model, beside, adam, second]

    found = monitored(tmp_path, EVERYTHING, train)
    assert found.steps("grad_reduced") == [0, 1, 2]
    for step in range(3):
        assert found.names("grad_reduced", step) == PARAMETERS
        assert len(found.rows("actv", step=step)) == 8


def test_a_skipped_step_of_a_scaler_is_not_counted(tmp_path: Path, way: str) -> None:
    def train(attach: Attach) -> Any:
        torch.manual_seed(0)
        model = ModelM()
        adam = torch.optim.Adam(model.parameters(), lr=0.01)
        scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
        attach(model, adam)
        norms: list[Any] = []
        for step in range(3):
            loss = model(torch.randn(3, 4)).square().mean()
            scaler.scale(loss).backward()
            if step == 1:
                model.fc1.weight.grad[0, 0] = math.inf  # type: ignore[index]
            norms.append((float(model.fc2.bias.grad.norm()), scaler.get_scale()))  # type: ignore[union-attr]
            scaler.step(adam)
            scaler.update()
            adam.zero_grad()
        return [model, adam, norms]

    found = monitored(tmp_path, EVERYTHING, train)
    norms = found.result[-1]
    assert found.steps("grad_reduced") == [0, 1]
    for step, batch in ((0, 0), (1, 2)):
        scaled, scale = norms[batch]
        assert found.norms("grad_reduced", step)["fc2.bias"] == pytest.approx(scaled / scale, rel=1e-6)
        # What the skipped batch has measured is of no step that was taken.
        assert found.norms("grad_unreduced", step)["fc2.bias"] == pytest.approx(scaled, rel=1e-6)
        assert len(found.rows("grad_unreduced", step=step)) == 4
        assert len(found.rows("actv", step=step)) == 8


def test_other_operators_while_it_runs(tmp_path: Path, way: str) -> None:
    def train(attach: Attach) -> Any:
        torch.manual_seed(0)
        model = ModelM()
        adam = torch.optim.Adam(model.parameters(), lr=0.01)
        attach(model, adam)
        torch.manual_seed(1)
        for step in range(4):
            model(torch.randn(3, 4)).square().mean().backward()
            if step == 1 and monitors:
                monitors[-1].ops = ["min", "max"]
            adam.step()
            adam.zero_grad()
        return [model, adam]

    monitors: list[Any] = []

    def watched(attach: Attach) -> Any:
        def attach_and_keep(model: Any, optimizer: Any) -> None:
            attach(model, optimizer)
            monitors.clear()
            monitors.append(monitor)

        return train(attach_and_keep)

    monitor = make(tmp_path, {**GRADIENTS, "xy_distribution": True})
    watched(lambda model, optimizer: monitor.set_monitor(model, optimizer=optimizer))
    monitor.stop()
    found = Measured(monitor)
    assert found.header("grad_reduced_1-1.csv") == "vpp_stage,name,step,norm,shape,dtype"
    assert found.header("grad_reduced_2-2.csv") == "vpp_stage,name,step,min,max,shape,dtype"
    assert monitor.ops == ["min", "max"]
    plain = monitored(tmp_path, {**GRADIENTS, "xy_distribution": True, "ops": ["min", "max"]}, train_m(steps=4))
    for quantity in ("grad_reduced", "grad_unreduced", "actv", "actv_grad"):
        assert found.rows(quantity, step=3) == plain.rows(quantity, step=3)
    with pytest.raises(TypeError, match="ops") as refused:
        monitor.ops = "norm"
    assert mentions(str(refused.value), "must-be-list-of", found='"norm"')


# ---------------------------------------------------------------- the interface


@pytest.mark.parametrize(
    "order", ["keywords", "as 8.1.1", "as its documents", "the old way", "the old way, given twice"]
)
def test_ways_to_attach(tmp_path: Path, order: str) -> None:
    monitor = make(tmp_path, GRADIENTS)
    model = ModelM()
    adam = torch.optim.Adam(model.parameters())
    if order == "keywords":
        monitor.set_monitor(model, grad_acc_steps=2, optimizer=adam, dp_group=None, tp_group=None, start_iteration=3)
    elif order == "as 8.1.1":
        monitor.set_monitor(model, adam, 2, None, None, 3)
    elif order == "as its documents":
        monitor.set_monitor(model, 2, adam, None, None, 3)
    else:
        monitor.set_wrapped_optimizer(adam)
        given = adam if order.endswith("twice") else None
        monitor.monitor_gnorm_with_ad(model, given, grad_acc_steps=2, start_iteration=3)
    for _ in range(2):
        for _ in range(2):
            model(torch.randn(3, 4)).square().mean().backward()
        adam.step()
    monitor.stop()
    found = Measured(monitor)
    assert found.steps("grad_unreduced") == [3, 4]
    assert len(found.rows("grad_unreduced")) == 8


def test_without_an_optimizer_nothing_is_attached(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    monitor = make(tmp_path, GRADIENTS)
    model = ModelM()
    monitor.monitor_gnorm_with_ad(model)
    assert mentions(capfd.readouterr().out, "monitor-without-optimizer")
    assert_nothing_attached(model)
    with raising(InvalidInputError, "monitor-optimizer-wrong", type="NoneType"):
        monitor.set_monitor(model)
    with raising(InvalidInputError, "monitor-torch-model-wrong", type="str"):
        monitor.set_monitor("model", optimizer=torch.optim.Adam(model.parameters()))  # type: ignore[arg-type]


def test_bad_counts_are_put_right(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    monitor = make(tmp_path, GRADIENTS)
    model = ModelM()
    monitor.set_monitor(model, torch.optim.Adam(model.parameters()), grad_acc_steps=0, start_iteration=-1)
    said = capfd.readouterr().out
    assert mentions(said, "set-monitor-number-wrong", name="grad_acc_steps", least="1", value=0, default="1")
    assert mentions(said, "set-monitor-number-wrong", name="start_iteration", least="0", value=-1, default="0")
    monitor.stop()


def test_stop_and_begin_again(tmp_path: Path) -> None:
    """A training that goes on after stop() is as it was; a second one is watched by a second monitor."""
    model = ModelM()
    adam = torch.optim.Adam(model.parameters())
    before = attached_to_torch()
    for _ in range(2):
        with make(tmp_path, EVERYTHING) as monitor:
            monitor.set_monitor(model, optimizer=adam)
            with raising(InvalidInputError, "monitor-watches-already"):
                monitor.set_monitor(model, optimizer=adam)
            for _ in range(2):
                model(torch.randn(3, 4)).square().mean().backward()
                adam.step()
        monitor.stop()
        assert_nothing_attached(model)
        assert attached_to_torch() == before
        assert Measured(monitor).steps("actv") == [0, 1]


def test_what_was_measured_last(tmp_path: Path) -> None:
    monitor = make(tmp_path, {**EVERYTHING, "format": "api", "ops": ["norm", "max"]})
    model = ModelM()
    adam = torch.optim.Adam(model.parameters())
    monitor.set_monitor(model, optimizer=adam)
    for _ in range(2):
        model(torch.randn(3, 4)).square().mean().backward()
        norms = {name: float(one.grad.norm()) for name, one in model.named_parameters()}  # type: ignore[union-attr]
        adam.step()
    monitor.flush()
    actv, actv_grad = monitor.generate_xy_metrics()
    reduced, unreduced = monitor.generate_wgrad_metrics()
    assert set(reduced) == {f"0:{name}/rank0/post_grad" for name in PARAMETERS}
    assert set(unreduced) == {f"0:{name}/rank0/pre_grad" for name in PARAMETERS}
    assert "0:fc1.input:0/rank0/actv" in actv
    assert "0:fc1.output:0/rank0/actv_grad" in actv_grad
    for name, norm in norms.items():
        one = reduced[f"0:{name}/rank0/post_grad"]
        assert set(one) == {"norm", "max", "shape", "dtype"}
        assert one["norm"].shape == ()
        assert float(one["norm"]) == pytest.approx(norm, rel=1e-6)
        assert one["shape"] == model.get_parameter(name).shape
        assert one["dtype"] == torch.float32
    assert monitor.output_path is None
    assert not (tmp_path / "out").exists()
    monitor.stop()


def test_a_function_is_called_with_each_step(tmp_path: Path) -> None:
    told: list[Any] = []
    monitor = make(tmp_path, GRADIENTS, on_metrics=lambda step, rows: told.append((step, rows)))
    train_m(steps=3)(lambda model, optimizer: monitor.set_monitor(model, optimizer=optimizer))
    monitor.stop()
    assert [step for step, _ in told] == [0, 1, 2]
    assert [row.name for row in told[0][1]["grad_reduced"]] == PARAMETERS


def test_an_unknown_format_is_csv(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    found = monitored(tmp_path, {**GRADIENTS, "format": "xml"}, train_m())
    assert mentions(capfd.readouterr().out, "setting-used-instead", field="format", found='"xml"', default='"csv"')
    assert found.quantities == {"grad_reduced", "grad_unreduced"}


def test_activations_are_switched_on_and_off(tmp_path: Path) -> None:
    monitor = make(tmp_path, GRADIENTS)
    model = ModelM()
    adam = torch.optim.Adam(model.parameters())
    monitor.set_monitor(model, optimizer=adam)
    for step in range(6):
        if step in (1, 3):
            monitor.reload_xy(xy_distribution=step == 1)
        model(torch.randn(3, 4)).square().mean().backward()
        adam.step()
    monitor.stop()
    found = Measured(monitor)
    assert found.steps("actv") == [2, 3]
    assert found.steps("grad_reduced") == [0, 1, 2, 3, 4, 5]


# ---------------------------------------------------------------- one look


def test_the_structure_is_written_and_the_training_stops(tmp_path: Path) -> None:
    monitor = make(tmp_path, {"print_struct": True})
    model = ModelM()
    adam = torch.optim.Adam(model.parameters())
    monitor.set_monitor(model, optimizer=adam)
    model(torch.randn(3, 4)).square().mean().backward()
    with raising(MonitorStop, "print-struct-ends-training"):
        adam.step()
    assert_nothing_attached(model)
    found = json.loads((tmp_path / "out" / "module_struct.json").read_text())
    assert found == json.loads((tmp_path / "out" / "module_struct" / "rank0" / "module_struct.json").read_text())
    assert list(found) == ["0:fc1", "0:drop", "0:fc2", "0:"]
    assert found["0:fc1"] == {
        "input": {"config": "list[1]", "0": "size=(3, 4), dtype=torch.float32"},
        "output": {"config": "tensor", "tensor": "size=(3, 8), dtype=torch.float32"},
        "input_grad": {"config": "tuple[1]", "0": "<class 'NoneType'>"},
        "output_grad": {"config": "tuple[1]", "0": "size=(3, 8), dtype=torch.float32"},
    }


def test_the_structure_is_written_and_the_training_goes_on(tmp_path: Path) -> None:
    found = monitored(tmp_path, {"print_struct": "continue", "wg_distribution": True}, train_m(steps=3))
    assert (tmp_path / "out" / "module_struct.json").exists()
    assert found.steps("grad_reduced") == [1, 2]


def test_stacks_of_modules(tmp_path: Path) -> None:
    found = monitored(tmp_path, {"stack_info": True, "wg_distribution": True, "targets": {"fc1": {}}}, train_m(steps=3))
    assert found.header("stack_info.csv") == "module_name,stack_info"
    import csv

    assert found.folder is not None
    with (found.folder / "stack_info.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["module_name"] for row in rows] == ["fc1", "drop", "fc2", ""]
    assert "monitored.py" in rows[0]["stack_info"]
    assert "in train" in rows[0]["stack_info"]


# ---------------------------------------------------------------- memory, errors


def test_no_gradient_is_kept(tmp_path: Path) -> None:
    """With accumulation and a row for each micro batch, no copy of a gradient outlives its hook."""
    kept: list[weakref.ref[torch.Tensor]] = []
    alive: list[int] = []

    def train(attach: Attach) -> Any:
        torch.manual_seed(0)
        model = ModelM()
        sgd = torch.optim.SGD(model.parameters(), lr=0.1)
        attach(model, sgd)
        for _ in range(3):
            for _ in range(4):
                model(torch.randn(3, 4)).square().mean().backward()
            kept.extend(weakref.ref(one.grad) for one in model.parameters())
            sgd.step()
            sgd.zero_grad()
            alive.append(sum(one() is not None for one in kept))
            kept.clear()
        return [model]

    config = {**GRADIENTS, "monitor_mbs_grad": True, "ops": SIX}
    monitored(tmp_path, config, train, grad_acc_steps=4)
    assert alive == [0] * 6


def test_an_error_of_the_user_leaves_the_monitor_able_to_go_on(tmp_path: Path, way: str) -> None:
    class Failing(ModelM):
        fails = ""

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            out = super().forward(x)
            if self.fails == "forward":
                raise RuntimeError("the user's")
            return out

    def train(attach: Attach) -> Any:
        torch.manual_seed(0)
        model = Failing()
        adam = torch.optim.Adam(model.parameters(), lr=0.01)
        attach(model, adam)
        for fails in ("", "forward", "", "backward", "step", ""):
            model.fails = fails
            try:
                out = model(torch.randn(3, 4))
                if fails == "backward":
                    out.register_hook(_fail)
                out.square().mean().backward()
                adam.step(_fail if fails == "step" else None)
            except RuntimeError:
                pass
            adam.zero_grad()
        return [model, adam]

    found = monitored(tmp_path, EVERYTHING, train)
    assert found.steps("grad_reduced") == [0, 1, 2]
    for step in range(3):
        assert found.names("param_updated", step) == PARAMETERS
        names = found.names("actv", step)
        assert len(names) == 8, names
        assert all("#" not in name for name in names)


def _fail(*given: Any) -> Any:
    raise RuntimeError("the user's")


@pytest.mark.parametrize("how", ["clipped", "numpy", "scaled", "replaced", "untouched"])
def test_reduced_gradients_are_those_that_the_optimizer_gets(tmp_path: Path, how: str) -> None:
    """Whoever writes to a gradient behind the backward pass, also where torch counts no change."""
    norms: list[float] = []

    def train(attach: Attach) -> Any:
        torch.manual_seed(0)
        model = ModelM()
        sgd = torch.optim.SGD(model.parameters(), lr=0.1)
        scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
        attach(model, sgd)
        loss = model(torch.randn(3, 4)).square().mean()
        (scaler.scale(loss) if how == "scaled" else loss).backward()
        weight = model.fc1.weight
        assert weight.grad is not None
        if how == "clipped":
            nn.utils.clip_grad_norm_(model.parameters(), 0.01)
        elif how == "numpy":
            weight.grad.numpy()[0, 0] = 7.0
        elif how == "scaled":
            scaler.unscale_(sgd)
        elif how == "replaced":
            weight.grad = weight.grad * 2
        norms.append(float(weight.grad.double().norm()))
        sgd.step()
        return [model]

    found = monitored(tmp_path, GRADIENTS, train)
    assert found.norms("grad_reduced")["fc1.weight"] == pytest.approx(norms[-1], rel=1e-7)
    same = found.norms("grad_unreduced")["fc1.weight"] == pytest.approx(norms[-1], rel=1e-7)
    assert same == (how == "untouched")
