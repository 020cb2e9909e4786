"""A dump of MindSpore tells what decides how exactly it computes."""

from __future__ import annotations

import sys
import types
from typing import Any

import pytest

ms = pytest.importorskip("mindspore", reason="MindSpore is not installed here; `make test-mindspore` runs these")
pytestmark = pytest.mark.mindspore

from support.mindspore_dumps import Recorder, Toy, record, train_step  # noqa: E402

from msprobe.capture.mindspore import precision  # noqa: E402
from msprobe.store.reader import open_dump  # noqa: E402

__all__ = ["record"]


def test_a_dump_says_version_and_device(record: Recorder) -> None:
    debugger = record(level="L0")
    train_step(debugger, Toy())
    told = open_dump(record.end().folder).part().ours["precision"]
    assert told["mindspore"] == ms.__version__
    assert told["device"] == "cpu"
    assert told["mindspore.deterministic"] in ("ON", "OFF")


def test_switches_of_ascend_are_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    class Kept:
        @staticmethod
        def get_instance() -> Any:
            return types.SimpleNamespace(matmul_allow_hf32=lambda: "1", conv_allow_hf32=lambda: "")

    monkeypatch.setitem(
        sys.modules,
        precision._ASCEND,
        types.SimpleNamespace(AscendOpPrecisionConf=Kept),  # type: ignore[arg-type]
    )
    monkeypatch.setattr(ms, "get_context", lambda name: "Ascend" if name == "device_target" else 1)
    monkeypatch.setattr(ms.hal, "get_device_name", lambda index: "Ascend910B")
    found = precision.settings_of_precision()
    assert found["device"] == "Ascend910B"
    assert (found["mindspore.matmul_allow_hf32"], found["mindspore.conv_allow_hf32"]) == ("1", "default")
    assert "mindspore.precision_mode" not in found
