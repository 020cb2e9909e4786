"""The annotation file: what it says, and what is said about its mistakes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from support.row_by_row import for_each

from msprobe.diagnose.layout.annotation import Annotation, moved, read_annotations
from msprobe.diagnose.layout.placements import REPLICATE, Placement
from msprobe.errors import InvalidInputError, PathError

EXAMPLE = """
candidate:
  mesh: {stage: 2, data: 2, tensor: 2}
  parameters:
    "blocks.*.up.*": {tensor: shard(0)}
    "blocks.*.down.weight": {tensor: shard(1)}
    "*": {tensor: replicate, data: replicate}
  modules:
    "blocks.*.up": {output: {tensor: shard(2)}, "output.1": {tensor: partial}}
    "*": {input: {data: shard(0)}, output: {data: shard(0)}}
  stages:
    axis: stage
    layers: {blocks: [0, 12]}
  names: {"^language_model\\\\.": ""}
"""


@pytest.fixture
def example(tmp_path: Path) -> Annotation:
    (tmp_path / "layout.yaml").write_text(EXAMPLE)
    found = read_annotations(tmp_path / "layout.yaml")
    assert list(found) == ["candidate"]
    return found["candidate"]


def test_ranks_count_through_the_mesh_the_last_axis_fastest(example: Annotation) -> None:
    assert example.size == 8
    assert example.place(0) == {"stage": 0, "data": 0, "tensor": 0}
    assert example.place(5) == {"stage": 1, "data": 0, "tensor": 1}
    assert example.place(6) == {"stage": 1, "data": 1, "tensor": 0}


def test_the_first_pattern_that_fits_counts_axis_by_axis(example: Annotation) -> None:
    assert example.parameter_split("blocks.3.up.weight") == {"tensor": Placement("shard", 0), "data": REPLICATE}
    assert example.parameter_split("blocks.3.down.weight")["tensor"] == Placement("shard", 1)
    assert example.parameter_split("blocks.3.down.bias") == {"tensor": REPLICATE, "data": REPLICATE}


def test_slots_of_modules(example: Annotation) -> None:
    batch = Placement("shard", 0)
    assert example.module_split("blocks.1.up", "output.0") == {"tensor": Placement("shard", 2), "data": batch}
    assert example.module_split("blocks.1.up", "input.0") == {"data": batch}
    assert example.module_split("norm", "output.0") == {"data": batch}


def test_names_of_stages_and_expressions(example: Annotation) -> None:
    assert example.renamed("language_model.blocks.1.up", 0) == "blocks.1.up"
    assert example.renamed("language_model.blocks.1.up", 4) == "blocks.13.up"
    assert example.renamed("head", 7) == "head"


@for_each(
    ("name", "group", "found"),
    [
        ("blocks.0.up", "blocks", "blocks.2.up"),
        ("blocks.0", "blocks", "blocks.2"),
        ("0.up", "", "2.up"),
        ("blocks2.0.up", "blocks", "blocks2.0.up"),
        ("blocks.first.up", "blocks", "blocks.first.up"),
        ("a.blocks.0", "blocks", "a.blocks.0"),
    ],
)
def test_layers_count_on(name: str, group: str, found: str) -> None:
    assert moved(name, group, 2) == found
    assert moved(name, group, 0) == name


def test_json_is_understood_too(tmp_path: Path) -> None:
    path = tmp_path / "layout.json"
    path.write_text(json.dumps({"reference": {"mesh": {"tensor": 4}}}))
    assert read_annotations(path)["reference"].mesh == (("tensor", 4),)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ({}, "must be an object with the keys candidate, reference, or both"),
        ({"candidat": {}}, "'candidat' is not known"),
        ({"candidate": []}, "candidate must be an object, found nothing"),
        ({"candidate": {}}, "candidate.mesh must name the axes"),
        ({"candidate": {"mesh": {"a": 0}}}, "candidate.mesh.a must be a whole number from 1 on, found 0"),
        ({"candidate": {"mesh": {"a": True}}}, "candidate.mesh.a must be a whole number"),
        ({"candidate": {"mesh": {"a": 2}, "more": 1}}, "candidate.more is not known"),
        ({"candidate": {"mesh": {"a": 2}, "parameters": {"x": {"b": "shard(0)"}}}}, "'b' is no axis of the mesh"),
        ({"candidate": {"mesh": {"a": 2}, "parameters": {"x": {"a": "split"}}}}, "candidate.parameters.x.a: 'split'"),
        ({"candidate": {"mesh": {"a": 2}, "parameters": ["x"]}}, "candidate.parameters must be an object"),
        ({"candidate": {"mesh": {"a": 2}, "modules": {"x": {"weight": {}}}}}, "modules.x.weight is not known"),
        ({"candidate": {"mesh": {"a": 2}, "stages": {"axis": "b"}}}, "candidate.stages.axis must be an axis"),
        (
            {"candidate": {"mesh": {"a": 2}, "stages": {"axis": "a", "layers": {"blocks": [0]}}}},
            "candidate.stages.layers.blocks must list the first number of each of the 2 stages, found [0]",
        ),
        ({"candidate": {"mesh": {"a": 2}, "names": {"(": ""}}}, "is no regular expression"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("ending", ["json", "yaml"])
def test_mistakes_name_field_and_value(tmp_path: Path, content: Any, words: str, ending: str) -> None:
    path = tmp_path / f"layout.{ending}"
    path.write_text(json.dumps(content))
    with pytest.raises(InvalidInputError) as raised:
        read_annotations(path)
    assert words in raised.value.message
    assert str(path) in raised.value.message


def test_all_mistakes_are_told_at_once(tmp_path: Path) -> None:
    path = tmp_path / "layout.json"
    path.write_text(json.dumps({"candidate": {"mesh": {"a": -1}, "more": 1}, "reference": 3}))
    with pytest.raises(InvalidInputError) as raised:
        read_annotations(path)
    assert all(words in raised.value.message for words in ("candidate.more", "candidate.mesh.a", "reference must be"))


@pytest.mark.parametrize(
    ("name", "text"), [("a.json", "{"), ("a.yaml", "{a: ["), ("a.yaml", "a: *nothing"), ("a.json", "[")]
)
def test_what_is_no_file_of_its_kind(tmp_path: Path, name: str, text: str) -> None:
    (tmp_path / name).write_text(text)
    with pytest.raises(InvalidInputError, match=r"is no (JSON|YAML)"):
        read_annotations(tmp_path / name)


def test_yaml_makes_no_objects(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text("!!python/object/apply:os.system ['true']")
    with pytest.raises(InvalidInputError, match="is no YAML"):
        read_annotations(tmp_path / "a.yaml")


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(PathError, match="cannot be read: no such file"):
        read_annotations(tmp_path / "none.yaml")


def test_a_file_that_is_no_text(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(InvalidInputError, match="is not UTF-8 text"):
        read_annotations(tmp_path / "a.yaml")
