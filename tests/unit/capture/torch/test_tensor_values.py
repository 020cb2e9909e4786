"""The values of tensors of every kind, copied at the moment of recording."""

from __future__ import annotations

import gc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from support.coded_texts import mentions
from support.native_and_python import use_python
from support.recorded import record, record_steps
from torch import nn

from msprobe import log
from msprobe.capture import native
from msprobe.capture.torch.tensors.statistics import TensorStatistics
from msprobe.capture.torch.tensors.tensor_values import copy_values
from msprobe.store import tensor_files
from msprobe.store.dtypes import ELEMENT_TYPES
from msprobe.store.tensor_buffers import TensorBuffers

pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.fixture(autouse=True)
def _speaks_again() -> None:
    log.forget_once()


def copied(tensor: torch.Tensor) -> torch.Tensor | None:
    """What would be written, as a tensor."""
    payload = copy_values(tensor, lambda nbytes: memoryview(bytearray(nbytes)))
    if payload is None:
        return None
    dtype = getattr(torch, payload.dtype_name)
    assert payload.data.nbytes == int(np.prod(payload.shape)) * ELEMENT_TYPES[payload.dtype_name].bytes
    if not payload.data.nbytes:
        return torch.empty(payload.shape, dtype=dtype)
    return torch.frombuffer(bytearray(payload.data), dtype=torch.uint8).view(dtype).reshape(payload.shape)


def x() -> torch.Tensor:
    return torch.arange(1.0, 7.0).view(2, 3)


def plain() -> dict[str, torch.Tensor]:
    dtypes = (
        "float64 float32 float16 bfloat16 int64 int32 int16 int8 uint8 uint16 uint32 uint64 bool complex64 complex128 "
        "float8_e4m3fn float8_e5m2 float8_e4m3fnuz float8_e5m2fnuz"
    )
    found = {name: (x() % 2).to(getattr(torch, name)) for name in dtypes.split()}
    return {
        **found,
        "complex32": torch.ones(3, dtype=torch.complex32),
        "scalar": torch.tensor(2.5),
        "empty": torch.empty(0, 3),
        "transposed": x().t(),
        "every second": torch.arange(12.0)[::2],
        "repeated": torch.ones(1).expand(4, 2),
        "channels last": torch.arange(24.0).view(1, 2, 3, 4).to(memory_format=torch.channels_last),
        "conjugate": (x() * 1j).conj(),
        "negative": torch._neg_view(x()),
        "negative of the imaginary": (x() * 1j).conj().imag,
        "large": torch.arange(100_000.0),
        "large and strided": torch.arange(200_000.0).view(400, 500).t()[::2],
        "parameter": nn.Parameter(x()),
        "zero": torch._efficientzerotensor((2, 3)),
    }


def same_bytes(a: torch.Tensor, b: torch.Tensor) -> bool:
    def raw(t: torch.Tensor) -> bytes:
        t = t.detach().resolve_conj().resolve_neg().contiguous()
        return bytes(native.memory(t.data_ptr(), t.numel() * t.element_size())) if t.numel() else b""

    return (a.dtype, a.shape) == (b.dtype, b.shape) and raw(a) == raw(b)


@pytest.mark.parametrize("name", plain())
def test_plain_tensors(name: str) -> None:
    tensor = plain()[name]
    found = copied(tensor)
    assert found is not None
    assert same_bytes(found, tensor.clone() if name == "zero" else tensor)


@pytest.mark.skipif(not native.built, reason="the C extension was not built")
@pytest.mark.parametrize("name", plain())
def test_the_short_way_gives_the_same_bytes_and_their_checksum(name: str) -> None:
    import zlib

    tensor = plain()[name]
    slow = copy_values(tensor, lambda nbytes: memoryview(bytearray(nbytes)))
    assert slow is not None
    buffer = bytearray(slow.data.nbytes)
    found = TensorStatistics().copy(tensor, memoryview(buffer))
    if found is None:
        assert tensor.is_complex() or tensor.is_neg() or name == "zero", "an everyday tensor takes the short way"
        assert not any(buffer)
        return
    assert (found[0], tuple(found[1])) == (slow.dtype_name, slow.shape)
    assert bytes(buffer) == bytes(slow.data)
    assert found[2] == zlib.crc32(buffer)


@pytest.mark.skipif(not native.built, reason="the C extension was not built")
def test_the_short_way_fills_only_a_buffer_that_fits() -> None:
    statistics = TensorStatistics()
    for size in (0, 23, 25, 48):
        buffer = bytearray(size)
        assert statistics.copy(x(), memoryview(buffer)) is None
        assert not any(buffer)
    with pytest.raises(BufferError):
        statistics.copy(x(), memoryview(bytes(24)))
    freed = x()
    freed.untyped_storage().resize_(0)
    assert statistics.copy(freed, memoryview(bytearray(24))) is None
    assert statistics.copy(torch.eye(2).to_sparse(), memoryview(bytearray(16))) is None
    assert statistics.copy(torch.empty(3, device="meta"), memoryview(bytearray(12))) is None


@pytest.mark.parametrize("layout", ["sparse_coo", "sparse_csr", "sparse_csc", "sparse_bsr", "_mkldnn"])
def test_other_layouts_are_written_dense(layout: str) -> None:
    dense = torch.diag(torch.tensor([2.0, -4.0, 4.0, 1.0]))
    block = {"blocksize": (2, 2)} if layout == "sparse_bsr" else {}
    tensor = dense.to_mkldnn() if layout == "_mkldnn" else dense.to_sparse(layout=getattr(torch, layout), **block)
    found = copied(tensor)
    assert found is not None
    assert torch.equal(found, dense)


def test_a_sparse_gradient_is_written_dense_as_it_comes() -> None:
    """In a hook it has rows that come twice."""
    table = nn.Embedding(4, 2, sparse=True)
    seen: list[torch.Tensor | None] = []
    table.weight.register_hook(lambda gradient: seen.append(copied(gradient)))
    table(torch.tensor([1, 1, 3])).sum().backward()
    assert seen[0] is not None
    assert torch.equal(seen[0], torch.tensor([[0.0, 0.0], [2.0, 2.0], [0.0, 0.0], [1.0, 1.0]]))


def test_what_would_be_far_too_large_when_dense_is_left_out(capsys: pytest.CaptureFixture[str]) -> None:
    vast = torch.sparse_coo_tensor([[0], [5]], torch.ones(1), (1 << 20, 1 << 20))
    assert copied(vast) is None
    assert copied(vast) is None
    assert capsys.readouterr().out.count("WARNING") == 1


def test_quantised_tensors_are_what_they_stand_for() -> None:
    q = torch.quantize_per_tensor(torch.tensor([-1.0, 0.0, 2.0]), 0.5, 3, torch.qint8)
    found = copied(q)
    assert found is not None
    assert found.tolist() == [-1.0, 0.0, 2.0]


def test_types_that_no_file_can_hold_are_left_out(capsys: pytest.CaptureFixture[str]) -> None:
    assert copied(torch.empty(4, dtype=torch.uint1)) is None
    assert mentions(capsys.readouterr().out, "type-without-file", kind="uint1")


def test_transforms_show_the_value_inside() -> None:
    seen: list[torch.Tensor | None] = []

    def look(a: torch.Tensor) -> torch.Tensor:
        seen.append(copied(a))
        return (a * 2).sum()

    torch.func.vmap(look)(x())
    torch.func.grad(look)(x())
    torch.func.vmap(torch.func.grad(look))(x())
    torch.func.jvp(look, (x(),), (x(),))
    torch.func.functionalize(look)(x())
    assert len(seen) == 5
    assert all(found is not None and torch.equal(found, x()) for found in seen)


def test_nested_tensors_are_all_components_at_once() -> None:
    parts = [torch.ones(2), 2 * torch.ones(3)]
    for nested in (torch.nested.nested_tensor(parts), torch.nested.nested_tensor(parts, layout=torch.jagged)):
        found = copied(nested)
        assert found is not None
        assert found.tolist() == [1, 1, 2, 2, 2]


class Noisy(torch.Tensor):
    calls: list[Any] = []

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        cls.calls.append(func)
        return super().__torch_function__(func, types, args, kwargs or {})


class Wrapper(torch.Tensor):
    @staticmethod
    def __new__(cls, inner: torch.Tensor) -> Wrapper:
        return torch.Tensor._make_wrapper_subclass(cls, inner.shape, dtype=inner.dtype)

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        raise RuntimeError("not to be called")


def test_subclasses_are_read_without_running_their_code() -> None:
    noisy = x().as_subclass(Noisy)
    Noisy.calls.clear()
    found = copied(noisy)
    assert found is not None
    assert torch.equal(found, x())
    assert Noisy.calls == []


def fake() -> torch.Tensor:
    from torch._subclasses import FakeTensorMode

    with FakeTensorMode():
        return torch.empty(2, 3)


def freed() -> torch.Tensor:
    tensor = x()
    tensor.untyped_storage().resize_(0)
    return tensor


@pytest.mark.parametrize(
    "make",
    [
        lambda: torch.empty(3, device="meta"),
        lambda: Wrapper(x()),
        fake,
        freed,
        lambda: torch.empty(3, 3, layout=torch.sparse_coo, device="meta"),
    ],
    ids=["meta", "wrapper", "fake", "freed", "sparse meta"],
)
def test_what_has_no_values_is_left_out(make: Callable[[], torch.Tensor]) -> None:
    assert copied(make()) is None


def test_of_distributed_tensors_what_this_rank_holds(mesh: Any) -> None:
    from torch.distributed.tensor import Shard, distribute_tensor

    found = copied(distribute_tensor(x(), mesh, [Shard(0)]))
    assert found is not None
    assert torch.equal(found, x())


def test_a_collective_is_never_waited_for(mesh: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    import torch.distributed._functional_collectives as collectives

    waits = []
    real = collectives.wait_tensor
    monkeypatch.setattr(collectives, "wait_tensor", lambda t: waits.append(t) or real(t))
    pending = collectives.all_reduce(torch.ones(2), "sum", mesh)
    assert copied(pending) is None
    assert waits == []
    pending.trigger_wait()
    found = copied(pending)
    assert found is not None
    assert found.tolist() == [1, 1]


# ---- in a recording ----


def test_every_file_holds_the_values_of_its_moment(tmp_path: Path) -> None:
    kept: dict[str, torch.Tensor] = {}

    def work() -> None:
        a = torch.zeros(3)
        a.add_(1)
        kept["Tensor.add_.0.forward.output.0.pt"] = a.clone()
        a.mul_(5)
        kept["Tensor.mul_.0.forward.output.0.pt"] = a.clone()
        a.fill_(7)

    dump = record(tmp_path, work, task="tensor")
    for name, values in kept.items():
        assert torch.equal(dump.load(name), values), name
    assert torch.equal(dump.load("Tensor.mul_.0.forward.input.0.pt"), torch.ones(3))


def test_one_tensor_under_many_names_is_one_file(tmp_path: Path) -> None:
    def work() -> None:
        a = torch.ones(3).exp()
        b = a + 1
        torch.stack([b, b, b])

    dump = record(tmp_path, work, task="tensor")
    folder = dump.folder / "dump_tensor_data"
    names = [f"Torch.stack.0.forward.input.0.{i}.pt" for i in range(3)] + ["Tensor.__add__.0.forward.output.0.pt"]
    assert len({(folder / name).stat().st_ino for name in names}) == 1
    assert torch.equal(dump.load(names[1]), torch.ones(3).exp() + 1)


def test_tensors_without_values_are_recorded_without_a_file_or_an_error(tmp_path: Path) -> None:
    def work() -> None:
        torch.empty(3, device="meta") * 2
        torch.func.vmap(lambda a: (a * 2).sum())(x())
        Wrapper(x()).requires_grad_()

    dump = record(tmp_path, work, task="tensor")
    assert dump.data["Tensor.__mul__.0.forward"]["input_args"][0].get("data_name") is None
    batched = dump.data["Tensor.__mul__.1.forward"]["input_args"][0]
    assert torch.equal(dump.load(batched["data_name"]), x())
    assert not (dump.folder / "dump_error_info.log").exists()


@pytest.mark.parametrize("built", [True, False], ids=["native", "python"])
def test_many_steps_neither_grow_nor_keep_anything(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, built: bool
) -> None:
    if not built:
        use_python(monkeypatch)
    elif not native.built:
        pytest.skip("the C extension was not built")
    # Memory that larger steps of other tests took is kept for the next ones.
    monkeypatch.setattr(tensor_files, "_buffers", TensorBuffers())
    model = nn.Sequential(nn.Linear(8, 64), nn.ReLU(), nn.Linear(64, 8))
    counts: list[int] = []
    taken: list[int] = []

    def work() -> None:
        model(torch.ones(512, 8)).sum().backward()
        model.zero_grad()
        gc.collect()
        counts.append(sum(issubclass(type(value), torch.Tensor) for value in gc.get_objects()))
        taken.append(tensor_files._buffers._kept)

    gc.collect()
    gc.freeze()  # what is older than this test is not looked through at each step
    try:
        record_steps(tmp_path, [work] * 14, task="tensor")
    finally:
        gc.unfreeze()
    assert counts[-1] <= counts[5], "tensors are kept from step to step"
    assert max(taken) <= 8 << 20, "a step of 2 MB needs no more memory than that"


def test_an_overflow_keeps_the_values_of_its_record(tmp_path: Path) -> None:
    def work() -> None:
        a = torch.ones(3) * 2
        a.mul_(float("inf"))
        a.fill_(1)

    dump = record(tmp_path, work, task="overflow_check")
    assert dump.load("Tensor.mul_.0.forward.output.0.pt").tolist() == [float("inf")] * 3
    assert dump.load("Tensor.mul_.0.forward.input.0.pt").tolist() == [2.0] * 3
