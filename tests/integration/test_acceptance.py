"""The acceptance checks of the recorder: small trainings, recorded for real, their files read back with json."""

from __future__ import annotations

import dataclasses
import json
import stat
import time
import types
from collections import namedtuple
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from support.coded_texts import mentions
from support.recorded import Dump, ModelT, is_value_of, loss_of, record, record_steps
from torch import nn
from torch.utils.checkpoint import checkpoint as checkpoint_imported_by_name

from msprobe.capture import native
from msprobe.pytorch import PrecisionDebugger, module_dump, module_dump_end


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


def test_the_structure_task_keeps_names_and_tree_only(tmp_path: Path, model: ModelT, x: torch.Tensor) -> None:
    dump = record(tmp_path, lambda: loss_of(model(x)).backward(), model, level="mix", task="structure")
    assert dump.file["task"] == "structure"
    assert dump.construct["Functional.linear.1.forward"] == "Module.l2.Linear.forward.0"
    assert '"Max"' not in json.dumps(dump.file)
    assert dump.frames_of("Functional.linear.1.forward")


# ---------------------------------------------------------------- gradients without touching the graph


class TwoViews(nn.Module):
    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return x[:, :4], x[:, 4:]


class Halves(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(8, 8)
        self.split = TwoViews()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        left, right = self.split(self.linear(x))
        left += 1
        return left * right


@pytest.mark.parametrize("level", ["L0", "L1", "mix"])
def test_two_views_and_a_write_into_one_train_as_ever(tmp_path: Path, x: torch.Tensor, level: str) -> None:
    torch.manual_seed(0)
    model = Halves()
    loss_of(model(x)).backward()
    alone = {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}
    model.zero_grad()
    dump = record(tmp_path, lambda: loss_of(model(x)).backward(), model, level=level)
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None
        assert torch.equal(parameter.grad, alone[name])
    if level != "L1":
        entry = dump.data["Module.split.TwoViews.backward.0"]
        assert [d["shape"] for d in tensors(entry["output"])] == [[3, 8]]


class InPlace(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(8, 8)
        self.relu = nn.ReLU(inplace=True)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = self.relu(self.linear(x))
        return result


def test_an_in_place_module_shows_what_it_was_given_and_both_backwards(tmp_path: Path, x: torch.Tensor) -> None:
    torch.manual_seed(0)
    model = InPlace()
    before = model.linear(x).detach().clone()
    dump = record(tmp_path, lambda: loss_of(model(x)).backward(), model, level="L0")
    relu = dump.data["Module.relu.ReLU.forward.0"]
    assert is_value_of(relu["input_args"][0], before)
    assert is_value_of(relu["output"][0], before.relu())
    arriving = 2 * before.relu()
    assert is_value_of(dump.data["Module.relu.ReLU.backward.0"]["input"][0], arriving)
    leaving = arriving * (before > 0)
    assert is_value_of(dump.data["Module.relu.ReLU.backward.0"]["output"][0], leaving)
    assert is_value_of(dump.data["Module.linear.Linear.backward.0"]["input"][0], leaving)


class Scale(nn.Module):
    def forward(self, x: torch.Tensor, *, by: torch.Tensor, also: dict[str, torch.Tensor]) -> torch.Tensor:
        return x * by + also["bias"]


def test_gradients_of_keyword_inputs_are_told(tmp_path: Path) -> None:
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


def test_one_tensor_as_query_key_and_value_has_one_gradient(tmp_path: Path) -> None:
    torch.manual_seed(0)
    model = nn.ModuleDict({"attention": nn.MultiheadAttention(8, 2, batch_first=True)})
    x = torch.randn(2, 5, 8, requires_grad=True)
    q = x * 1
    work = lambda: loss_of(model["attention"](q, q, q)[0]).backward()  # noqa: E731
    entry = record(tmp_path, work, model, level="L0").data["Module.attention.MultiheadAttention.backward.0"]
    assert x.grad is not None
    assert is_value_of(entry["output"][0], x.grad)
    assert entry["output"][1:] == [None, None]
    assert entry["merged"] == {"input.1": "input.0", "input.2": "input.0"}


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


def test_the_weight_gradient_of_each_call_is_there(tmp_path: Path) -> None:
    torch.manual_seed(0)
    weight = torch.randn(8, 8, requires_grad=True)
    x, y = torch.randn(2, 3, 8), torch.randn(2, 3, 8)

    def work() -> None:
        loss_of(F.linear(x, weight) + torch.matmul(y, weight)).backward()

    dump = record(tmp_path, work)
    total = F.linear(x, weight) + torch.matmul(y, weight)
    linear, product = F.linear(x, weight), torch.matmul(y, weight)
    of_linear = torch.autograd.grad(linear, weight, 2 * total.detach())[0]
    of_product = torch.autograd.grad(product, weight, 2 * total.detach())[0]
    found = [dump.data[f"{name}.backward"] for name in ("Functional.linear.0", "Torch.matmul.0")]
    for entry, index, gradient in zip(found, (1, 1), (of_linear, of_product), strict=True):
        described = entry.get("input_grads", {}).get(f"input.{index}")
        candidates = [described] if described else tensors(entry["output"])
        assert any(is_value_of(d, gradient) or is_value_of(d, gradient.t().contiguous()) for d in candidates), entry


# ---------------------------------------------------------------- failures of the user's program


@pytest.mark.parametrize("level", ["L1", "mix"])
def test_a_call_that_raises_is_recorded_and_so_is_what_follows(tmp_path: Path, level: str) -> None:
    def work() -> None:
        with pytest.raises(RuntimeError, match="shapes"):
            torch.matmul(torch.ones(2, 3), torch.ones(2, 3))
        F.relu(torch.ones(2))

    for dump in record_steps(tmp_path, [work, lambda: F.relu(torch.ones(2))], nn.Sequential(nn.ReLU()), level=level):
        assert "Functional.relu.0.forward" in dump.data
        failed = dump.data.get("Torch.matmul.0.forward")
        if failed is not None:
            assert "mat1 and mat2 shapes" in failed["error"]
            assert failed["output"] == [None]
            assert [d["shape"] for d in failed["input_args"]] == [[2, 3], [2, 3]]


class Moody(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(4, 4)
        self.fails = True

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.inner(x)
        if self.fails:
            raise ValueError("not today")
        return F.relu(x)


def test_a_module_that_raises_leaves_the_parents_of_the_next_pass_right(tmp_path: Path) -> None:
    model = nn.Sequential(Moody(), nn.Tanh())

    def work() -> None:
        x = torch.ones(2, 4)
        with pytest.raises(ValueError, match="not today"):
            model(x)
        model[0].fails = False
        loss_of(model(x)).backward()

    dump = record(tmp_path, work, model, level="mix")
    assert dump.data["Module.0.Moody.forward.0"]["error"] == "ValueError: not today"
    parents = dump.construct
    assert parents["Module.0.Moody.forward.1"] is None
    assert parents["Module.0.inner.Linear.forward.1"] == "Module.0.Moody.forward.1"
    assert parents["Functional.relu.0.forward"] == "Module.0.Moody.forward.1"
    assert parents["Module.1.Tanh.forward.0"] is None
    assert parents["Functional.relu.0.backward"] == "Module.0.Moody.backward.1"


# ---------------------------------------------------------------- arguments

Pair = namedtuple("Pair", "left right")


@dataclasses.dataclass
class Options:
    scale: float
    mask: torch.Tensor


def test_arguments_of_every_kind_are_encoded(tmp_path: Path) -> None:
    module = types.ModuleType("mine")
    module.take = lambda *args, **kwargs: args[0]  # type: ignore[attr-defined]
    x = torch.arange(4.0)
    loop: list[Any] = []
    loop.append(loop)
    deep: Any = x
    for _ in range(60):
        deep = [deep]
    debugger = PrecisionDebugger(dump_path=str(tmp_path), task="statistics", level="L1")
    try:
        debugger.register_custom_api(module, "take")
        debugger.start()
        module.take(
            None, slice(1, 5, 2), ..., [1, [2.5, "s"]], {"k": (True, x)}, Pair(1, x), Options(0.5, x), {1, 2},
            torch.float16, torch.device("cpu"), x.shape, torch.preserve_format, range(3), b"x", loop, deep,
            dtype=torch.int8, device=torch.device("cuda:1"),
        )  # fmt: skip
        debugger.stop()
        debugger.step()
    finally:
        PrecisionDebugger.reset()
    entry = Dump(tmp_path / "step0/rank").data["mine.take.0.forward"]
    args = entry["input_args"]

    def number(kind: str, value: object) -> dict[str, object]:
        return {"type": kind, "value": value}

    tensor = args[5]["right"]
    assert is_value_of(tensor, x)
    assert args[:8] == [
        None,
        number("slice", [1, 5, 2]),
        number("ellipsis", "..."),
        [number("int", 1), [number("float", 2.5), number("str", "s")]],
        {"k": [number("bool", True), tensor]},
        {"left": number("int", 1), "right": tensor},
        {"scale": number("float", 0.5), "mask": tensor},
        None,
    ]
    assert args[8] == number("torch.dtype", "torch.float16")
    assert args[9] == number("torch.device", "cpu")
    assert args[10] == number("torch.Size", [4])
    assert args[11] == {"type": "torch.memory_format", "format": "preserve_format"}
    assert args[12:14] == [None, None]
    # Containers without end are cut off, deep ones are not.
    assert "unsupported" in json.dumps(args[14])
    assert '"torch.Tensor"' in json.dumps(args[15])
    assert entry["input_kwargs"] == {
        "dtype": number("torch.dtype", "torch.int8"),
        "device": number("torch.device", "cuda:1"),
    }


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_odd_tensors_cost_neither_the_training_nor_the_record(tmp_path: Path) -> None:
    dense = torch.tensor([[0.0, 2.0], [3.0, 0.0]])
    quantised = torch.quantize_per_tensor(dense, 0.1, 0, torch.quint8)
    odd = {
        "sparse": dense.to_sparse(),
        "csr": dense.to_sparse_csr(),
        "quantised": quantised,
        "meta": dense.to("meta"),
        "complex": torch.complex(dense, dense),
        "empty": dense[:0],
        "float8": dense.to(torch.float8_e4m3fn),
        "batched": None,
    }
    module = types.ModuleType("odd")
    module.take = lambda value: value  # type: ignore[attr-defined]
    debugger = PrecisionDebugger(dump_path=str(tmp_path), task="statistics", level="L1")
    try:
        debugger.register_custom_api(module, "take")
        debugger.start()
        for value in odd.values():
            if value is not None:
                assert module.take(value) is value
        torch.vmap(module.take)(dense)
        debugger.stop()
        debugger.step()
    finally:
        PrecisionDebugger.reset()
    data = Dump(tmp_path / "step0/rank").data
    for number, name in enumerate(odd):
        described = data[f"odd.take.{number}.forward"]["input_args"][0]
        assert described["type"] == ("BatchedTensor" if name == "batched" else "torch.Tensor")
        assert described == {**data[f"odd.take.{number}.forward"]["output"][0]}, name
    assert not list(tmp_path.rglob("dump_error_info.log"))


def test_a_0_dim_value_is_that_of_the_moment(tmp_path: Path) -> None:
    counter = torch.tensor(1)

    def work() -> None:
        torch.add(counter, 0)
        counter.add_(100)
        torch.add(counter, 0)

    data = record(tmp_path, work).data
    values = [data[f"Torch.add.{n}.forward"]["input_args"][0]["Max"] for n in (0, 1)]
    assert values == [1, 101]
    assert data["Tensor.add_.0.forward"]["input_args"][0]["Max"] == 1
    assert data["Tensor.add_.0.forward"]["output"][0]["Max"] == 101


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


def test_only_listed_calls_when_asked_for(tmp_path: Path, model: ModelT, x: torch.Tensor) -> None:
    def work() -> None:
        loss_of(-model(x)[0:2].view(8)).backward()

    dump = record(tmp_path, work, api_scope="listed")
    assert [name for name in dump.forward() if name != "Torch.ones_like.0"] == T_FORWARD


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


def test_a_scope_of_calls_is_a_closed_interval(tmp_path: Path, blocks: Blocks, x: torch.Tensor) -> None:
    scope = ["Functional.relu.0.forward", "Functional.linear.2.forward"]
    dump = record(tmp_path, lambda: loss_of(blocks(x)).backward(), scope=scope)
    assert dump.names == [
        "Functional.relu.0.forward",
        "Tensor.__add__.0.forward",
        "Functional.linear.1.forward",
        "Functional.relu.1.forward",
        "Tensor.__add__.1.forward",
        "Functional.linear.2.forward",
    ]
    for name in dump.names:
        assert dump.data[name]["input_args"][0]["shape"] == [3, 8]
        assert dump.data[name]["output"][0]["shape"] == [3, 8]


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


def test_a_list_item_is_part_of_a_name(tmp_path: Path, blocks: Blocks, x: torch.Tensor) -> None:
    dump = record(tmp_path, lambda: loss_of(blocks(x)).backward(), list=["relu"])
    assert dump.names == [f"Functional.relu.{n}.forward" for n in range(3)] + [
        f"Functional.relu.{n}.backward" for n in (2, 1, 0)
    ]


def test_a_list_item_may_be_a_regular_expression(tmp_path: Path, blocks: Blocks, x: torch.Tensor) -> None:
    items = [r"name-regex(relu\.[02]\.forward$)"]
    dump = record(tmp_path, lambda: loss_of(blocks(x)).backward(), list=items)
    assert dump.names == ["Functional.relu.0.forward", "Functional.relu.2.forward"]


def test_filters_that_matched_nothing_are_told_at_the_end(
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


def test_module_dump_records_that_module_only(tmp_path: Path, x: torch.Tensor) -> None:
    torch.manual_seed(0)
    part = nn.Sequential(nn.Linear(8, 8), nn.Tanh())

    def work() -> None:
        y = F.relu(x * 1)
        module_dump(part, "MyM")
        y = part(y)
        module_dump_end()
        loss_of(F.gelu(y)).backward()

    dump = record(tmp_path, work)
    assert [n for n in dump.names if "forward" in n][:4] == [
        "Tensor.__mul__.0.forward",
        "Functional.relu.0.forward",
        "Module.MyM.Sequential.forward.0",
        "Functional.gelu.0.forward",
    ]
    assert "Module.MyM.Sequential.backward.0" in dump.data
    assert not [name for name in dump.data if "linear" in name or "tanh" in name]


def test_a_custom_api_is_recorded_until_it_is_restored(tmp_path: Path) -> None:
    module = types.ModuleType("mod")
    module.f = original = lambda x, k=1: x * k  # type: ignore[attr-defined]
    x = torch.ones(2, requires_grad=True)
    debugger = PrecisionDebugger(dump_path=str(tmp_path), task="statistics", level="L1")
    try:
        debugger.register_custom_api(module, "f")
        debugger.start()
        loss_of(module.f(x, k=3)).backward()
        debugger.restore_custom_api(module, "f")
        module.f(x)
        debugger.stop()
        debugger.step()
    finally:
        PrecisionDebugger.reset()
    assert module.f is original  # type: ignore[attr-defined]
    data = Dump(tmp_path / "step0/rank").data
    entry = data["mod.f.0.forward"]
    assert len(entry["input_args"]) == 1
    assert entry["input_kwargs"] == {"k": {"type": "int", "value": 3}}
    assert is_value_of(data["mod.f.0.backward"]["input"][0], torch.full((2,), 6.0))
    assert "mod.f.1.forward" not in data


# ---------------------------------------------------------------- overflow


def overflowing() -> None:
    x = torch.tensor([1e38, 1.0])
    y = x * 1e38
    torch.exp(y)
    torch.relu(x)


def test_the_first_overflow_ends_the_recording(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    dump = record(tmp_path, overflowing, task="overflow_check")
    assert dump.names == ["Tensor.__mul__.0.forward"]
    assert torch.isinf(dump.load("Tensor.__mul__.0.forward.output.0.pt")[0])
    assert torch.equal(dump.load("Tensor.__mul__.0.forward.input.0.pt"), torch.tensor([1e38, 1.0]))
    said = capsys.readouterr().out
    assert mentions(said, "overflow-detected", name="Tensor.__mul__.0.forward")
    assert mentions(said, "all-recorded") == 1


def test_all_overflows_are_kept_when_asked_for(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    dump = record(tmp_path, overflowing, task="overflow_check", overflow_nums=-1)
    assert dump.names == ["Tensor.__mul__.0.forward", "Torch.exp.0.forward"]
    assert "ends successfully" not in capsys.readouterr().out


def test_a_clean_step_has_no_overflow(tmp_path: Path, model: ModelT, x: torch.Tensor) -> None:
    def work() -> None:
        loss_of(model(x)).backward()
        # Beyond float32, and finite all the same.
        torch.add(torch.tensor([1e300], dtype=torch.float64), 1)

    assert record(tmp_path, work, model, task="overflow_check", level="mix", overflow_nums=-1).data == {}


def test_an_infinite_complex_number_is_an_overflow(tmp_path: Path) -> None:
    z = torch.tensor([complex(1, float("inf")), 1j])
    dump = record(tmp_path, lambda: torch.conj_physical(z), task="overflow_check", overflow_nums=-1)
    assert dump.names == ["Torch.conj_physical.0.forward"]


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
                debugger.start()
                # Of one step: files are written by the step, not by the call.
                recorded = cpu_time(work, 20)
                debugger.stop()
                debugger.step()
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
        debugger.start()
        torch.add(torch.ones(4), 1, out=held)
        torch.full((4,), float("inf"), dtype=torch.float32)
        torch.full((4,), float("nan")).uniform_()
        debugger.stop()
        debugger.step()
    finally:
        PrecisionDebugger.reset()
    hits = [name for path in tmp_path.rglob("dump.json") for name in json.loads(path.read_text())["data"]]
    assert not any("add" in name or "uniform" in name for name in hits)
