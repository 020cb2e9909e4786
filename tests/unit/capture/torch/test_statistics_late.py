"""Descriptions whose numbers are still on the device: one transfer in the end, no waiting before."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from msprobe.capture import native
from msprobe.capture.torch.devices import device_chunks, late_descriptions
from msprobe.capture.torch.tensors import statistics as statistics_module
from msprobe.capture.torch.tensors.statistics import TensorStatistics

# Elements of a tensor that is not copied.
LARGE = 10_000


def test_a_late_description_says_so_until_the_flush() -> None:
    statistics = TensorStatistics(defer=True)
    info = statistics.describe(torch.tensor([1.0, 3.0]))
    assert info.late
    assert info.nonfinite is None
    before = json.loads(info.text)
    assert (before["Max"], before["unsupported"]) == (None, "not read back")
    statistics.flush()
    after = json.loads(info.text)
    assert (after["Max"], after["Mean"]) == (3.0, 2.0)
    assert "unsupported" not in after
    assert not info.late
    assert info.nonfinite is False


def test_the_value_is_that_of_the_moment_not_of_the_flush() -> None:
    statistics = TensorStatistics("md5", defer=True)
    x = torch.tensor([1.0, 2.0])
    info = statistics.describe(x)
    expected = json.loads(TensorStatistics("md5").describe(x).text)
    x.mul_(100)
    statistics.flush()
    assert json.loads(info.text) == expected


def test_a_file_can_be_named_before_and_after_the_flush() -> None:
    statistics = TensorStatistics(defer=True)
    info = statistics.describe(torch.tensor([1.0, float("inf")]))
    named = info.with_file("a.pt")
    record = {"input": [named]}
    assert (named.late, named.data_name) == (True, "a.pt")
    statistics.flush()
    assert (named.late, named.nonfinite) == (False, True)
    assert json.loads(native.encode(record, 0))["input"][0]["Max"] == float("inf")
    assert info.with_file("a.pt").text == named.text
    keys = list(json.loads(named.text))
    assert keys.index("data_name") == keys.index("requires_grad") + 1
    assert "data_name" not in json.loads(info.text)


class Operators(TorchDispatchMode):
    """What is launched."""

    def __init__(self) -> None:
        super().__init__()
        self.launched: list[str] = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.launched.append(func.name())
        return func(*args, **(kwargs or {}))


@pytest.fixture
def launched(monkeypatch) -> Iterator[list[str]]:
    """The kernels that the recorder launches itself, those of views left out."""
    monkeypatch.setattr(statistics_module, "OwnWork", contextlib.nullcontext)
    mode = Operators()
    with mode:
        yield mode.launched


SIZES = [16, 40_000]


@pytest.mark.parametrize("size", SIZES)
def test_what_is_met_again_costs_no_launch(size: int, launched: list[str]) -> None:
    statistics = TensorStatistics(defer=True)
    statistics.describe(torch.ones(size, 4))  # for tables
    x = torch.randn(size, 4)
    launched.clear()
    infos = [statistics.describe(x)]
    begun = [name for name in launched if name not in VIEWS]
    assert len(begun) <= (1 if size < 100 else 16), begun
    launched.clear()
    infos += [statistics.describe(view) for view in (x, x.view(-1), x.view(2, -1), x.requires_grad_())]
    assert [name for name in launched if name not in VIEWS] == []
    x.detach().add_(1)
    launched.clear()
    infos.append(statistics.describe(x))
    assert launched
    statistics.flush()
    tops = [json.loads(info.text)["Max"] for info in infos]
    assert len(set(tops[:5])) == 1
    assert tops[5] != tops[0]


VIEWS = (
    *("aten::view", "aten::view.dtype", "aten::detach", "aten::alias", "aten::select.int", "aten::slice.Tensor"),
    *("aten::unsqueeze", "aten::t", "aten::empty.memory_format"),
)


@pytest.mark.parametrize("size", SIZES)
def test_results_cross_to_the_host_chunk_by_chunk(monkeypatch, size: int) -> None:
    monkeypatch.setattr(late_descriptions, "CHUNK", 6)
    received = []
    real = device_chunks.Chunk.receive
    monkeypatch.setattr(device_chunks.Chunk, "receive", lambda chunk: received.append(chunk) or real(chunk))
    statistics = TensorStatistics(defer=True)
    tensors = [torch.full((size + i,), float(i)) for i in range(10)]
    infos = [statistics.describe(x) for x in tensors]
    statistics.flush()
    assert len(received) == 2
    assert [json.loads(info.text)["Max"] for info in infos] == list(range(10))
    statistics.flush()
    assert len(received) == 2, "there is nothing more to bring"


def test_numbers_of_a_chunk_come_while_others_are_made(monkeypatch) -> None:
    monkeypatch.setattr(late_descriptions, "CHUNK", 4)
    statistics = TensorStatistics(defer=True)
    tensors = [torch.full((2,), float(i)) for i in range(10)]
    infos = [statistics.describe(x) for x in tensors]
    statistics.late.receive()
    assert [info.late for info in infos] == [False] * 8 + [True] * 2
    assert (statistics.late.made, statistics.late.known) == (10, 8)
    assert json.loads(infos[7].text)["Max"] == 7.0
    assert statistics.has_late()
    statistics.flush()
    assert not statistics.has_late()


@pytest.mark.parametrize("limit", ["CHUNK_BYTES", "MOST_BYTES"])
def test_copies_for_digests_are_bounded(monkeypatch, limit: str) -> None:
    monkeypatch.setattr(late_descriptions, "CHUNK_BYTES", 1000)
    monkeypatch.setattr(late_descriptions, "MOST_BYTES", 2000 if limit == "MOST_BYTES" else 1 << 30)
    statistics = TensorStatistics("xxh3", defer=True)
    tensors = [torch.randn(100) for _ in range(20)]
    infos = [statistics.describe(x) for x in tensors]
    if limit == "MOST_BYTES":
        assert statistics.late.known >= 12, "more than there is room for was not awaited"
    statistics.flush()
    for x, info in zip(tensors, infos, strict=True):
        found, expected = json.loads(info.text), json.loads(TensorStatistics("xxh3").describe(x).text)
        assert found["digest"] == expected["digest"]


def test_an_error_of_the_device_concerns_its_chunk_alone(monkeypatch) -> None:
    monkeypatch.setattr(late_descriptions, "CHUNK", 4)
    real, asked = torch.stack, []

    def stack(results):
        asked.append(results)
        if len(asked) == 6:  # the second chunk
            raise RuntimeError("the device failed")
        return real(results)

    monkeypatch.setattr(torch, "stack", stack)
    statistics = TensorStatistics(defer=True)
    tensors = [torch.full((LARGE,), float(i)) for i in range(12)]
    infos = [statistics.describe(x) for x in tensors]
    with pytest.raises(RuntimeError, match="the device failed"):
        statistics.flush()
    tops = [json.loads(info.text)["Max"] for info in infos]
    assert tops == [0.0, 1.0, 2.0, 3.0, None, None, None, None, 8.0, 9.0, 10.0, 11.0]
    assert "the device failed" in json.loads(infos[5].text)["unsupported"]
    assert not statistics.has_late()
    again = statistics.describe(tensors[5])
    statistics.flush()
    assert json.loads(again.text)["Max"] is None, "no number of the failed chunk, and no other"
    statistics.reset()
    anew = statistics.describe(tensors[5])
    statistics.flush()
    assert json.loads(anew.text)["Max"] == 5.0


def test_no_memory_is_called_so(monkeypatch) -> None:
    def aminmax(values, **how):
        raise RuntimeError("NPU out of memory. Tried to allocate 2.00 GiB")

    monkeypatch.setattr(torch, "aminmax", aminmax)
    statistics = TensorStatistics(defer=True)
    info = statistics.describe(torch.ones(LARGE))
    statistics.flush()
    said = json.loads(info.text)
    assert (said["Max"], said["shape"]) == (None, [LARGE])
    assert said["unsupported"].startswith("out of memory")
    monkeypatch.undo()
    info = statistics.describe(torch.ones(LARGE))
    statistics.flush()
    assert json.loads(info.text)["Max"] == 1.0


def test_what_a_device_cannot_reduce_is_copied(monkeypatch) -> None:
    def aminmax(values, **how):
        raise NotImplementedError("aminmax")

    monkeypatch.setattr(torch, "aminmax", aminmax)
    statistics = TensorStatistics(defer=True)
    info = statistics.describe(torch.arange(LARGE) * 1.0)
    statistics.flush()
    assert json.loads(info.text)["Max"] == LARGE - 1


def test_the_same_texts_as_at_once() -> None:
    torch.manual_seed(1)
    tensors = [torch.randn(5, 7).to(d) for d in (torch.float32, torch.float64, torch.float16, torch.bfloat16)]
    tensors += [
        torch.tensor([0.0, float("nan"), float("inf")]),
        torch.tensor([1, 0, -3]),
        torch.tensor([True, False]),
    ]
    tensors += [
        torch.tensor([1 + 1j, 0]),
        torch.tensor(4),
        torch.tensor(False),
        torch.empty(0),
        torch.ones(3, 2).t(),
    ]
    late, now = TensorStatistics(defer=True), TensorStatistics()
    infos = [late.describe(x) for x in tensors]
    late.flush()
    for x, info in zip(tensors, infos, strict=True):
        found, expected = json.loads(info.text), json.loads(now.describe(x).text)
        assert list(found) == list(expected)
        for key, value in expected.items():
            if key in ("Mean", "Norm") and isinstance(value, float) and value == value:
                step = {torch.float16: 2e-3, torch.bfloat16: 1e-2}.get(x.dtype, 1e-6)
                assert found[key] == pytest.approx(value, rel=step)
            else:
                assert str(found[key]) == str(value)
        assert info.nonfinite == now.describe(x).nonfinite


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("mode", ["statistics", "md5", "xor", "xxh3", "structure"])
def test_describing_on_a_gpu_never_waits_for_it(mode: str) -> None:
    tensors = [
        torch.randn(100, 100, device="cuda"),
        torch.randn(64, device="cuda", dtype=torch.bfloat16),
        torch.randn(8, 8, device="cuda").t(),
        torch.arange(10, device="cuda"),
        torch.tensor(3.5, device="cuda"),
        torch.ones(4, device="cuda") > 0,
        torch.randn(4, device="cuda", dtype=torch.complex64),
        torch.randn(16, device="cuda").to(torch.float8_e4m3fn),
    ]
    statistics = TensorStatistics(mode)
    torch.cuda.synchronize()
    torch.cuda.set_sync_debug_mode("error")
    try:
        infos = [statistics.describe(x) for x in tensors]
    finally:
        torch.cuda.set_sync_debug_mode("default")
    assert all(info.late for info in infos) or mode == "structure"
    statistics.flush()
    assert statistics.errors == 0
    for x, info in zip(tensors, infos, strict=True):
        found, expected = json.loads(info.text), json.loads(TensorStatistics(mode).describe(x.cpu()).text)
        assert found.pop("device") == "cuda:0"
        assert found.get("md5") == expected.get("md5")
        assert found.get("digest") == expected.get("digest")
        assert found.get("Max") == expected.get("Max")


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_results_of_other_streams_arrive() -> None:
    statistics = TensorStatistics()
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        torch.cuda._sleep(100_000_000)
        x = torch.full((1000,), 7.0, device="cuda")
        info = statistics.describe(x)
    statistics.flush()
    assert json.loads(info.text)["Max"] == 7.0
