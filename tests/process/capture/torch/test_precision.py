"""A dump tells the switches that decide how exactly torch computes, and asking for them changes and says nothing."""

from __future__ import annotations

import sys
import types
import warnings
from pathlib import Path

import pytest
import torch
from support import forked
from support.recorded import record

from msprobe.capture.torch.precision import _version_of_cann, settings_of_precision
from msprobe.diagnose import compare_runs
from msprobe.report.console import verdict_text
from msprobe.store.reader import open_dump
from msprobe.view.words import verdict_in_words


def work() -> None:
    torch.ones(4, 4).matmul(torch.ones(4, 4))


def test_a_dump_says_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NVIDIA_TF32_OVERRIDE", "0")
    torch.set_float32_matmul_precision("high")
    try:
        record(tmp_path, work)
    finally:
        torch.set_float32_matmul_precision("highest")
    told = open_dump(tmp_path).part().ours["precision"]
    assert told["torch.get_float32_matmul_precision"] == "high"
    assert told["torch"] == torch.__version__
    assert (told["device"], told["NVIDIA_TF32_OVERRIDE"]) == ("cpu", "0")
    assert told["torch.backends.cudnn.deterministic"] is False


def test_what_a_torch_does_not_have_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails() -> bool:
        raise RuntimeError("this and the older switches are both used")

    monkeypatch.setattr(torch.backends.cuda, "flash_sdp_enabled", fails)
    monkeypatch.delattr(torch.backends.cuda, "mem_efficient_sdp_enabled")
    found = settings_of_precision()
    assert "torch.backends.cuda.flash_sdp_enabled" not in found
    assert "torch.backends.cuda.mem_efficient_sdp_enabled" not in found
    assert "torch.backends.cuda.math_sdp_enabled" in found


def test_asking_warns_of_nothing_and_sets_up_no_device(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(
        "import warnings, torch\n"
        "torch.set_warn_always(True)\n"
        "from msprobe.capture.torch.precision import settings_of_precision\n"
        "with warnings.catch_warnings(record=True) as told:\n"
        "    warnings.simplefilter('always')\n"
        "    before = settings_of_precision()\n"
        "    assert settings_of_precision() == before\n"
        "print(len(told), torch.cuda.is_initialized())\n"
    )
    assert forked.run("program.py", cwd=tmp_path).stdout.split() == ["0", "False"]


def test_compare_says_those_that_differ_first(tmp_path: Path) -> None:
    record(tmp_path / "candidate", work)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.set_float32_matmul_precision("medium")
        threads = torch.get_num_threads()
        torch.set_num_threads(threads + 1)
        try:
            record(tmp_path / "reference", work)
        finally:
            torch.set_float32_matmul_precision("highest")
            torch.set_num_threads(threads)
    verdict = compare_runs(tmp_path / "candidate", tmp_path / "reference")
    assert verdict.status == "agree"
    apart = verdict.summary["precision"]
    assert apart["torch.get_float32_matmul_precision"] == {"candidate": "highest", "reference": "medium"}
    assert apart["torch.get_num_threads"] == {"candidate": threads, "reference": threads + 1}
    text = " ".join(verdict_text(verdict).split())
    told = text.index("get_float32_matmul_precision: highest, in the reference medium")
    assert text.index(" reference ") < text.index(" settings ") < told < text.index(" Compared ")
    notes = verdict_in_words(verdict, lambda finding: None)["notes"]
    english = " ".join(note if isinstance(note, str) else note["en"] for note in notes)
    assert "torch.get_float32_matmul_precision" in english
    assert english.index("highest") < english.index("medium")
    same = compare_runs(tmp_path / "candidate", tmp_path / "candidate")
    assert "precision" not in same.summary
    assert "settings" not in verdict_text(same)


def test_autocast_is_reported_where_it_is_on(tmp_path: Path) -> None:
    def under_autocast() -> None:
        with torch.autocast("cpu", torch.bfloat16):
            work()

    record(tmp_path / "on", under_autocast)
    record(tmp_path / "off", work)
    assert open_dump(tmp_path / "on").part().ours["precision"]["autocast.cpu"] == "torch.bfloat16"
    assert "autocast.cpu" not in open_dump(tmp_path / "off").part().ours["precision"]


def test_an_older_torch_reports_autocast_in_its_words(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(torch, "get_autocast_dtype")
    monkeypatch.setattr(torch, "is_autocast_enabled", lambda: True)
    monkeypatch.setattr(torch, "get_autocast_gpu_dtype", lambda: torch.float16, raising=False)
    monkeypatch.setattr(torch, "is_autocast_cpu_enabled", lambda: False, raising=False)
    monkeypatch.setattr(torch, "get_autocast_cpu_dtype", lambda: torch.bfloat16, raising=False)
    found = settings_of_precision()
    assert found["autocast.cuda"] == "torch.float16"
    assert "autocast.cpu" not in found


def test_switches_of_torch_npu_are_asked_where_it_is_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    class Switch:
        allow_hf32 = True

    class Broken:
        @property
        def allow_hf32(self) -> bool:
            raise RuntimeError("no device")

    class Npu:
        matmul, conv = Switch(), Broken()

    class Utils:
        @staticmethod
        def get_cann_version() -> str:
            return "8.3.RC1"

    package = types.ModuleType("torch_npu")
    package.npu, package.utils, package.__version__ = Npu(), Utils(), "2.7.1"  # type: ignore[attr-defined]
    _version_of_cann.cache_clear()
    monkeypatch.setitem(sys.modules, "torch_npu", package)
    found = settings_of_precision()
    _version_of_cann.cache_clear()
    assert (found["torch_npu"], found["cann"]) == ("2.7.1", "8.3.RC1")
    assert found["torch_npu.npu.matmul.allow_hf32"] is True
    assert "torch_npu.npu.conv.allow_hf32" not in found


def test_the_default_device_is_reported_without_making_a_tensor() -> None:
    torch.set_default_device("meta")
    try:
        assert settings_of_precision()["torch.get_default_device"] == "meta"
    finally:
        torch.set_default_device(None)
    assert "torch.get_default_device" not in settings_of_precision()
