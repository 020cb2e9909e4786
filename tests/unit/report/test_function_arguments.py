from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.coded_texts import mentions

from msprobe.compare.problems import InvalidArgumentError, InvalidPathError, WrongTypeError
from msprobe.mindspore.compare.ms_compare import ms_compare
from msprobe.pytorch import compare, compare_distributed

PATHS = {"npu_json_path": "a/dump.json", "bench_json_path": "b/dump.json"}


@pytest.mark.parametrize("function", [compare, ms_compare])
def test_all_wrong_arguments_are_reported_in_one_error(function: Callable[..., None], tmp_path: Path) -> None:
    wrong: dict[str, Any] = {"stack_mode": 1, "fuzzy_match": "yes", "suffix": "a/b"}
    with pytest.raises(InvalidArgumentError) as raised:
        function({"npu_json_path": "a/dump.json", "is_print_compare_log": 0}, tmp_path / "o", **wrong)
    for word in ("stack_mode = 1", "fuzzy_match = 'yes'", "is_print_compare_log = 0", "'a/b'", '"bench_json_path"'):
        assert word in raised.value.message
    assert raised.value.message.startswith(f"{function.__name__}: ")
    assert raised.value.code == 11
    assert not (tmp_path / "o").exists()


def test_wrong_types_go_first_as_callers_catch_them() -> None:
    with pytest.raises(WrongTypeError) as raised:
        compare(PATHS, 3, data_mapping=5)  # type: ignore[arg-type]
    assert mentions(raised.value.message, "must-be-a-path", name="output_path", kind="int")
    assert mentions(raised.value.message, "must-be-path-or-dict", name="data_mapping")
    with pytest.raises(TypeError, match=r"compare_distributed: bench_dump_dir .*; stack_mode = None"):
        compare_distributed("a", 7, stack_mode=None)  # type: ignore[arg-type]
    with pytest.raises(TypeError) as raised:
        compare([])  # type: ignore[arg-type]
    assert mentions(str(raised.value), "must-be-a-dict", name="input_param", kind="list")


def test_a_missing_path_has_the_code_that_callers_know() -> None:
    with pytest.raises(InvalidPathError) as raised:
        compare({})
    assert raised.value.code == 1
    assert "npu_json_path" in raised.value.message
    assert "bench_json_path" in raised.value.message
