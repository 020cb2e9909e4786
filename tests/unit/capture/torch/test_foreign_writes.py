"""Memory that is written without torch's knowledge is recorded as it is at that moment, never as it once was.

The kernels here write by ctypes, as those of Triton and C++ extensions do: no version counter shows it. The truth is
a recording of the same program that remembers nothing.
"""

from __future__ import annotations

import ctypes
import json
import math
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from support.recorded import Dump, record
from torch import nn
from torch.autograd import Function

from msprobe.capture import native
from msprobe.capture.torch import recorder
from msprobe.capture.torch.tensors.statistics import TensorStatistics

pytestmark = pytest.mark.usefixtures("known_memory")
Tensor = torch.Tensor

SIZE = 64  # of a square matrix: more than what is hashed as a whole
CACHE_ROWS = 4096


# ---------------------------------------------------------------- kernels


def write(tensor: Tensor, values: np.ndarray[Any, Any], offset: int = 0) -> None:
    """What a C++ function does that is given a tensor: nothing of torch's in Python sees it."""
    with torch._C.DisableTorchFunction():
        address = tensor.data_ptr()
    values = np.ascontiguousarray(values, dtype=np.float32)
    ctypes.memmove(address + 4 * offset, values.ctypes.data, values.nbytes)


def launch(tensor: Tensor, values: np.ndarray[Any, Any], offset: int = 0) -> None:
    """What Triton does: it asks the tensor for its address."""
    values = np.ascontiguousarray(values, dtype=np.float32)
    ctypes.memmove(tensor.data_ptr() + 4 * offset, values.ctypes.data, values.nbytes)


def read(tensor: Tensor) -> np.ndarray[Any, Any]:
    with torch._C.DisableTorchFunction():
        return tensor.detach().contiguous().numpy().copy()


class Doubled(Function):
    """Fills `empty_like` buffers, forward and backward."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        result = torch.empty_like(x)
        view = result.view(-1)
        write(result, 2 * read(x))
        view.sum()
        return result

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Tensor:
        result = gradients[0].new_empty(gradients[0].shape)
        write(result, 2 * read(gradients[0]))
        result.sum()
        return result


class FusedLoss(Function):
    """Writes the gradient over the logits, and scales it in the backward, as fused cross-entropies do."""

    @staticmethod
    def forward(ctx: Any, logits: Tensor) -> Tensor:
        values = read(logits)
        write(logits, 2 * values)
        ctx.gradient = logits.detach()
        loss = float((values**2).sum())
        # Of memory of the CPU torch.tensor writes the value unseen; to a device it copies it.
        return torch.tensor(loss) if unseen is write else torch.full((), loss)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Tensor:
        write(ctx.gradient, float(gradients[0]) * read(ctx.gradient) / SIZE)
        gradient: Tensor = ctx.gradient
        return gradient


class InPlaceBackward(Function):
    """Writes over the gradient that it gets."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return x * 1

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Tensor:
        write(gradients[0], 3 * read(gradients[0]))
        return gradients[0]


class Outer(Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        buffer = torch.zeros_like(x)
        total = buffer + 1
        write(buffer, read(Doubled.apply(x)))
        write(total, read(x))
        return buffer + total

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Tensor:
        return gradients[0] * 3


class Append(Function):
    """Writes one row of a large buffer."""

    @staticmethod
    def forward(ctx: Any, cache: Tensor, row: int, value: float) -> Tensor:
        write(cache, np.full(cache.shape[1], value), row * cache.shape[1])
        return cache.sum()

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Any:
        raise AssertionError


@torch.library.custom_op("msprobe_foreign::tripled", mutates_args=())
def tripled(x: Tensor) -> Tensor:
    result = torch.empty_like(x)
    write(result, 3 * read(x))
    return result


tripled.register_autograd(lambda ctx, gradient: tripled(gradient))

# An operator that writes to its argument and does not say so.
_LIBRARY = torch.library.Library("msprobe_foreign", "FRAGMENT")
_LIBRARY.define("append(Tensor cache, int row, float value) -> ()")
_LIBRARY.impl(
    "append",
    lambda cache, row, value: write(cache, np.full(cache.shape[1], value), row * cache.shape[1]),
    "CPU",
)


class FusedStep(torch.optim.Optimizer):
    """Writes weights, moments and a weight whose gradient is elsewhere."""

    def __init__(self, parameters: Any) -> None:
        super().__init__(parameters, {"lr": 0.5})

    def step(self, closure: Any = None) -> None:
        for group in self.param_groups:
            for parameter in group["params"]:
                moment = self.state[parameter].setdefault("moment", torch.zeros_like(parameter))
                write(moment, read(moment) + 1)
                write(parameter, read(parameter) / 2 + 1)


class Written(Function):
    """Writes to what it is given, by code that is seen to run."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, values: Any) -> Tensor:
        write(x, values)
        return torch.zeros(1)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Any:
        raise AssertionError


# What of these programs nothing shows but the elements; on a device, where nobody looks at those again, a Function.
unseen: Callable[..., Any] = write


class InPlaceScale(nn.Module):
    """Calls a function of C++ in plain Python."""

    def forward(self, x: Tensor) -> Tensor:
        unseen(x, read(x) * 5)
        return x


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(SIZE, SIZE)
        self.scale = InPlaceScale()
        self.second = nn.Linear(SIZE, SIZE)
        self.same = nn.Identity()

    def forward(self, x: Tensor) -> Tensor:
        with torch.no_grad():
            hidden = self.scale(self.first(x))
            unseen(hidden, read(hidden) / 10)
            hidden = self.same(hidden)
            unseen(hidden, read(hidden) + 2)
        hidden = Doubled.apply(self.second(hidden))
        hidden = self.same(Outer.apply(hidden))
        hidden = tripled(hidden)
        hidden = InPlaceBackward.apply(self.same(hidden))
        loss: Tensor = FusedLoss.apply(self.same(self.second(hidden)))
        return loss


# ---------------------------------------------------------------- programs


def whole_step(model: Model, x: Tensor) -> None:
    """Every way at once: a model, its backward, and its optimizer, twice."""
    optimizer = FusedStep(model.parameters())
    for _ in range(2):
        model(x).backward()
        model.second.bias.grad = None
        optimizer.step()


def buffers(model: Model, x: Tensor) -> None:
    """One buffer, written and used in turn; views of it; results of operations that are written over."""
    buffer = torch.empty(SIZE, SIZE)
    view = buffer[1:].view(-1)
    for factor in range(3):
        unseen(buffer, np.full((SIZE, SIZE), factor))
        model.same(buffer)
        buffer.t().clone()
        view.view(-1, SIZE)
        (view * 2).sum()
    out = torch.mul(x, 2, out=torch.empty_like(x))
    model.same(out)
    unseen(out, read(x) * 7)
    model.same(out).neg()
    (launch if unseen is write else unseen)(out, read(x) * 8)
    model.same(out).neg()
    old = torch.Tensor(SIZE, SIZE).view(-1)
    unseen(old, np.arange(SIZE * SIZE))
    model.same(old).neg()


def shared_with_numpy(model: Model, x: Tensor) -> None:
    array = np.zeros((CACHE_ROWS, SIZE), np.float32)
    tensor = torch.from_numpy(array).view(-1)
    for row in range(3):
        model.same(tensor)
        tensor.view(-1, SIZE).t()
        array[17 * row + 1] = row + 1


def rows(model: Model, x: Tensor) -> None:
    """A row at a time in a large buffer, by code that is seen to run."""
    cache = torch.zeros(CACHE_ROWS, SIZE)
    cache = cache + 0
    for row in range(3):
        Append.apply(cache, 17 * row + 1, row + 1.0)
        model.same(cache).t()
    cache = cache + 0
    for row in range(3):
        torch.ops.msprobe_foreign.append(cache, 17 * row + 1, 20.0 + row)
        cache.t().neg()


def rows_by_address(model: Model, x: Tensor) -> None:
    """A row at a time in a large buffer, by code that is seen to ask for its address."""
    cache = torch.zeros(CACHE_ROWS, SIZE) + 0
    array = cache.numpy()
    for row in range(3):
        array[17 * row + 1] = -1 - row
        cache.t().neg()
    cache = cache + 0
    for row in range(3):
        launch(cache, np.full(SIZE, 10.0 + row), (17 * row + 1) * SIZE)
        cache.t().neg()


def program(model: Model, x: Tensor, addresses: bool) -> None:
    whole_step(model, x)
    buffers(model, x)
    if unseen is write:
        shared_with_numpy(model, x)
    rows(model, x)
    if addresses:
        rows_by_address(model, x)


# ---------------------------------------------------------------- recordings


@pytest.fixture(params=["native", "python", "late"])
def engine(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    name: str = request.param
    if name == "native" and not native.built:
        pytest.skip("the C extension was not built")
    if name == "python":
        for attribute in ("numbers", "gather", "Memo"):
            monkeypatch.setattr(native, attribute, None)
    return name


class Forgetful(TensorStatistics):
    """Remembers nothing."""

    def __init__(self, *settings: Any, **more: Any) -> None:
        super().__init__(*settings, **more)
        describe = self.describe
        self.describe = lambda tensor, remember=True: describe(tensor, False)  # type: ignore[method-assign]


def recorded(place: Path, kind: Any, late: bool, level: str, task: str) -> Dump:
    """``late``, as on a device: nothing shows at L0 and L2 that a tensor is asked for its address."""
    global unseen
    torch.manual_seed(0)
    model = Model()
    x = torch.randn(SIZE, SIZE)
    settings: dict[str, Any] = {"level": level, "task": "tensor" if task == "tensor" else "statistics"}
    if task in ("md5", "xxh3"):
        settings["summary_mode"] = task
    before = recorder.TensorStatistics
    recorder.TensorStatistics = lambda *given, **more: kind(*given, defer=late, **more)  # type: ignore[misc, assignment]
    unseen = Written.apply if late else write
    try:
        return record(place, lambda: program(model, x, not late or level in ("L1", "mix")), model, **settings)
    finally:
        unseen = write
        recorder.TensorStatistics = before  # type: ignore[misc]


@pytest.fixture(scope="module")
def truth(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Dump]:
    """The recording that remembers nothing, made once for all that are compared with it."""
    known: dict[Any, Dump] = {}

    def of(late: bool, level: str, task: str) -> Dump:
        place = (late, level, task)
        if place not in known:
            known[place] = recorded(tmp_path_factory.mktemp("true"), Forgetful, *place)
        return known[place]

    return of


def differences(found: Any, true: Any, path: str) -> Iterator[str]:
    if isinstance(true, dict) and isinstance(found, dict):
        # Rows are numbered as they are made; what was remembered has none of its own.
        for key in (true.keys() | found.keys()) - {"row"}:
            yield from differences(found.get(key), true.get(key), f"{path}.{key}")
    elif isinstance(true, list) and isinstance(found, list) and len(true) == len(found):
        for i, (one, other) in enumerate(zip(found, true, strict=True)):
            yield from differences(one, other, f"{path}.{i}")
    elif isinstance(found, float) and isinstance(true, float):
        # Torch's own sums are others in the last bits.
        if not math.isclose(found, true, rel_tol=1e-4, abs_tol=1e-6) and not (math.isnan(found) and math.isnan(true)):
            yield f"{path}: {found} instead of {true}"
    elif found != true:
        yield f"{path}: {found} instead of {true}"


@pytest.mark.parametrize(
    ("level", "task"),
    [
        ("L0", "statistics"),
        ("L1", "statistics"),
        ("mix", "statistics"),
        ("L2", "statistics"),
        ("mix", "md5"),
        ("L1", "xxh3"),
        ("L0", "tensor"),
        ("L1", "tensor"),
    ],
)
def test_what_is_recorded_is_what_was_there(
    tmp_path: Path, truth: Callable[..., Dump], engine: str, level: str, task: str
) -> None:
    late = engine == "late"
    true = truth(late, level, task)
    found = recorded(tmp_path, TensorStatistics, late, level, task)
    wrong = [text for name in true.data for text in differences(found.data[name], true.data[name], name)]
    assert not wrong, wrong[:5]
    assert list(found.data) == list(true.data)
    assert found.files == true.files
    for name in found.files:
        assert torch.equal(found.load(name).nan_to_num(7), true.load(name).nan_to_num(7)), name
    assert not list(tmp_path.rglob("dump_error_info.log"))


@pytest.mark.parametrize("level", ["L1", "mix"])
def test_a_gradient_is_recorded_before_a_function_writes_over_it(tmp_path: Path, level: str) -> None:
    x = torch.ones(3, requires_grad=True)
    dump = record(tmp_path, lambda: InPlaceBackward.apply(x).sum().backward(), nn.Sequential(nn.ReLU()), level=level)
    backward = dump.data["Function.InPlaceBackward.0.backward"]
    assert backward["input"][0]["Max"] == 1
    assert backward["output"][0]["Max"] == 3


def test_a_buffer_that_a_function_fills_has_its_numbers_forward_and_backward(tmp_path: Path) -> None:
    x = torch.tensor([1.0, 2.0, 3.0], requires_grad=True)
    dump = record(tmp_path, lambda: Doubled.apply(x).neg().sum().backward())
    assert dump.data["Function.Doubled.0.forward"]["output"][0]["Max"] == 6
    assert dump.data["Tensor.neg.0.forward"]["input_args"][0]["Max"] == 6
    assert dump.data["Function.Doubled.0.backward"]["output"][0]["Max"] == -2


def test_on_a_device_a_write_shows_by_its_version_or_by_code_that_is_seen_to_run() -> None:
    statistics = TensorStatistics(defer=True)
    x = torch.zeros(1000)
    infos = [statistics.describe(x), statistics.describe(x.view(10, 100))]
    x += 1
    infos.append(statistics.describe(x))
    write(x, np.full(1000, 2))
    statistics.forget_all()
    infos += [statistics.describe(x), statistics.describe(x.view(10, 100))]
    write(x, np.full(1000, 3))
    statistics.distrust(x)
    infos.append(statistics.describe(x))
    statistics.flush()
    assert [json.loads(info.text)["Max"] for info in infos] == [0, 0, 1, 2, 2, 3]
    statistics.close()


def test_on_a_device_what_did_not_change_has_the_numbers_that_were_taken_first() -> None:
    statistics = TensorStatistics("md5", defer=True)
    x = torch.arange(12.0).view(3, 4)
    infos = [statistics.describe(x), statistics.describe(x), statistics.describe(x.t()), statistics.describe(x)]
    statistics.flush()
    assert infos[0].text == infos[1].text == infos[3].text
    assert [json.loads(info.text)["Max"] for info in infos] == [11] * 4
    assert not statistics.describe(x).late
    assert statistics.describe(x).text == infos[0].text
    statistics.close()
