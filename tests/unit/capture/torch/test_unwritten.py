"""Memory that nobody has written has no numbers, until all of it is written; whatever wrote it.

What `empty` gives here is NaN (torch fills it so that programs repeat themselves), so a number of it would show.
"""

from __future__ import annotations

import ctypes
from pathlib import Path
from typing import Any

import pytest
import torch
from support.native_and_python import use_python
from support.recorded import Dump, record
from torch._subclasses.fake_tensor import FakeTensorMode

from msprobe.capture import native
from msprobe.capture.torch import recorder
from msprobe.capture.torch.tensors.statistics import TensorStatistics
from msprobe.diagnose import compare_runs

pytestmark = pytest.mark.usefixtures("known_memory")
Tensor = torch.Tensor
SIZE = 4096


def write_behind(tensor: Tensor) -> None:
    """What a C++ function does that is given a tensor."""
    with torch._C.DisableTorchFunction():
        address, count = tensor.data_ptr(), tensor.numel() * tensor.element_size()
    ctypes.memset(address, 1, count)


class Filled(torch.autograd.Function):
    """Fills a buffer by a kernel of its own."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        result = torch.empty_like(x)
        write_behind(result)
        return result

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Tensor:
        return gradients[0]


@pytest.fixture(params=["native", "python", "late"])
def engine(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    name: str = request.param
    if name == "native" and not native.built:
        pytest.skip("the C extension was not built")
    if name == "python":
        use_python(monkeypatch)
    if name == "late":
        late = lambda *given, **more: TensorStatistics(*given, **{**more, "defer": True})  # noqa: E731
        monkeypatch.setattr(recorder, "TensorStatistics", late)
    return name


def unset(leaf: dict[str, Any]) -> bool:
    """True if a tensor is told to be unwritten, and then without numbers."""
    told: bool = leaf.get("unset", False)
    assert not told or (leaf["Max"], leaf["Norm"], leaf.get("nan"), leaf.get("digest")) == (None,) * 4
    return told


def outputs(dump: Dump, call: str) -> list[bool]:
    return [unset(leaf) for leaf in dump.data[f"{call}.forward"]["output"]]


def inputs(dump: Dump, call: str) -> list[bool]:
    return [unset(leaf) for leaf in dump.data[f"{call}.forward"]["input_args"] if "dtype" in leaf and "Max" in leaf]


@pytest.mark.parametrize("level", ["L1", "mix"])
@pytest.mark.parametrize("mode", ["statistics", "xxh3", "md5"])
def test_views_of_unwritten_memory_have_no_numbers(engine: str, level: str, mode: str, tmp_path: Path) -> None:
    def work() -> None:
        buffer = torch.empty(SIZE)
        rows = buffer.view(64, -1)
        first, second = rows.split(32)
        first.copy_(torch.ones(32, 64))
        first.neg()
        second.t().contiguous()
        rows.abs()
        second.fill_(3)
        rows.exp()

    dump = record(tmp_path, work, torch.nn.Linear(1, 1), level=level, summary_mode=mode)
    assert outputs(dump, "Torch.empty.0") == [True]
    assert outputs(dump, "Tensor.view.0") == [True]
    assert outputs(dump, "Tensor.split.0") == [True, True]
    assert inputs(dump, "Tensor.copy_.0") == [True, False]
    assert outputs(dump, "Tensor.copy_.0") == [False]
    # One half is written.
    assert inputs(dump, "Tensor.neg.0") == [False]
    assert inputs(dump, "Tensor.contiguous.0") == [True]
    assert inputs(dump, "Tensor.abs.0") == [True]
    # All of it.
    assert outputs(dump, "Tensor.fill_.0") == [False]
    assert inputs(dump, "Tensor.exp.0") == [False]
    assert dump.data["Tensor.exp.0.forward"]["input_args"][0]["Max"] == 3.0


def test_what_other_code_writes_has_numbers(engine: str, tmp_path: Path) -> None:
    """Code that is seen to run, and code that is not."""
    expected = float(torch.full((4,), 0x01010101, dtype=torch.int32).view(torch.float32)[0])

    def work() -> None:
        Filled.apply(torch.ones(SIZE)).neg()
        plain = torch.empty(SIZE)
        write_behind(plain)
        plain.abs()
        asked = torch.empty(SIZE)
        ctypes.memset(asked.data_ptr(), 1, 4 * SIZE)
        asked.exp()

    dump = record(tmp_path, work)
    for call in ("Tensor.neg.0", "Tensor.abs.0", "Tensor.exp.0"):
        (leaf,) = dump.data[f"{call}.forward"]["input_args"]
        assert not unset(leaf), call
        assert leaf["Max"] == leaf["Min"] == expected, call


def test_writes_to_some_elements_leave_the_others_unwritten(engine: str, tmp_path: Path) -> None:
    """Columns, a row, chosen rows, those that a mask tells: until all are written, in whatever order."""

    def work() -> None:
        columns = torch.empty(64, 64)
        columns[:, :32].copy_(torch.ones(64, 32))
        columns.neg()
        columns[:, :32].neg()
        columns[:, 16:48].neg()
        columns[:, 32:].copy_(torch.ones(64, 32))
        columns.neg()
        padded = torch.empty(10, 3)
        padded[:6] = 1.0
        padded.abs()
        padded[2:6].abs()
        padded[5:].abs()
        padded[6:] = 0.0
        padded.abs()
        chosen = torch.empty(4, 3)
        chosen[torch.tensor([0, 2])] = 1.0
        chosen.exp()
        chosen.index_fill_(0, torch.tensor([1]), 2.0)
        chosen[1].exp()
        chosen.exp()
        chosen.masked_fill_(torch.tensor([False, False, False, True])[:, None], 3.0)
        chosen.exp()

    dump = record(tmp_path, work)
    assert [inputs(dump, f"Tensor.neg.{i}")[0] for i in range(4)] == [True, False, True, False]
    assert [inputs(dump, f"Tensor.abs.{i}")[0] for i in range(4)] == [True, False, True, False]
    assert [inputs(dump, f"Tensor.exp.{i}")[0] for i in range(4)] == [True, False, True, False]


def test_a_buffer_is_followed_whatever_its_type_and_place(engine: str, tmp_path: Path) -> None:
    """Bytes that are seen as numbers; and what an ``out=`` has written."""

    def work() -> None:
        room = torch.empty(64, dtype=torch.uint8)
        numbers = room.view(torch.float32)
        numbers[:8].copy_(torch.ones(8))
        numbers[:8].neg()
        numbers[4:12].neg()
        numbers[8:].fill_(1.0)
        numbers.neg()
        torch.mul(torch.ones(8), 2, out=torch.empty(8)).neg()

    dump = record(tmp_path, work)
    assert [inputs(dump, f"Tensor.neg.{i}")[0] for i in range(4)] == [False, True, False, False]


def test_memory_that_was_given_back_is_unwritten_again(engine: str, tmp_path: Path) -> None:
    """As FSDP does with the weights that it gathers."""
    weight = torch.ones(SIZE)

    def work() -> None:
        weight.abs()
        weight.untyped_storage().resize_(0)
        if weight.untyped_storage().size() == 0:
            weight.untyped_storage().resize_(4 * SIZE)
        weight.view(64, -1)
        weight.copy_(torch.zeros(SIZE))
        weight.neg()

    dump = record(tmp_path, work)
    assert inputs(dump, "Tensor.abs.0") == [False]
    assert inputs(dump, "Tensor.view.0") == [True]
    assert inputs(dump, "Tensor.neg.0") == [False]


def test_no_file_is_kept_of_it(engine: str, tmp_path: Path) -> None:
    dump = record(tmp_path, lambda: torch.empty(SIZE).view(64, -1).zero_(), task="tensor")
    assert not any("empty" in name or "view" in name for name in dump.files)
    assert "Tensor.zero_.0.forward.output.0.pt" in dump.files


def test_it_is_no_difference_between_two_runs(engine: str, tmp_path: Path) -> None:
    """Nor a place where a NaN is born. What the memory held is NaN in one run, and anything in the other."""

    def work() -> None:
        torch.empty(SIZE).view(64, -1).split(32)[0].copy_(torch.ones(32, 64)).sum()

    for name in ("candidate", "reference"):
        torch.utils.deterministic.fill_uninitialized_memory = name == "candidate"
        record(tmp_path / name, work)
    torch.utils.deterministic.fill_uninitialized_memory = True
    verdict = compare_runs(tmp_path / "candidate", tmp_path / "reference")
    assert (verdict.status, verdict.findings) == ("agree", ())


def test_tensors_without_memory_are_left_alone(engine: str, tmp_path: Path) -> None:
    """Those of a tracer look like others; reading them would end the process."""

    def work() -> None:
        with FakeTensorMode():
            torch.empty(SIZE).view(64, -1).add_(1).neg()
        torch.empty(SIZE, device="meta").view(64, -1).add_(1)
        torch.empty_strided((4,), (0,)).neg()
        torch.empty(0).neg()
        torch.empty(4, dtype=torch.complex64).conj().clone()
        torch.ones(4).abs()

    dump = record(tmp_path, work)
    assert dump.data["Tensor.abs.0.forward"]["output"][0]["Max"] == 1.0
    assert "Tensor.clone.0.forward" in dump.data
