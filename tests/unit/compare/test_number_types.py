from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
from support.row_by_row import for_each

from msprobe.compare.number_types import epsilon_of, type_at_its_end

SOURCE = Path(__file__).parents[3] / "src" / "msprobe"


@for_each("name", ["float16", "float32", "float64"])
@for_each("form", ["torch.{}", "{}"])
def test_types_that_numpy_has_divide_as_numpy_says(name: str, form: str) -> None:
    assert epsilon_of(form.format(name)) == epsilon_of(form.format(name).title()) == np.finfo(name).eps


@for_each(
    ("dtype", "expected"),
    [
        ("torch.bfloat16", 2.0**-7),
        ("BFloat16", 2.0**-7),
        ("torch.float8_e4m3fn", 2.0**-2),
        ("torch.complex64", 2.0**-23),
        ("torch.float128", 2.0**-23),
        ("torch.int64", 0.0),
        ("Bool", 0.0),
    ],
)
def test_other_types(dtype: str, expected: float) -> None:
    assert epsilon_of(dtype) == expected


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
def test_the_ends_of_types_are_known(dtype: str) -> None:
    torch = pytest.importorskip("torch")
    limits = torch.finfo(getattr(torch, dtype))
    assert type_at_its_end(limits.min) == type_at_its_end(limits.max) == dtype


@for_each("value", [-1e9, 0.0, float("inf"), float("nan"), 65504, None, "float16"])
def test_other_values_are_no_ends(value: object) -> None:
    assert type_at_its_end(value) is None


def test_no_other_file_has_a_table_of_types() -> None:
    table = re.compile(r'"(float16|bfloat16)": *2(\.0)? *\*\*')
    found = [path.name for path in SOURCE.rglob("*.py") if table.search(path.read_text())]
    assert found == ["number_types.py"]
