"""Functions of the user's own that a file lists."""

from __future__ import annotations

import sys
import types
from pathlib import Path
from typing import Any

import pytest
import torch
from support.coded_texts import mentions
from support.torch_dumps import Recorder, record

from msprobe.errors import InvalidInputError, MsprobeError

__all__ = ["record"]


@pytest.fixture
def kernels(monkeypatch: pytest.MonkeyPatch) -> types.ModuleType:
    """A module of the user's, imported."""
    module: Any = types.ModuleType("own_kernels")
    module.scaled = lambda x: x * 2 + 1
    monkeypatch.setitem(sys.modules, "own_kernels", module)
    found: types.ModuleType = module
    return found


def listed(folder: Path, text: str) -> str:
    file = folder / "custom_wrap_ops.yaml"
    file.write_text(text)
    return str(file)


def test_a_listed_function_is_one_call_and_is_put_back(record: Recorder, tmp_path: Path, kernels: Any) -> None:
    own = kernels.scaled
    debugger = record(level="L1", custom_api_file=listed(tmp_path, "own_kernels: [scaled]\n"))
    debugger.start()
    kernels.scaled(torch.ones(2))
    debugger.stop()
    assert kernels.scaled is own
    debugger.step()
    assert record.end().names() == ["Torch.ones.0.forward", "own_kernels.scaled.0.forward"]


def test_a_module_counts_from_the_start_behind_its_import_and_nothing_is_imported(
    record: Recorder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "later_kernels.py").write_text(
        "import pathlib\npathlib.Path('imported').touch()\ndef f(x): return x + 1\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.chdir(tmp_path)
    debugger = record(level="L1", custom_api_file=listed(tmp_path, "later_kernels: [f]\n"))
    debugger.start()
    debugger.stop()
    debugger.step()
    assert not (tmp_path / "imported").exists()
    import later_kernels  # type: ignore[import-not-found]

    try:
        with debugger.recording():
            later_kernels.f(torch.ones(2))
    finally:
        sys.modules.pop("later_kernels")
    assert record.end().names(1) == ["Torch.ones.0.forward", "later_kernels.f.0.forward"]


def test_a_name_that_is_no_function_gives_a_line(
    record: Recorder, tmp_path: Path, kernels: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    debugger = record(level="L1", custom_api_file=listed(tmp_path, "own_kernels: [scaled, other]\n"))
    debugger.start()
    debugger.stop()
    assert mentions(capsys.readouterr().out, "custom-file-function-missing", module="own_kernels", api="other")


@pytest.mark.parametrize("text", ["[a]\n", "own: f\n", "own: []\n", "own: [[f]]\n", "own: {f: 1}\n", "own: [f\n"])
def test_another_form_is_refused_before_anything_is_recorded(record: Recorder, tmp_path: Path, text: str) -> None:
    with pytest.raises(InvalidInputError, match=r"custom_wrap_ops\.yaml"):
        record(level="L1", custom_api_file=listed(tmp_path, text))
    with pytest.raises(MsprobeError):
        record(level="L1", custom_api_file=str(tmp_path / "nothing.yaml"))
