"""Descriptions whose numbers are still on the device: one transfer in the end, no waiting before."""

from __future__ import annotations

import json

import pytest
import torch

from msprobe.capture import native
from msprobe.capture.torch import device_statistics
from msprobe.capture.torch.statistics import TensorStatistics


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


def test_views_of_the_same_elements_are_reduced_once(monkeypatch) -> None:
    launched = []
    real = device_statistics.DeviceStatistics.launch

    def launch(self, values):
        launched.append(values)
        return real(self, values)

    monkeypatch.setattr(device_statistics.DeviceStatistics, "launch", launch)
    statistics = TensorStatistics(defer=True)
    x = torch.randn(3, 4)
    infos = [statistics.describe(v) for v in (x, x, x.t(), x.view(12), x.requires_grad_())]
    assert len(launched) == 1
    x.detach().add_(1)
    infos.append(statistics.describe(x))
    assert len(launched) == 2
    statistics.flush()
    tops = [json.loads(info.text)["Max"] for info in infos]
    assert len(set(tops[:5])) == 1
    assert tops[5] != tops[0]


def test_results_cross_to_the_host_once_for_each_type(monkeypatch) -> None:
    statistics = TensorStatistics(defer=True)
    infos = [statistics.describe(torch.full((i + 1,), float(i))) for i in range(100)]
    stacks = []
    real = torch.stack
    monkeypatch.setattr(torch, "stack", lambda results: stacks.append(len(results)) or real(results))
    statistics.flush()
    assert len(stacks) == 2, "float32 results and counts"
    assert [json.loads(info.text)["Max"] for info in infos] == list(range(100))
    statistics.flush()
    assert len(stacks) == 2, "nothing is left to bring"


def test_copies_for_digests_are_bounded(monkeypatch) -> None:
    monkeypatch.setattr(device_statistics, "COPY_LIMIT", 1000)
    statistics = TensorStatistics("xxh3", defer=True)
    tensors = [torch.randn(100) for _ in range(20)]
    infos = [statistics.describe(x) for x in tensors]
    assert len(statistics._device._copies) <= 3
    statistics.flush()
    for x, info in zip(tensors, infos, strict=True):
        found, expected = json.loads(info.text), json.loads(TensorStatistics("xxh3").describe(x).text)
        assert found["digest"] == expected["digest"]


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
