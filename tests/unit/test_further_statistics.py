"""Statistics beyond the usual four: what they are of awkward tensors, and that everything shows them."""

from __future__ import annotations

import csv
import json
import math
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from support import command_line, recorded
from support.coded_texts import mentions
from support.native_and_python import use_python
from support.sheets import read_workbook
from torch import nn

import msprobe
from msprobe.capture import native
from msprobe.capture.array_statistics import ArrayStatistics, HostArray
from msprobe.capture.torch.tensors.statistics import TensorStatistics
from msprobe.statistics_table import FURTHER

nan, inf = math.nan, math.inf
NAMES = ("kurtosis", "zeros")


def exact_kurtosis(values: list[float]) -> float:
    """n sum(d^4) / sum(d^2)^2, in fractions."""
    numbers = [Fraction(value) for value in values]
    mean = sum(numbers) / len(numbers)
    second, fourth = (sum((number - mean) ** power for number in numbers) for power in (2, 4))
    return float(len(numbers) * fourth / second**2)


@pytest.fixture(params=["native", "python", "late", "numpy", "numpy in C"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    if request.param in ("python", "numpy"):
        use_python(monkeypatch)
    elif request.param != "late" and not native.built:
        pytest.skip("the C extension is not built")
    return str(request.param)


def described(given: torch.Tensor, way: str) -> dict[str, Any]:
    if way.startswith("numpy"):
        kind = str(given.dtype).removeprefix("torch.")
        stored = given.view(torch.uint16) if kind == "bfloat16" else given
        values = HostArray(np.ascontiguousarray(stored.numpy()).reshape(given.shape), kind)
        text = ArrayStatistics(names=NAMES).describe("T", kind, tuple(given.shape), values).text
    else:
        statistics = TensorStatistics(names=NAMES, defer=way == "late")
        info = statistics.describe(given)
        statistics.flush()
        assert statistics.errors == 0
        text = info.text
    found: dict[str, Any] = json.loads(text)
    assert "Max" not in found
    return found


RANDOM = torch.randn(203, generator=torch.Generator().manual_seed(4), dtype=torch.float64)
FINITE = {
    "float32": RANDOM.float(),
    "heavy tail": torch.tensor([0.0] * 999 + [1.0]),
    "float64": RANDOM,
    "large float64": RANDOM.sign() * 1.5e308,
    "large and positive": RANDOM.abs() * 4e307,
    "subnormal": (RANDOM * 4).round() * 5e-324,
    "far from zero": RANDOM.float() + 4096,
    "float16 beyond its squares": (RANDOM * 9000).half(),
    "bfloat16": (RANDOM * 1e30).bfloat16(),
    "int64": (RANDOM * 2**60).long(),
    "int8": (RANDOM * 30).to(torch.int8),
    "uint8": (RANDOM.abs() * 60).to(torch.uint8),
    "int16": (RANDOM * 9000).short(),
    "int32": (RANDOM * 2**28).int(),
    "complex64": torch.complex(RANDOM.float(), RANDOM.flip(0).float()),
    "transposed": RANDOM[:200].reshape(20, 10).t(),
    "every second": RANDOM[::2],
    "expanded": RANDOM[:60].reshape(60, 1).expand(60, 7),
}


def test_the_kurtosis_is_the_fourth_standardised_moment_in_double(way: str) -> None:
    for name, given in FINITE.items():
        elements = (given.abs() if given.is_complex() else given).flatten().tolist()
        found = described(given, way)
        assert found["Kurtosis"] == pytest.approx(exact_kurtosis(elements), rel=1e-6), name
        assert found["Kurtosis"] == float(np.float32(found["Kurtosis"])), name
        assert found["Zeros"] == elements.count(0) / len(elements), name


def test_where_there_is_no_kurtosis_and_what_zeros_are(way: str) -> None:
    for given, kurtosis, zeros in (
        (torch.tensor([nan, 0.0, 1.0, -0.0]), nan, 0.5),
        (torch.tensor([inf, 0.0, 1.0, 2.0]), nan, 0.25),
        (torch.tensor([complex(0, nan), 0, 1, 1]), nan, 0.25),
        (torch.tensor([]), None, None),
        (torch.tensor([True, False, False, True]), None, 0.5),
        (torch.full((7,), 0.1), None, 0.0),
        (torch.zeros(3, 3), None, 1.0),
        (torch.tensor([5]), None, 0.0),
        (torch.tensor(2.5), None, 0.0),
        (torch.tensor(0), None, 1.0),
        (torch.tensor(False), None, 1.0),
        (torch.tensor(nan), None, 0.0),
    ):
        found = described(given, way)
        assert str(found["Kurtosis"]) == str(kurtosis), given
        assert found["Zeros"] == zeros, given
        assert list(found).index("Kurtosis") == list(found).index("Zeros") - 1


class WithArray(nn.Module):
    """A module that is given a numpy array as well."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(8, 8)

    def forward(self, x: torch.Tensor, mask: np.ndarray[Any, Any]) -> torch.Tensor:
        return torch.relu(self.inner(x)) * torch.from_numpy(mask)


def recording(folder: Path, scale: float = 1.0, *names: str) -> Path:
    torch.manual_seed(1)
    model = nn.Sequential(nn.Linear(8, 8), WithArray())
    given = torch.ones(4, 8) * scale
    mask = np.array([0, 0, 1, 1, 1, 2, 0, 1], np.float32)

    def work() -> None:
        model[1](model[0](given), mask).sum().backward()

    recorded.record(folder, work, model, level="mix", summary_mode=[*names, *(one.name for one in FURTHER)])
    return folder


@pytest.mark.parametrize("python", [False, True], ids=["native", "python"])
def test_dump_summary_sheets_and_reader_have_them(
    python: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if python:
        use_python(monkeypatch)
    ours, theirs = recording(tmp_path / "ours", 2.0, "max"), recording(tmp_path / "theirs", 1.0, "max")
    data = json.loads(next(ours.rglob("dump.json")).read_text())["data"]
    record = data["Module.1.WithArray.forward.0"]
    for leaf in (*record["input_args"], record["output"][0]):
        assert leaf["Max"] is not None
        assert not {"Min", "Mean", "Norm"} & leaf.keys()
        for one in FURTHER:
            assert isinstance(leaf[one.key], float), one.key
    assert record["input_args"][1] == {
        "type": "numpy.ndarray", "dtype": "float32", "shape": [8], "Max": 2.0,
        "Kurtosis": pytest.approx(exact_kurtosis([0, 0, 1, 1, 1, 2, 0, 1])), "Zeros": 0.375,
    }  # fmt: skip

    said = command_line.call("summary", ours).stdout
    for one in FURTHER:
        (line,) = [line for line in said.splitlines() if line.strip().startswith(f"{one.word} of")]
        assert "median" in line
        assert "greatest: " in line

    part = msprobe.open(ours).part()
    tensor = part["Module.1.WithArray.forward.0"]["output.0"]
    assert tensor.mean is None
    assert tensor.further == {one.word: record["output"][0][one.key] for one in FURTHER}
    (row,) = [row for row in part.rows if (row["record"], row["slot"]) == ("Module.1.WithArray.forward.0", "output.0")]
    for one in FURTHER:
        assert row[one.word] == tensor.further[one.word]
        assert one.word in msprobe.open(ours).part()["Module.1.WithArray.forward.0"]._repr_html_()

    check_sheets(ours, theirs, tmp_path)


def check_sheets(ours: Path, theirs: Path, folder: Path) -> None:
    """Both forms of the sheet have both values and their difference."""
    files = [next(dump.rglob("dump.json")) for dump in (ours, theirs)]
    one_sided = folder / "compare.json"
    one_sided.write_text(json.dumps({"npu_path": str(files[0]), "bench_path": str(files[1])}))
    assert command_line.call("-f", "pytorch", "compare", "-i", one_sided, "-o", folder / "old").returncode == 0
    assert command_line.call("compare", "-tp", files[0], "-gp", files[1], "-o", folder / "new").returncode == 0
    (book,) = (folder / "old").glob("*.xlsx")
    (table,) = (folder / "new").glob("*.csv")
    rows = read_workbook(book)["Sheet"].rows, list(csv.DictReader(table.open(encoding="utf-8-sig")))
    name = "Module.0.Linear.forward.0.output.0"
    leaves = [json.loads(file.read_text())["data"]["Module.0.Linear.forward.0"]["output"][0] for file in files]
    for found in rows:
        (row,) = [row for row in found if row["NPU Name"] == name]
        for one in FURTHER:
            a, b = (leaf[one.key] for leaf in leaves)
            assert float(row[f"NPU {one.name}"]) == pytest.approx(a)
            assert float(row[f"Bench {one.name}"]) == pytest.approx(b)
            assert float(row[one.difference]) == pytest.approx(a - b)
            assert row[one.relative] == (f"{abs((a - b) / b * 100)!r}%" if b else "N/A")
        argument = next(row for row in found if row["NPU Name"] == "Tensor.sum.0.backward.input.0")
        assert argument["NPU kurtosis"] == "None"


def test_two_runs_do_not_agree_by_statistics_that_nothing_is_judged_by(tmp_path: Path) -> None:
    ours, theirs = recording(tmp_path / "ours", 2.0), recording(tmp_path / "theirs")
    said = " ".join(command_line.call("compare", ours, theirs).stdout.split())
    assert said.startswith("AGREE in structure")
    assert mentions(said, "values-not-recorded")
    assert "summary_mode: max, min" in said
    judged = command_line.call("compare", recording(tmp_path / "a", 2.0, "max"), recording(tmp_path / "b", 1.0, "max"))
    assert judged.stdout.startswith("DIVERGED")
