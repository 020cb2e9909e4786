"""Words of dumps and of annotation files for how a tensor lies on ranks."""

from __future__ import annotations

from typing import Any

import pytest
from support.row_by_row import for_each

from msprobe.diagnose.layout.placements import REPLICATE, Placement, holding, parsed_placement, recorded_placement


@for_each(
    ("text", "found"),
    [
        ("replicate", REPLICATE),
        ("Replicated ", REPLICATE),
        ("shard(0)", Placement("shard", 0)),
        ("shard( dim = -1 )", Placement("shard", -1)),
        ("interleave(0)", Placement("interleave", 0)),
        ("partial", Placement("sum")),
        ("partial(mean)", Placement("mean")),
        ("partial(avg)", Placement("mean")),
        ("partial(max)", Placement("max")),
        ("shard", None),
        ("shard(x)", None),
        ("", None),
    ],
)
def test_words_of_a_file(text: str, found: Placement | None) -> None:
    assert parsed_placement(text) == found
    if found is not None:
        assert parsed_placement(str(found)) == found


@for_each(
    ("recorded", "found"),
    [
        ({"Replicate": {}}, REPLICATE),
        ({"Shard": {"dim": 1}}, Placement("shard", 1)),
        ({"_StridedShard": {"dim": 0, "split_factor": 2}}, Placement("shard", 0, strided=True)),
        ({"Partial": {"reduce_op": "sum"}}, Placement("sum")),
        ({"Partial": {"reduce_op": "avg"}}, Placement("mean")),
        ({"_MaskPartial": {}}, Placement("sum")),
        ({"Partial": {"reduce_op": "product"}}, None),
        ({"Shard": {}}, None),
        ({"SomethingNew": {"dim": 1}}, None),
        ("S(0)", None),
    ],
)
def test_placements_of_a_dump(recorded: Any, found: Placement | None) -> None:
    assert recorded_placement(recorded) == found


def test_a_mesh_of_two_axes() -> None:
    leaf = {"device_mesh": [[0, 1], [2, 3]], "placements": [{"Replicate": {}}, {"Shard": {"dim": 0}}]}
    assert holding(leaf) == ((0, 1, 2, 3), [2, 2], (REPLICATE, Placement("shard", 0)))


@pytest.mark.parametrize(
    "leaf",
    [
        {},
        {"device_mesh": [0, 1]},
        {"device_mesh": [0, 1], "placements": [{"Replicate": {}}, {"Replicate": {}}]},
        {"device_mesh": [0, 1], "placements": [{"SomethingNew": {}}]},
        {"device_mesh": 3, "placements": "all"},
    ],
)
def test_what_is_not_understood_is_none(leaf: dict[str, Any]) -> None:
    assert holding(leaf) is None
