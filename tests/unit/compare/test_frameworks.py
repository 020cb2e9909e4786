"""Which framework made a dump."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.coded_texts import raising
from support.hand_made import TOY, call, tensor, write_part
from support.row_by_row import for_each

from msprobe.compare.frameworks import crosses, dtype_family, framework_of
from msprobe.compare.problems import InvalidArgumentError
from msprobe.store.reader import open_dump


@pytest.mark.parametrize("word", ["pytorch", "mindspore", "mindtorch"])
def test_a_dump_names_its_framework(tmp_path: Path, word: str) -> None:
    assert framework_of(write_part(tmp_path, {}, framework=word)) == word


@pytest.mark.parametrize("word", [None, "", "jax"])
@pytest.mark.parametrize(("dtype", "expected"), [("Float32", "mindspore"), ("torch.float32", "pytorch")])
def test_without_its_word_the_first_tensor_says(tmp_path: Path, word: str | None, dtype: str, expected: str) -> None:
    data = {"A.x.0.forward": call({"type": "int", "value": 1}, [tensor(2, dtype=dtype)])}
    assert framework_of(write_part(tmp_path, data, framework=word)) == expected


def test_a_dump_that_says_nothing_is_refused_with_what_is_expected(tmp_path: Path) -> None:
    part = write_part(tmp_path, {"A.x.0.forward": {"input_args": []}}, framework=None)
    with raising(InvalidArgumentError, "framework-not-named", named="None") as caught:
        framework_of(part)
    assert caught.value.code == 11


def test_the_toy_dumps_are_of_two_frameworks() -> None:
    found = [framework_of(open_dump(TOY / side).part()) for side in ("target", "bench")]
    assert found == ["mindspore", "pytorch"]
    assert crosses("mindspore", "pytorch")
    assert crosses("mindtorch", "pytorch")
    assert not crosses("mindspore", "mindtorch")


@pytest.mark.parametrize(
    ("words", "family"),
    [
        ("Int8 Int16 Int32 Int64 UInt8 UInt16 UInt32 UInt64 torch.int8 torch.int64 torch.uint8", "int"),
        ("Float16 Float32 Float64 BFloat16 torch.float16 torch.bfloat16 torch.float8_e4m3fn", "float"),
        ("Bool torch.bool", "bool"),
        ("Complex64 Complex128 torch.complex64", "complex"),
    ],
)
def test_element_types_have_a_family(words: str, family: str) -> None:
    assert {dtype_family(word) for word in words.split()} == {family}


@for_each("word", ["<class 'int'>", "torch.Size", "slice", "None", "interval", "String"])
def test_what_is_no_element_type_stays_itself(word: str) -> None:
    assert dtype_family(word) == word
