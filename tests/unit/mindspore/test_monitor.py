"""``TrainerMon`` on trainings of MindSpore: what it measures, in which steps, and what it leaves behind."""

from __future__ import annotations

import csv
import json
import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.coded_texts import mentions

mindspore = pytest.importorskip("mindspore", reason="MindSpore is not installed here; `make test-mindspore` runs these")
pytestmark = pytest.mark.mindspore

from mindspore import nn, ops  # noqa: E402
from mindspore.experimental import optim  # noqa: E402

from msprobe import log  # noqa: E402
from msprobe.capture import native  # noqa: E402
from msprobe.mindspore import PrecisionDebugger, TrainerMon  # noqa: E402
from msprobe.monitor.framework import DEFER  # noqa: E402
from msprobe.monitor.structure import MonitorStop  # noqa: E402

SIX = ["min", "max", "mean", "norm", "nans", "zeros"]
GRADIENTS: dict[str, Any] = {"targets": {}, "wg_distribution": True}
EVERYTHING: dict[str, Any] = {
    **GRADIENTS,
    "xy_distribution": True,
    "mv_distribution": True,
    "param_distribution": True,
    "mg_direction": True,
    "stack_info": True,
    "ops": SIX,
}
PARAMETERS = ["fc1.weight", "fc1.bias", "fc2.weight", "fc2.bias"]
Rows = list[dict[str, str]]


class ModelM(nn.Cell):
    """The model M of the specification."""

    def __init__(self, kept: float = 1.0) -> None:
        super().__init__()
        self.fc1 = nn.Dense(4, 8)
        self.drop = nn.Dropout(p=1 - kept)
        self.fc2 = nn.Dense(8, 2)

    def construct(self, x: Any) -> Any:
        return self.fc2(self.drop(ops.relu(self.fc1(x))))


class Training:
    """A training of the model M; what must be the same with and without a monitor, and what the optimizer was given."""

    def __init__(self, steps: int = 2, accumulated: int = 1, kept: float = 1.0, make: Any = None) -> None:
        self.steps = steps
        self.accumulated = accumulated
        self.kept = kept
        self.make = make or (lambda net: nn.Adam(net.trainable_params(), 0.01))
        self.gradients: list[dict[str, Any]] = []
        self.micro: list[dict[str, Any]] = []
        self.net: Any = None
        self.before_step: Callable[[int, list[Any]], list[Any]] = lambda step, gradients: gradients
        self.behind_step: Callable[[int, Any], None] = lambda step, net: None

    def run(self, attach: Callable[[Any, Any], None]) -> list[Any]:
        mindspore.set_context(mode=mindspore.PYNATIVE_MODE)
        mindspore.set_seed(0)
        np.random.seed(0)
        self.gradients, self.micro = [], []
        net = self.net = ModelM(self.kept)
        net.set_train()
        optimizer = self.make(net)
        attach(net, optimizer)
        names = [one.name for one in net.trainable_params()]
        step = mindspore.value_and_grad(lambda x: (net(x) ** 2).mean() / self.accumulated, None, net.trainable_params())
        losses = []
        for number in range(self.steps):
            total: Any = None
            for _ in range(self.accumulated):
                loss, gradients = step(mindspore.Tensor(np.random.randn(3, 4).astype(np.float32)))
                losses.append(loss.asnumpy())
                self.micro.append({name: one.asnumpy().copy() for name, one in zip(names, gradients, strict=True)})
                total = gradients if total is None else [a + b for a, b in zip(total, gradients, strict=True)]
            given = self.before_step(number, list(total))
            self.gradients.append({name: one.asnumpy().copy() for name, one in zip(names, given, strict=True)})
            optimizer(tuple(given))
            self.behind_step(number, net)
        states = [one.asnumpy() for one in optimizer.get_parameters()]
        return [*losses, *states, np.random.rand(2), mindspore.get_rng_state().asnumpy()]


def hooks_of(net: Any) -> int:
    return sum(len(cell._forward_pre_hook) + len(cell._forward_hook) for _, cell in net.cells_and_names())


def parameter_hooks_of(net: Any) -> int:
    return sum(len(getattr(one, "_backward_hooks", None) or ()) for one in net.trainable_params())


@pytest.fixture(autouse=True)
def _apart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setenv("MONITOR_OUTPUT_DIR", str(tmp_path / "out"))
    log.forget_once()
    yield
    PrecisionDebugger.reset()


class Measured:
    """What a monitor has written."""

    def __init__(self, monitor: TrainerMon) -> None:
        assert monitor.output_path is not None
        self.folder = Path(monitor.output_path)

    @property
    def files(self) -> set[str]:
        return {path.name for path in self.folder.glob("*.csv")}

    def rows(self, quantity: str, step: int | None = None) -> Rows:
        found: Rows = []
        for path in sorted(self.folder.glob(f"{quantity}_[0-9]*.csv"), key=lambda one: int(one.stem.split("-")[-1])):
            with path.open(newline="") as file:
                found += csv.DictReader(file)
        return [row for row in found if step is None or row["step"] == str(step)]

    def steps(self, quantity: str) -> list[int]:
        return list(dict.fromkeys(int(row["step"]) for row in self.rows(quantity)))


def make(folder: Path, config: Mapping[str, Any], **made: Any) -> TrainerMon:
    path = folder / "monitor.json"
    path.write_text(json.dumps(config))
    return TrainerMon(path, **made)


def monitored(folder: Path, config: Mapping[str, Any], training: Training, **attached: Any) -> Measured:
    """Train without and with a monitor: nothing differs to the last bit, nothing is left attached."""
    bare = training.run(lambda net, optimizer: None)
    calls = nn.Optimizer.__call__, optim.Optimizer.__call__, nn.Cell.__call__, ops.relu
    monitor = make(folder, config)
    watched = training.run(lambda net, optimizer: monitor.set_monitor(net, optimizer=optimizer, **attached))
    monitor.stop()
    assert len(bare) == len(watched)
    for mine, other in zip(bare, watched, strict=True):
        assert mine.tobytes() == other.tobytes()
    assert hooks_of(training.net) == 0
    assert parameter_hooks_of(training.net) == 0
    assert calls == (nn.Optimizer.__call__, optim.Optimizer.__call__, nn.Cell.__call__, ops.relu)
    return Measured(monitor)


def assert_row(row: Mapping[str, str], array: Any) -> None:
    wide = array.astype(np.float64)
    wanted = {
        "min": wide.min(),
        "max": wide.max(),
        "mean": wide.mean(),
        "norm": math.sqrt(np.square(wide).sum()),
        "nans": np.isnan(wide).sum(),
        "zeros": (np.abs(wide) < 1e-8).mean(),
    }
    for op, value in wanted.items():
        assert float(row[op]) == pytest.approx(float(value), rel=1e-8, abs=1e-15), (row["name"], op)
    assert row["shape"] == str(list(array.shape))
    assert row["dtype"] == "Float32"


@pytest.fixture(params=["as usual", "without the C extension", "as on a device"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    if request.param == "as on a device":
        monkeypatch.setenv(DEFER, "1")
    elif request.param == "without the C extension":
        monkeypatch.setattr(native, "numbers", None)
        monkeypatch.setattr(native, "count_below", None)
    return str(request.param)


def test_gradients_in_six_operators(tmp_path: Path, way: str) -> None:
    training = Training()
    found = monitored(tmp_path, {**GRADIENTS, "ops": SIX}, training)
    assert found.files == {f"grad_{kind}_{step}-{step}.csv" for kind in ("reduced", "unreduced") for step in (0, 1)}
    for step in (0, 1):
        reduced, unreduced = found.rows("grad_reduced", step), found.rows("grad_unreduced", step)
        assert [row["name"] for row in reduced] == PARAMETERS
        assert sorted(row["name"] for row in unreduced) == sorted(PARAMETERS)
        assert sorted(unreduced, key=str) == sorted(reduced, key=str)
        for row in reduced:
            assert_row(row, training.gradients[step][row["name"]])


def test_everything_is_measured_and_changes_nothing(tmp_path: Path, way: str) -> None:
    found = monitored(tmp_path, EVERYTHING, Training(steps=3, kept=0.5))
    quantities = ["actv", "actv_grad", "grad_reduced", "grad_unreduced", "exp_avg", "exp_avg_sq", "other"]
    names = [
        f"{name}_{step}-{step}.csv" for name in [*quantities, "param_origin", "param_updated"] for step in range(3)
    ]
    assert found.files == {*names, "stack_info.csv"}
    for before, after in ((0, 1), (1, 2)):
        updated, origin = found.rows("param_updated", before), found.rows("param_origin", after)
        assert [{**row, "step": ""} for row in updated] == [{**row, "step": ""} for row in origin]
    ends = ("input", "output")
    places = [f"{name}.{end}" for name in ("fc1", "drop", "fc2", "") for end in ends]
    assert [row["name"] for row in found.rows("actv", 0)] == places
    assert {row["name"] for row in found.rows("actv_grad", 0)} == set(places)
    assert {row["norm"] for row in found.rows("exp_avg", 0)} == {"0"}
    assert all(0 <= float(row["norm"]) <= 1 for row in found.rows("other"))
    assert "test_monitor.py" in (found.folder / "stack_info.csv").read_text()


@pytest.mark.parametrize("every", [False, True])
def test_micro_steps_are_added_up_before_they_are_reduced(tmp_path: Path, every: bool) -> None:
    training = Training(steps=2, accumulated=3)
    config = {**GRADIENTS, "xy_distribution": True, "monitor_mbs_grad": every, "ops": SIX}
    found = monitored(tmp_path, config, training, grad_acc_steps=3)
    assert [row["micro_step"] for row in found.rows("actv", 1) if row["name"] == "fc1.input"] == ["0", "1", "2"]
    unreduced = found.rows("grad_unreduced", 1)
    assert len(unreduced) == (12 if every else 4)
    last = {row["name"]: row for row in unreduced if row.get("micro_step", "2") == "2"}
    for name in PARAMETERS:
        assert_row(last[name], training.gradients[1][name])
    if every:
        (first,) = [row for row in unreduced if (row["name"], row["micro_step"]) == ("fc1.weight", "0")]
        assert_row(first, training.micro[3]["fc1.weight"])


@pytest.mark.parametrize(
    ("config", "attached", "steps"),
    [
        ({"start_step": 2, "step_interval": 2}, {}, [2, 4, 6]),
        ({"collect_times": 2}, {}, [0, 1]),
        ({"start_step": 10}, {"start_iteration": 9}, list(range(10, 16))),
    ],
)
def test_which_steps(tmp_path: Path, config: dict[str, Any], attached: dict[str, Any], steps: list[int]) -> None:
    hooks: list[int] = []
    training = Training(steps=7)
    training.behind_step = lambda step, net: hooks.append(hooks_of(net))
    found = monitored(tmp_path, {**GRADIENTS, "xy_distribution": True, **config}, training, **attached)
    assert found.steps("grad_reduced") == found.steps("grad_unreduced") == found.steps("actv") == steps
    first = attached.get("start_iteration", 0)
    # Behind each step what the next one needs is attached.
    assert [bool(one) for one in hooks[7:-1]] == [first + step + 1 in steps for step in range(6)]


@pytest.mark.parametrize("order", ["words", "as the reference", "as its documents"])
def test_set_monitor_takes_both_orders(tmp_path: Path, order: str) -> None:
    training = Training(steps=1, accumulated=2)
    monitor = make(tmp_path, {**GRADIENTS, "monitor_mbs_grad": True})

    def attach(net: Any, optimizer: Any) -> None:
        if order == "words":
            monitor.set_monitor(model=net, grad_acc_steps=2, optimizer=optimizer)
        elif order == "as the reference":
            monitor.set_monitor(net, optimizer, 2)
        else:
            monitor.set_monitor(net, 2, optimizer)

    training.run(attach)
    monitor.stop()
    assert len(Measured(monitor).rows("grad_unreduced")) == 8


@pytest.mark.parametrize(
    "name", ["Adam", "AdamWeightDecay", "SGD", "Momentum", "experimental.Adam", "experimental.SGD"]
)
def test_optimizers(tmp_path: Path, name: str) -> None:
    def made(net: Any) -> Any:
        weights = net.trainable_params()
        if name.startswith("experimental"):
            return getattr(optim, name.partition(".")[2])(weights, lr=0.01)
        more = {"momentum": 0.9} if name == "Momentum" else {}
        return getattr(nn, name)(weights, learning_rate=0.01, **more)

    found = monitored(tmp_path, {**EVERYTHING, "xy_distribution": False}, Training(make=made))
    assert found.steps("grad_reduced") == [0, 1]
    has_moments = "Adam" in name
    for quantity in ("exp_avg", "exp_avg_sq"):
        rows = found.rows(quantity, 1)
        assert [row["name"] for row in rows] == (PARAMETERS if has_moments else []), (name, quantity)
        assert all(float(row["norm"]) > 0 for row in rows)


def test_what_the_optimizer_is_given_counts(tmp_path: Path) -> None:
    training = Training()
    training.before_step = lambda step, gradients: [ops.clip_by_value(one, -0.01, 0.01) for one in gradients]
    found = monitored(tmp_path, {**GRADIENTS, "ops": SIX}, training)
    for row in found.rows("grad_reduced", 1):
        assert_row(row, training.gradients[1][row["name"]])
    unreduced = {row["name"]: float(row["max"]) for row in found.rows("grad_unreduced", 1)}
    assert unreduced["fc2.weight"] > 0.011


def test_evaluation_between_steps_is_not_measured(tmp_path: Path) -> None:
    def evaluate(step: int, net: Any) -> None:
        net.set_train(False)
        net(mindspore.Tensor(np.ones((5, 4), np.float32)))
        net.set_train(True)

    training = Training(steps=3)
    training.behind_step = evaluate
    found = monitored(tmp_path, {"targets": {}, "xy_distribution": True}, training)
    assert {row["shape"] for row in found.rows("actv")} == {"[3, 4]", "[3, 8]", "[3, 2]"}
    assert len(found.rows("actv", 1)) == 8


def test_format_api_keeps_the_last_step_in_memory(tmp_path: Path) -> None:
    training = Training()
    monitor = make(tmp_path, {**GRADIENTS, "xy_distribution": True, "format": "api", "ops": ["norm", "nans"]})
    training.run(lambda net, optimizer: monitor.set_monitor(net, optimizer=optimizer))
    monitor.flush()
    reduced, unreduced = monitor.generate_wgrad_metrics()
    actv, actv_grad = monitor.generate_xy_metrics()
    monitor.stop()
    assert monitor.output_path is None
    assert not (tmp_path / "out").exists()
    found = reduced["0:fc1.weight/rank0/post_grad"]
    wanted = float(np.sqrt(np.square(training.gradients[1]["fc1.weight"].astype(np.float64)).sum()))
    assert float(found["norm"].asnumpy()) == pytest.approx(wanted, rel=1e-6)
    assert (found["shape"], found["dtype"]) == ((8, 4), mindspore.float32)
    assert set(unreduced) == {f"0:{name}/rank0/pre_grad" for name in PARAMETERS}
    assert "0:fc1.input:0/rank0/actv" in actv
    assert "0:fc2.output:0/rank0/actv_grad" in actv_grad


def test_a_rule_fires_and_the_next_step_is_recorded(tmp_path: Path) -> None:
    def spoil(step: int, gradients: list[Any]) -> list[Any]:
        return [one * np.float32("nan") if step == 2 else one for one in gradients]

    training = Training(steps=5)
    training.before_step = spoil
    record = {"task": "statistics", "level": "L0", "dump_path": str(tmp_path / "dump")}
    alert = {"rules": [{"rule_name": "AnomalyNan"}], "dump": True, "record": record}
    monitor = make(tmp_path, {**GRADIENTS, "alert": alert})
    training.run(lambda net, optimizer: monitor.set_monitor(net, optimizer=optimizer))
    monitor.stop()
    (file,) = (tmp_path / "out").rglob("anomaly.json")
    assert {one["step"] for one in json.loads(file.read_text()).values()} >= {2}
    assert sorted(path.name for path in (tmp_path / "dump").iterdir()) == ["step2", "step3"]
    for dump in (tmp_path / "dump").rglob("dump.json"):
        assert "Cell.fc1.Dense.forward.0" in dump.read_text()


@pytest.mark.parametrize("goes_on", [False, True])
def test_print_struct(tmp_path: Path, goes_on: bool) -> None:
    training = Training()
    monitor = make(tmp_path, {"targets": {}, "print_struct": "continue" if goes_on else True, **GRADIENTS})

    def attach(net: Any, optimizer: Any) -> None:
        monitor.set_monitor(net, optimizer=optimizer)

    if goes_on:
        training.run(attach)
        monitor.stop()
        assert Measured(monitor).steps("grad_reduced") == [1]
    else:
        with pytest.raises(MonitorStop, match="print_struct"):
            training.run(attach)
    found = json.loads((tmp_path / "out" / "module_struct.json").read_text())
    assert found["0:fc1"]["output"] == {"config": "tensor", "tensor": "size=(3, 8), dtype=Float32"}
    assert hooks_of(training.net) == 0


def test_unreduced_gradients_of_a_compiled_function_are_left_out_and_that_is_reported(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    mindspore.set_context(mode=mindspore.PYNATIVE_MODE)
    net = ModelM()
    sgd = nn.SGD(net.trainable_params(), 0.1)

    def loss_of(x: Any) -> Any:
        return (net(x) ** 2).mean()

    step = mindspore.jit(mindspore.value_and_grad(loss_of, None, net.trainable_params()))
    monitor = make(tmp_path, GRADIENTS)
    monitor.set_monitor(net, optimizer=sgd)
    for _ in range(2):
        _, gradients = step(mindspore.Tensor(np.ones((3, 4), np.float32)))
        sgd(gradients)
    monitor.stop()
    found = Measured(monitor)
    assert [row["name"] for row in found.rows("grad_reduced", 1)] == PARAMETERS
    assert found.rows("grad_unreduced") == []
    assert mentions(capfd.readouterr().out, "no-unreduced-gradients-in-mindspore") == 1


def test_train_one_step_cell_and_two_chunks(tmp_path: Path) -> None:
    mindspore.set_context(mode=mindspore.PYNATIVE_MODE)
    chunks = [nn.Dense(4, 4), nn.Dense(4, 2)]
    chunks[1].update_parameters_name("second.")
    whole = nn.SequentialCell(chunks)
    adam = nn.Adam(whole.trainable_params(), 0.01)
    cell = nn.TrainOneStepCell(nn.WithLossCell(whole, nn.MSELoss()), adam)
    monitor = make(tmp_path, {**GRADIENTS, "xy_distribution": True})
    monitor.set_monitor(chunks, optimizer=adam)
    for _ in range(2):
        cell(mindspore.Tensor(np.ones((3, 4), np.float32)), mindspore.Tensor(np.ones((3, 2), np.float32)))
    monitor.stop()
    found = Measured(monitor)
    assert found.steps("grad_reduced") == [0, 1]
    assert [(row["vpp_stage"], row["name"]) for row in found.rows("grad_reduced", 1)] == [
        ("0", "weight"),
        ("0", "bias"),
        ("1", "weight"),
        ("1", "bias"),
    ]
    assert [(row["vpp_stage"], row["name"]) for row in found.rows("actv", 1)] == [
        (stage, end) for stage in "01" for end in (".input", ".output")
    ]


@pytest.mark.parametrize("kind", ["float16", "bfloat16", "int32", "bool", "complex64", "empty", "scalar"])
def test_numbers_of_types(kind: str, way: str) -> None:
    from msprobe.monitor.mindspore.meter import Meter
    from msprobe.monitor.operators import Operators

    values = np.array([[1.5, -2.0, 0.0], [4.0, 0.5, 3.0]], np.float32)
    tensors = {
        "float16": mindspore.Tensor(values.astype(np.float16)),
        "bfloat16": mindspore.Tensor(values, mindspore.bfloat16),
        "int32": mindspore.Tensor(values.astype(np.int32)),
        "bool": mindspore.Tensor(values > 1),
        "complex64": mindspore.Tensor((values + 1j).astype(np.complex64)),
        "empty": mindspore.Tensor(np.zeros((0, 4), np.float32)),
        "scalar": mindspore.Tensor(np.float32(-3)),
    }
    meter = Meter(Operators((*SIX, "id"), 1e-8), way == "as on a device")
    found = meter.measure(tensors[kind])
    meter.collect()()
    assert found.values is not None
    low, high, mean, norm, nans, zeros, single = (float("nan") if one is None else float(one) for one in found.values)
    wide = tensors[kind].astype(mindspore.float32).asnumpy() if kind == "bfloat16" else tensors[kind].asnumpy()
    assert norm == pytest.approx(math.sqrt(float(np.square(np.abs(wide.astype(np.complex128))).sum())))
    assert nans == 0
    if kind == "empty":
        assert all(math.isnan(one) for one in (low, high, mean, zeros))
        return
    assert mean == pytest.approx(float(wide.real.astype(np.float64).mean()))
    assert (low, high) == (pytest.approx((float(wide.min()), float(wide.max())))) if kind != "complex64" else True
    assert math.isnan(zeros) if kind == "bool" else zeros == pytest.approx(float((np.abs(wide) == 0).mean()))
    assert (single == -3) == (kind == "scalar")


def test_what_mindspore_has_not_is_reported(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    found = monitored(tmp_path, {**GRADIENTS, "ur_distribution": True}, Training(steps=1))
    assert mentions(capfd.readouterr().out, "not-measured-in-mindspore", without="ur_distribution")
    assert found.rows("update") == []


def test_a_recomputed_pass_is_one_row(tmp_path: Path) -> None:
    def made(net: Any) -> Any:
        net.fc1.recompute()
        return nn.SGD(net.trainable_params(), 0.1)

    found = monitored(tmp_path, {**GRADIENTS, "xy_distribution": True}, Training(make=made))
    for step in (0, 1):
        names = [row["name"] for row in found.rows("actv", step)]
        # MindSpore puts cells of its own around a cell that is computed again.
        own = [name for name in names if "_recompute_cell" not in name]
        assert own == [f"{name}.{end}" for name in ("fc1", "drop", "fc2", "") for end in ("input", "output")]
        assert len(names) == len(set(names))
        assert [row["name"] for row in found.rows("grad_reduced", step)] == PARAMETERS


class Averaged(nn.Cell):
    """A network with a norm, an average of its weight, and a bias for each of its experts."""

    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Dense(4, 4)
        self.norm = nn.BatchNorm1d(4)
        self.ema = mindspore.Parameter(self.fc.weight.value().copy(), name="ema", requires_grad=False)
        self.expert_bias = mindspore.Parameter(mindspore.ops.zeros(3), name="expert_bias", requires_grad=False)

    def construct(self, x: Any) -> Any:
        return self.norm(self.fc(x))


def test_what_no_optimizer_owns_is_measured_by_name(tmp_path: Path) -> None:
    mindspore.set_context(mode=mindspore.PYNATIVE_MODE)
    mindspore.set_seed(0)
    net = Averaged().set_train()
    optimizer = nn.SGD(net.trainable_params(), 0.1)
    monitor = make(tmp_path, {"targets": {}, "state_distribution": True, "ops": SIX})
    monitor.set_monitor(net, optimizer=optimizer)
    step = mindspore.value_and_grad(lambda x: (net(x) ** 2).mean(), None, net.trainable_params())
    for number in range(3):
        _, gradients = step(mindspore.Tensor(np.random.randn(6, 4).astype(np.float32)))
        net.expert_bias.set_data(mindspore.ops.full((3,), number + 1.0, dtype=mindspore.float32))
        optimizer(tuple(gradients))
    monitor.stop()
    rows = Measured(monitor).rows("state")
    assert {"ema", "expert_bias", "norm.moving_mean", "norm.moving_variance"} <= {row["name"] for row in rows}
    assert not {"fc.weight", "norm.gamma"} & {row["name"] for row in rows}
    assert [float(row["max"]) for row in rows if row["name"] == "expert_bias"] == [1.0, 2.0, 3.0]
