"""What products may be apart by, where kernels may round what they multiply to fewer bits than float32 has."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.row_by_row import for_each
from unit.diagnose.dumps import Recording, Value, drawn

from msprobe.diagnose import compare_runs
from msprobe.diagnose.findings import Verdict
from msprobe.diagnose.tolerance.effective import kind_of_word

TOLD = {"device": "accelerator", "torch.backends.cuda.matmul.fp32_precision": "tf32"}
CPU = {"device": "cpu"}
Header = Mapping[str, Any] | None


def ten_bits(array: np.ndarray) -> np.ndarray:
    bits = array.view(np.int32)
    return ((bits + 0xFFF + (bits >> 13 & 1)) >> 13 << 13).view(np.float32)


def run(
    folder: Path, header: Header, rounded: bool = False, wrong: Mapping[int, float] | None = None, calls: int = 12
) -> Path:
    """Products in a row, each of a normalised result of the one before; ``wrong``: factors on some results."""
    recording = Recording()
    x = drawn("x", 16, 32)
    for number in range(calls):
        weight = drawn(f"weight {number}", 32, 32) / np.float32(6.0)
        left, right = (ten_bits(x), ten_bits(weight)) if rounded else (x, weight)
        out = (left @ right.T).astype(np.float32) * np.float32((wrong or {}).get(number, 1.0))
        recording.call("Functional.linear", [Value(x), Value(weight)], Value(out))
        x = (out / out.std()).astype(np.float32)
        recording.call("Functional.layer_norm", [Value(out), [32]], Value(x))
    path = recording.write(folder, level="L1")
    if header is not None:
        content = json.loads((path / "dump.json").read_text())
        content["msprobe"]["precision"] = dict(header)
        (path / "dump.json").write_text(json.dumps(content))
    return path


def compare(folder: Path, headers: tuple[Header, Header], **more: Any) -> Verdict:
    calls = more.get("calls", 12)
    return compare_runs(
        run(folder / "candidate", headers[0], **more), run(folder / "reference", headers[1], calls=calls)
    )


UNDECLARED_ROUNDING = (None, None)


@pytest.mark.parametrize("headers", [(TOLD, CPU), (TOLD, None), UNDECLARED_ROUNDING, ({"device": "other"}, CPU)])
def test_products_in_ten_bits_are_no_fault_where_that_may_be(tmp_path: Path, headers: tuple[Header, Header]) -> None:
    verdict = compare(tmp_path, headers, rounded=True)
    assert (verdict.status, verdict.findings) == ("agree", ())
    assert any("10 bits" in note for note in verdict.notes)


def test_they_are_where_both_headers_say_that_float32_is_float32(tmp_path: Path) -> None:
    verdict = compare(tmp_path, (CPU, CPU), rounded=True)
    assert (verdict.status, verdict.findings[0].entry) == ("diverged", "Functional.linear.0.forward")


@pytest.mark.parametrize("headers", [UNDECLARED_ROUNDING, (TOLD, CPU)])
def test_one_wrong_call_cannot_raise_its_own_limit(tmp_path: Path, headers: tuple[Header, Header]) -> None:
    verdict = compare(tmp_path, headers, wrong={6: 1.002})
    assert (verdict.status, verdict.findings[0].entry) == ("diverged", "Functional.linear.6.forward")
    assert not any("10 bits" in note for note in verdict.notes)


def test_a_wrong_kernel_cannot_hide_itself_by_being_called_often(tmp_path: Path) -> None:
    verdict = compare(tmp_path, UNDECLARED_ROUNDING, wrong=dict.fromkeys(range(12), 1.02))
    assert (verdict.status, verdict.findings[0].entry) == ("diverged", "Functional.linear.0.forward")


def test_a_kind_of_call_that_occurs_twice_gets_nothing_untold(tmp_path: Path) -> None:
    verdict = compare(tmp_path / "untold", UNDECLARED_ROUNDING, rounded=True, calls=2)
    assert (verdict.status, verdict.findings[0].entry) == ("diverged", "Functional.linear.0.forward")
    assert compare(tmp_path / "told", (TOLD, CPU), rounded=True, calls=2).status == "agree"


def test_a_mistake_beyond_ten_bits_is_told_of_a_run_in_ten_bits(tmp_path: Path) -> None:
    for place, headers in enumerate((UNDECLARED_ROUNDING, (TOLD, CPU))):
        verdict = compare(tmp_path / str(place), headers, rounded=True, wrong={0: 1.02})
        assert (verdict.status, verdict.findings[0].entry) == ("diverged", "Functional.linear.0.forward")


@for_each(
    ("word", "kind"),
    [
        ("linear", "product"), ("Linear", "product"), ("npu_fusion_attention", "product"),
        ("grouped_matmul", "product"),
        ("conv_transpose2d", "convolution"), ("ConvTranspose2d", "convolution"), ("GRUCell", "recurrent"),
        ("converted", None), ("layer_norm", None), ("add", None),
    ],
)  # fmt: skip
def test_what_multiplies(word: str, kind: str | None) -> None:
    assert kind_of_word(word) == kind
