"""The acceptance checks of the recorder: small trainings, recorded for real, their files read back with json."""

from __future__ import annotations

import json
import stat
import time
from collections import namedtuple
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from support.recorded import ModelT, is_value_of, loss_of, record, record_steps
from torch import nn
from torch.utils.checkpoint import checkpoint as checkpoint_imported_by_name

from msprobe.capture import native
from msprobe.pytorch import PrecisionDebugger


@pytest.fixture
def model() -> ModelT:
    torch.manual_seed(0)
    return ModelT()


@pytest.fixture
def x() -> torch.Tensor:
    torch.manual_seed(1)
    return torch.randn(3, 8)


def tensors(values: list[Any]) -> list[dict[str, Any]]:
    return [v for v in values if v is not None]


T_FORWARD = [
    "Functional.linear.0",
    "Functional.layer_norm.0",
    "Functional.gelu.0",
    "Tensor.__add__.0",
    "Functional.linear.1",
    "Functional.softmax.0",
    "Tensor.__pow__.0",
    "Tensor.sum.0",
]


# ---------------------------------------------------------------- the levels


def test_two_steps_at_l1_record_every_call_in_order(tmp_path: Path, model: ModelT, x: torch.Tensor) -> None:
    def work() -> None:
        loss_of(model(x)).backward()

    for number, dump in enumerate(record_steps(tmp_path, [work, work])):
        assert dump.folder == tmp_path / f"step{number}" / "rank"
        assert [name for name in dump.forward() if name != "Torch.ones_like.0"] == T_FORWARD
        assert dump.backward() == T_FORWARD[::-1]
        # Also in the file: records stand in the order in which calls ended.
        assert [n.removesuffix(".forward") for n in dump.data if n.endswith(".forward")][:8] == T_FORWARD
        assert dump.construct == {}
        assert {key: dump.file[key] for key in ("task", "level", "framework", "dump_data_dir")} == {
            "task": "statistics",
            "level": "L1",
            "framework": "pytorch",
            "dump_data_dir": None,
        }
        entry = dump.data["Functional.linear.0.forward"]
        assert list(entry)[:4] == ["input_args", "input_kwargs", "is_recompute", "output"]
        given = (x, model.l1.weight, model.l1.bias)
        assert all(is_value_of(d, t) for d, t in zip(entry["input_args"], given, strict=True))
        assert is_value_of(entry["output"][0], model.l1(x))
        assert list(dump.data["Functional.linear.0.backward"])[:2] == ["input", "output"]


def test_l0_records_modules_parameters_and_their_gradients(tmp_path: Path, model: ModelT, x: torch.Tensor) -> None:
    dump = record(tmp_path, lambda: loss_of(model(x)).backward(), model, level="L0")
    names = {"l1": "Linear", "n": "LayerNorm", "l2": "Linear"}
    expected = [f"Module.{n}.{kind}" for n, kind in names.items()]
    assert [n for n in dump.names if ".forward." in n] == [f"{name}.forward.0" for name in expected]
    assert [n for n in dump.names if ".backward." in n] == [f"{name}.backward.0" for name in expected[::-1]]
    assert {n for n in dump.data if n.endswith("parameters_grad")} == {f"{name}.parameters_grad" for name in expected}
    first = dump.data["Module.l1.Linear.forward.0"]
    assert list(first)[:5] == ["input_args", "input_kwargs", "output", "parameters", "is_recompute"]
    assert is_value_of(first["parameters"]["weight"], model.l1.weight)
    # Its input is data: nothing comes out of its backward.
    assert dump.data["Module.l1.Linear.backward.0"]["output"] == []
    assert dump.data["Module.l1.Linear.backward.0"]["input"][0]["shape"] == [3, 16]
    for name in names:
        gradients = dump.data[f"Module.{name}.{names[name]}.parameters_grad"]
        for key, parameter in getattr(model, name).named_parameters():
            assert parameter.grad is not None
            assert is_value_of(gradients[key][0], parameter.grad)
    stacks = [entry for entries, _ in dump.stack.values() for entry in entries]
    assert sorted(stacks) == sorted(f"{name}.forward.0" for name in expected)
    assert dump.construct == {
        f"{name}.{direction}.0": None for name in expected for direction in ("forward", "backward")
    }


def test_mix_has_roots_for_clipping_and_the_optimizer(tmp_path: Path, model: ModelT, x: torch.Tensor) -> None:
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, foreach=False)

    def work() -> None:
        loss_of(model(x)).backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()

    dump = record(tmp_path, work, model, level="mix")
    parents = dump.construct
    assert parents["clip_grad"] is None
    assert parents["optimizer"] is None
    assert parents["Functional.linear.0.forward"] == "Module.l1.Linear.forward.0"
    assert parents["Functional.linear.0.backward"] == "Module.l1.Linear.backward.0"
    assert parents["Functional.gelu.0.forward"] is None
    added = [name for name in dump.data if name.startswith("Tensor.add_.")]
    assert len(added) == 6
    assert {parents[name] for name in added} == {"optimizer"}
    inside = {name for name, parent in parents.items() if parent == "clip_grad"}
    assert {name.split(".")[1] for name in inside} >= {"stack", "clamp", "reciprocal"}
    assert set(parents) - {"clip_grad", "optimizer"} == set(dump.names)


# ---------------------------------------------------------------- gradients without touching the graph


class Scale(nn.Module):
    def forward(self, x: torch.Tensor, *, by: torch.Tensor, also: dict[str, torch.Tensor]) -> torch.Tensor:
        return x * by + also["bias"]


def test_gradients_of_keyword_inputs_are_reported(tmp_path: Path) -> None:
    model = nn.ModuleDict({"scale": Scale()})
    x, by, bias = (torch.randn(3, 4, requires_grad=True) for _ in range(3))
    work = lambda: loss_of(model["scale"](x, by=by, also={"bias": bias})).backward()  # noqa: E731
    entry = record(tmp_path, work, model, level="L0").data["Module.scale.Scale.backward.0"]
    assert x.grad is not None
    assert by.grad is not None
    assert bias.grad is not None
    assert is_value_of(entry["output"][0], x.grad)
    assert list(entry["kwargs_grads"]) == ["by", "also.bias"]
    assert is_value_of(entry["kwargs_grads"]["by"], by.grad)
    assert is_value_of(entry["kwargs_grads"]["also.bias"], bias.grad)


class Hand(nn.Module):
    def forward(self, x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return x, x * y


def test_a_tensor_that_is_handed_through_is_the_same_object(tmp_path: Path) -> None:
    model = nn.ModuleDict({"hand": Hand(), "identity": nn.Identity()})
    x, y = (torch.randn(3, 4, requires_grad=True) for _ in range(2))
    seen: list[bool] = []

    def work() -> None:
        a, b = x * 2, y * 2
        c, d = model["hand"](a, b)
        seen.append(c is a)
        e = model["identity"](d)
        seen.append(e is d)
        loss_of(c + e).backward()

    dump = record(tmp_path, work, model, level="L0")
    assert seen == [True, True]
    entry = dump.data["Module.hand.Hand.backward.0"]
    assert x.grad is not None
    assert y.grad is not None
    # What came back through the result that is the argument counts as well.
    assert is_value_of(entry["output"][0], x.grad / 2)
    assert is_value_of(entry["output"][1], y.grad / 2)


# ---------------------------------------------------------------- failures of the user's program


# ---------------------------------------------------------------- arguments

Pair = namedtuple("Pair", "left right")


# ---------------------------------------------------------------- whole tensors


def test_tensors_are_saved_under_the_place_they_have(tmp_path: Path) -> None:
    x = torch.randn(3, 4, requires_grad=True)

    def work() -> None:
        turned = x.t()
        torch.stack([turned, turned + 1])
        torch.add(x, other=x * 2).sum().backward()

    dump = record(tmp_path, work, task="tensor")
    assert dump.file["dump_data_dir"] == str(dump.folder / "dump_tensor_data")
    for name in ("Torch.stack.0.forward.input.0.0.pt", "Torch.stack.0.forward.input.0.1.pt"):
        assert name in dump.files
    turned = dump.load("Torch.stack.0.forward.input.0.0.pt")
    assert torch.equal(turned, x.detach().t())
    assert turned.is_contiguous()
    assert not turned.requires_grad
    assert torch.equal(dump.load("Torch.stack.0.forward.output.0.pt")[1], x.detach().t() + 1)
    assert torch.equal(dump.load("Torch.add.0.forward.kwargs.other.pt"), x.detach() * 2)
    assert torch.equal(dump.load("Torch.add.0.backward.input.0.pt"), torch.ones(3, 4))
    assert dump.data["Torch.add.0.forward"]["input_kwargs"]["other"]["data_name"] == (
        "Torch.add.0.forward.kwargs.other.pt"
    )
    for name in dump.files:
        assert stat.S_IMODE((dump.folder / "dump_tensor_data" / name).stat().st_mode) == 0o640
    assert stat.S_IMODE(dump.folder.stat().st_mode) == 0o750
    assert stat.S_IMODE((dump.folder / "dump.json").stat().st_mode) == 0o640


def test_tensors_of_modules_are_saved_with_their_parameters(tmp_path: Path, model: ModelT, x: torch.Tensor) -> None:
    dump = record(tmp_path, lambda: loss_of(model(x)).backward(), model, task="tensor", level="L0")
    assert torch.equal(dump.load("Module.l1.Linear.forward.0.input.0.pt"), x)
    assert torch.equal(dump.load("Module.l1.Linear.forward.0.parameters.weight.pt"), model.l1.weight)
    assert model.l1.weight.grad is not None
    assert torch.equal(dump.load("Module.l1.Linear.parameters_grad.weight.pt"), model.l1.weight.grad)
    assert dump.load("Module.l2.Linear.backward.0.output.0.pt").shape == (3, 16)


# ---------------------------------------------------------------- recomputation


class Checkpointed(nn.Module):
    def __init__(self, reentrant: bool) -> None:
        super().__init__()
        self.reentrant = reentrant
        self.first = nn.Linear(8, 8)
        self.block = nn.Sequential(nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 8))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = checkpoint_imported_by_name(self.block, self.first(x), use_reentrant=self.reentrant)
        return result


@pytest.mark.parametrize("reentrant", [False, True])
@pytest.mark.parametrize("level", ["L0", "L1", "mix"])
def test_recomputed_passes_are_marked(tmp_path: Path, x: torch.Tensor, reentrant: bool, level: str) -> None:
    torch.manual_seed(0)
    model = Checkpointed(reentrant)
    dump = record(tmp_path, lambda: loss_of(model(x)).backward(), model, level=level)
    again = [name for name in dump.names if dump.data[name].get("is_recompute")]
    if level != "L0":
        calls = [name for name in again if not name.startswith("Module.") and "detach" not in name]
        assert calls == [
            "Functional.linear.3.forward",
            "Torch.tanh.1.forward",
            "Functional.linear.4.forward",
        ]
    if level != "L1":
        modules = [name for name in again if name.startswith("Module.")]
        assert modules == [
            "Module.block.Sequential.forward.1",
            "Module.block.0.Linear.forward.1",
            "Module.block.1.Tanh.forward.1",
            "Module.block.2.Linear.forward.1",
        ]
        backward = [name for name in dump.names if name.startswith("Module.block.1.Tanh.backward")]
        assert backward == [f"Module.block.1.Tanh.backward.{int(reentrant)}"]
    for name in again:
        entry = dump.data[name]
        if entry.get("stopped"):
            # torch ends the recomputation as soon as it has all it needs; the calls it is in then have no result.
            assert not reentrant
            assert entry["output"] == [None]
        else:
            assert entry["output"][0]["shape"] == [3, 8]
    stopped = [name for name in again if "stopped" in dump.data[name]]
    if not reentrant:
        last = {
            "L0": ["Module.block.Sequential.forward.1", "Module.block.2.Linear.forward.1"],
            "L1": ["Functional.linear.4.forward"],
        }
        assert set(stopped) <= {*last["L0"], *last["L1"]}
        assert set(stopped) >= set(last[level] if level != "mix" else [*last["L0"], *last["L1"]])
    if level == "mix":
        assert dump.construct["Torch.tanh.1.forward"] == "Module.block.1.Tanh.forward.1"
        assert dump.construct["Module.block.1.Tanh.forward.1"] == "Module.block.Sequential.forward.1"


class Doubled(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        return x * 2

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> torch.Tensor:
        return torch.mul(gradients[0], 2)


def test_a_custom_function_is_one_unit_and_its_backward_no_recomputation(tmp_path: Path) -> None:
    x = torch.randn(3, requires_grad=True)
    dump = record(tmp_path, lambda: loss_of(Doubled.apply(x)).backward())
    assert dump.forward()[:2] == ["Function.Doubled.0", "Tensor.__mul__.0"]
    backward = dump.data["Function.Doubled.0.backward"]
    assert x.grad is not None
    assert is_value_of(backward["output"][0], x.grad)
    inside = dump.data["Torch.mul.0.forward"]
    assert inside["is_recompute"] is False


# ---------------------------------------------------------------- what no list names


def test_calls_off_the_list_are_recorded_too(tmp_path: Path) -> None:
    from torch.nn.functional import gelu as imported_by_name

    x = torch.randn(2, 4, requires_grad=True)

    def work() -> None:
        y = imported_by_name(x)
        y = y[0:1]
        y = -y
        y = y.view(4)
        y = torch.fft.fft(y).real
        y = F.rms_norm(y, (4,))
        y = torch.ops.aten.mul.Tensor(y, 2.0)
        loss_of(Doubled.apply(y)).backward()

    dump = record(tmp_path, work)
    expected = [
        "Functional.gelu.0",
        "Tensor.__getitem__.0",
        "Tensor.__neg__.0",
        "Tensor.view.0",
        "Torch.fft.0",
        "Tensor.real.0",
        "Torch.rms_norm.0",
        "Ops.aten_mul.0",
        "Function.Doubled.0",
        "Tensor.__mul__.0",
        "Tensor.__pow__.0",
        "Tensor.sum.0",
        "Torch.ones_like.0",
    ]
    # The multiplication of Doubled's own backward comes behind.
    assert dump.forward() == [*expected, "Torch.mul.0"]
    differentiated = [n for n in expected if n not in ("Tensor.__mul__.0", "Torch.ones_like.0")]
    assert dump.backward() == differentiated[::-1]


# ---------------------------------------------------------------- scope, list, data_mode


class Blocks(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        for n in range(1, 4):
            self.add_module(f"blk{n}", nn.Sequential(nn.Linear(8, 8), nn.ReLU()))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for block in self.children():
            x = block(x) + 1
        return x


@pytest.fixture
def blocks() -> Blocks:
    torch.manual_seed(0)
    return Blocks()


def test_a_scope_may_reach_into_the_backward(tmp_path: Path, blocks: Blocks, x: torch.Tensor) -> None:
    scope = ["Functional.relu.2.forward", "Functional.relu.2.backward"]
    dump = record(tmp_path, lambda: loss_of(blocks(x)).backward(), scope=scope)
    assert dump.names[0] == "Functional.relu.2.forward"
    assert dump.names[-1] == "Functional.relu.2.backward"
    assert "Tensor.sum.0.backward" in dump.names
    last = dump.data["Functional.relu.2.backward"]
    assert tensors(last["input"])
    assert tensors(last["output"])


def test_a_scope_of_one_module_is_its_subtree(tmp_path: Path, blocks: Blocks, x: torch.Tensor) -> None:
    scope = ["Module.blk2.Sequential.forward.0"] * 2
    dump = record(tmp_path, lambda: loss_of(blocks(x)).backward(), blocks, level="mix", scope=scope)
    assert dump.names == [
        "Module.blk2.Sequential.forward.0",
        "Module.blk2.0.Linear.forward.0",
        "Functional.linear.1.forward",
        "Module.blk2.1.ReLU.forward.0",
        "Functional.relu.1.forward",
    ]


def test_a_scope_from_forward_to_backward_of_a_module(tmp_path: Path, blocks: Blocks, x: torch.Tensor) -> None:
    scope = ["Module.blk3.Sequential.forward.0", "Module.blk3.Sequential.backward.0"]
    dump = record(tmp_path, lambda: loss_of(blocks(x)).backward(), blocks, level="L0", scope=scope)
    inside = ["0.Linear", "1.ReLU", "Sequential"]
    assert set(dump.data) == {
        *(f"Module.blk3.{name}.{direction}.0" for name in inside for direction in ("forward", "backward")),
        "Module.blk3.0.Linear.parameters_grad",
    }


def test_a_list_item_that_names_a_module_takes_all_inside_it(tmp_path: Path, blocks: Blocks, x: torch.Tensor) -> None:
    dump = record(tmp_path, lambda: loss_of(blocks(x)).backward(), blocks, level="mix", list=["blk2"])
    forward = [
        "Module.blk2.Sequential.forward.0",
        "Module.blk2.0.Linear.forward.0",
        "Functional.linear.1.forward",
        "Module.blk2.1.ReLU.forward.0",
        "Functional.relu.1.forward",
    ]
    assert dump.names[:5] == forward
    assert set(dump.names[5:]) == {
        "Module.blk2.Sequential.backward.0",
        "Module.blk2.0.Linear.backward.0",
        "Functional.linear.1.backward",
        "Module.blk2.1.ReLU.backward.0",
        "Functional.relu.1.backward",
    }
    assert [n for n in dump.data if n.endswith("parameters_grad")] == ["Module.blk2.0.Linear.parameters_grad"]


def test_filters_that_matched_nothing_are_reported_at_the_end(
    tmp_path: Path, blocks: Blocks, x: torch.Tensor, capsys: pytest.CaptureFixture[str]
) -> None:
    scope = ["Functional.relu.0.forward", "Functional.relu.9.forward"]
    record(tmp_path, lambda: blocks(x), list=["relu", "gelu", "name-regex(^x)"], scope=scope)
    (line,) = [line for line in capsys.readouterr().out.splitlines() if "matched nothing" in line]
    assert '"gelu"' in line
    assert '"name-regex(^x)"' in line
    assert "Functional.relu.9.forward" in line
    assert '"relu"' not in line


@pytest.mark.parametrize(
    ("mode", "forward", "backward", "gradients"),
    [
        (["forward", "output"], {"output", "parameters"}, set(), False),
        (["backward", "input"], None, {"input"}, True),
        (["forward"], {"input_args", "input_kwargs", "output", "parameters"}, set(), False),
        (["output"], {"output", "parameters"}, {"output"}, True),
        (["all"], {"input_args", "input_kwargs", "output", "parameters"}, {"input", "output"}, True),
    ],
    ids=["forward-output", "backward-input", "forward", "output", "all"],
)
def test_data_mode_keeps_what_it_names(
    tmp_path: Path, model: ModelT, x: torch.Tensor, mode: list[str], forward: Any, backward: Any, gradients: bool
) -> None:
    dump = record(tmp_path, lambda: loss_of(model(x)).backward(), model, level="mix", data_mode=mode)
    values = {"input_args", "input_kwargs", "output", "parameters", "input", "input_grads"}
    modules = [n for n in dump.names if n.startswith("Module.") and ".forward." in n]
    if forward is None:
        assert not [n for n in dump.names if ".forward" in n]
    else:
        assert len(modules) == 3
        for name in modules:
            assert set(dump.data[name]) & values == forward
        assert set(dump.data["Functional.gelu.0.forward"]) & values == forward - {"parameters"}
    passes = [n for n in dump.names if ".backward" in n]
    assert bool(passes) == bool(backward)
    for name in passes:
        assert set(dump.data[name]) & (values - {"input_grads"}) == backward
        assert "input_grads" not in dump.data[name] or "output" in backward
    assert bool([n for n in dump.data if n.endswith("parameters_grad")]) == gradients


# ---------------------------------------------------------------- several backward passes


def test_each_of_several_backward_passes_is_kept(tmp_path: Path) -> None:
    model = nn.ModuleDict({"linear": nn.Linear(2, 1, bias=False)})

    def work() -> None:
        for n in (1, 2, 3):
            (model["linear"](torch.ones(1, 2)) * n).sum().backward()

    data = record(tmp_path, work, model, level="L0").data
    entry = "Module.linear.Linear.parameters_grad"
    assert data[entry]["weight"][0]["Max"] == 3
    assert [data[f"{entry}.{k}"]["weight"][0]["Max"] for k in range(3)] == [1, 2, 3]
    assert [data[f"Module.linear.Linear.backward.{k}"]["input"][0]["Max"] for k in range(3)] == [1, 2, 3]


def test_one_backward_pass_has_no_numbers(tmp_path: Path, model: ModelT, x: torch.Tensor) -> None:
    data = record(tmp_path, lambda: loss_of(model(x)).backward(), model, level="L0").data
    assert not [name for name in data if "parameters_grad." in name]


# ---------------------------------------------------------------- parts of the interface


# ---------------------------------------------------------------- overflow


# ---------------------------------------------------------------- cost


def cpu_time(work: Any, repeats: int) -> float:
    began = time.process_time()
    for _ in range(repeats):
        work()
    return (time.process_time() - began) / repeats


def test_a_small_model_costs_little(tmp_path: Path, model: ModelT, x: torch.Tensor) -> None:
    """What is asked of a model this small is modest; bench/capture measures the real ones."""

    def work() -> None:
        loss_of(model(x)).backward()

    for _ in range(20):
        work()
    ratios: dict[str, list[float]] = {"nothing": [], "statistics": []}
    for name, settings in (("nothing", {"list": ["matches_nothing"]}), ("statistics", {})):
        debugger = PrecisionDebugger(dump_path=str(tmp_path), task="statistics", level="L1", **settings)
        try:
            for _ in range(25):
                plain = cpu_time(work, 20)
                with debugger.recording():
                    # Of one step: files are written by the step, not by the call.
                    recorded = cpu_time(work, 20)
                ratios[name].append(recorded / plain)
        finally:
            PrecisionDebugger.reset()
    middle = {name: sorted(found)[len(found) // 2] for name, found in ratios.items()}
    assert middle["nothing"] <= 2, middle
    assert native.numbers is None or middle["statistics"] <= 15, middle


@pytest.mark.parametrize("level", ["L1", "L2"])
def test_memory_that_is_only_written_to_is_no_overflow(tmp_path: Path, level: str) -> None:
    held = torch.full((4,), float("nan"))
    debugger = PrecisionDebugger(task="overflow_check", dump_path=str(tmp_path), level=level, overflow_nums=-1)
    try:
        with debugger.recording():
            torch.add(torch.ones(4), 1, out=held)
            torch.full((4,), float("inf"), dtype=torch.float32)
            torch.full((4,), float("nan")).uniform_()
    finally:
        PrecisionDebugger.reset()
    hits = [name for path in tmp_path.rglob("dump.json") for name in json.loads(path.read_text())["data"]]
    assert not any("add" in name or "uniform" in name for name in hits)
