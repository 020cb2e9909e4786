"""Files that people write by hand: whatever stands in them is a result, or one error that says where and what."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from support.row_by_row import for_each

from msprobe.compare.compare_file import load_compare_file
from msprobe.compare.mapping_files import (
    load_api_mapping,
    load_cell_mapping,
    load_data_mapping,
    load_layer_mapping,
)
from msprobe.compare.merge_results import read_merge_config
from msprobe.compare.multiplications import read_multiplications
from msprobe.diagnose.layout.annotation import read_annotations
from msprobe.errors import InvalidInputError, MsprobeError

API_WORDS = [f"{side}_{word}" for side in ("ms", "pt") for word in ("api", "args", "arg", "output", "parameters")]
LAYOUT_WORDS = [
    *("candidate", "reference", "mesh", "parameters", "modules", "stages", "names", "axis", "layers"),
    *("input", "output", "tensor", "shard(0)", "replicate"),
]
# Reader -> the endings of its files and the words that mean something in them.
READERS: dict[str, tuple[Callable[[Any], Any], tuple[str, ...], list[str]]] = {
    "compare.json": (
        load_compare_file,
        (".json",),
        ["npu_path", "bench_path", "stack_path", "is_print_compare_log", "rank_id", "step_id", "common", "map_dict"],
    ),
    "merge_result": (read_merge_config, (".yaml",), ["api", "compare_index", "Max diff", "Torch.add"]),
    "multiplications": (
        read_multiplications,
        (".yaml",),
        ["right_matmul", "left_right_matmul", "target_tensor_map", "left_golden_tensor_map", __file__, "m.npy"],
    ),
    "data mapping": (load_data_mapping, (".yaml",), ["N/A", "a.input.0"]),
    "cell mapping": (load_cell_mapping, (".yaml",), ["Cell.net.Dense", "Module.net.Linear"]),
    "layer mapping": (load_layer_mapping, (".yaml",), ["Cell", "TopLayer", "fc (Linear)"]),
    "api mapping": (load_api_mapping, (".yaml",), API_WORDS),
    "layout": (read_annotations, (".json", ".yaml"), LAYOUT_WORDS),
}
_SCALARS = st.none() | st.booleans() | st.integers(-3, 10**20) | st.floats() | st.text(max_size=6)


def _values(words: list[str]) -> st.SearchStrategy[Any]:
    keys = st.sampled_from(words) | st.text(max_size=3)
    return st.recursive(
        _SCALARS | st.sampled_from(words),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(keys, inner, max_size=5),
        max_leaves=12,
    )


def _is_answered(reader: str, data: bytes, ending: str) -> None:
    """Assert that a file with this content is read, or refused in words for people."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"settings{ending}"
        path.write_bytes(data)
        try:
            found = READERS[reader][0](path)
        except MsprobeError as problem:
            told = problem.message
            lines = told.splitlines()
            assert all("settings" in line and line.isprintable() for line in lines), "each line says in which file"
            assert len(lines) > 1 or told.endswith((".", "?"))
            assert not any(word in told for word in ("Input should", "pydantic", "function-", "Traceback"))
        else:
            assert found is not None


@given(st.data(), st.sampled_from(sorted(READERS)))
def test_any_document_is_read_or_refused_with_its_place(data: st.DataObject, reader: str) -> None:
    _, endings, words = READERS[reader]
    ending = data.draw(st.sampled_from(endings))
    value = data.draw(_values(words))
    text = json.dumps(value) if ending == ".json" else yaml.safe_dump(value, allow_unicode=True)
    _is_answered(reader, text.encode("utf-8", "backslashreplace"), ending)


@given(st.data(), st.sampled_from(sorted(READERS)), st.binary(max_size=40) | st.text(max_size=40).map(str.encode))
def test_any_bytes_are_read_or_refused(data: st.DataObject, reader: str, content: bytes) -> None:
    _is_answered(reader, content, data.draw(st.sampled_from(READERS[reader][1])))


@for_each("reader", sorted(READERS))
@for_each("text", ["&a [*a]", "&a {x: *a}", "[" * 500, '{"a": ' * 500, "\0", "{1: 2, [a]: b}", "- - - -"])
def test_files_that_nobody_means_are_refused_or_read(reader: str, text: str) -> None:
    for ending in READERS[reader][1]:
        _is_answered(reader, text.encode(), ending)


LAYOUTS_THAT_ENDED_IN_A_TRACEBACK = [
    ("stages: {axis: [a]}", 'candidate.stages.axis must be an axis of the mesh (a), found ["a"]'),
    ("names: {'x{99999999999999999999}': y}", "is no regular expression: the repetition number is too large"),
    ("names: {x: '\\9'}", 'candidate.names must name what replaces each expression, but "\\\\9" cannot stand for "x"'),
]


@pytest.mark.parametrize(("text", "told"), LAYOUTS_THAT_ENDED_IN_A_TRACEBACK)
def test_a_layout_that_cannot_be_used_is_refused_when_it_is_read(tmp_path: Path, text: str, told: str) -> None:
    path = tmp_path / "layout.yaml"
    path.write_text(f"candidate:\n  mesh: {{a: 2}}\n  {text}\n")
    with pytest.raises(InvalidInputError) as caught:
        read_annotations(path)
    assert caught.value.message.startswith(f'"{path}":3: candidate.')
    assert told in caught.value.message


def test_a_layout_may_repeat_what_it_says_by_anchors(tmp_path: Path) -> None:
    path = tmp_path / "layout.yaml"
    path.write_text("candidate: &side\n  mesh: {a: 0x2, b: 1_0}\nreference:\n  <<: *side\n  names: {x: }\n")
    found = read_annotations(path)
    assert found["candidate"].mesh == found["reference"].mesh == (("a", 2), ("b", 10))
    assert found["reference"].renamed("axe", 0) == "ae"


def test_all_mistakes_of_an_api_mapping_are_reported_beside_a_missing_name(tmp_path: Path) -> None:
    path = tmp_path / "m.yaml"
    path.write_text("ms_args: [0]\npt_api: []\npt_output: [x]\n")
    with pytest.raises(InvalidInputError) as caught:
        load_api_mapping(path)
    for part in ('"ms_api": is missing', '"ms_args": needs pt_args', '"pt_api": expected', '"pt_output[0]": must be'):
        assert part in caught.value.message


def test_all_mistakes_of_a_layout_are_one_line_with_a_place_for_each(tmp_path: Path) -> None:
    path = tmp_path / "layout.yaml"
    path.write_text("reference:\n  mesh: {a: 0}\n  more: 1\n")
    with pytest.raises(InvalidInputError) as caught:
        read_annotations(path)
    second, third = caught.value.message.split("; ", 1)
    assert second.startswith(f'"{path}":2: reference.mesh.a ')
    assert third.startswith(f'"{path}":3: reference.more ')
    assert third.rstrip(".").split(", ")[1:] == ["parameters", "modules", "stages", "names"]
