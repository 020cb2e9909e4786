from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from msprobe.errors import InvalidInputError
from msprobe.view.pictures import MOST_CELLS, picture_of

SHAPES = arrays.array_shapes(min_dims=0, max_dims=4, min_side=1, max_side=9)
TYPES = st.sampled_from([np.float32, np.float64, np.int32, np.bool_, np.float16, np.complex64])


@given(st.data(), SHAPES, TYPES)
def test_every_pair_of_one_shape_has_a_picture_that_json_can_hold(
    data: st.DataObject, shape: tuple, kind: type
) -> None:
    left, right = (data.draw(arrays.arrays(kind, shape)) for _ in range(2))
    found = picture_of(left, right)
    json.dumps(found, allow_nan=False)
    cells = np.array(found["cells"])
    assert cells.max() == found["largest"]
    assert (cells >= 0).all()
    edges = found["histogram"]["edges"]
    assert edges == sorted(edges)
    for side in ("candidate", "reference"):
        assert sum(found["histogram"][side]) <= left.size


@given(SHAPES)
def test_equal_tensors_show_nothing(shape: tuple) -> None:
    values = np.full(shape, np.nan, np.float32)
    assert picture_of(values, values)["largest"] == 0.0


def test_the_worst_slice_is_shown_and_named() -> None:
    left = np.zeros((4, 3, 5, 6), np.float32)
    right = left.copy()
    right[2, 1, 4, 0] = 7
    right[3, 0, 0, 0] = 1
    found = picture_of(left, right)
    assert found["slice"] == "[2, 1, :, :]"
    assert found["shape"] == [4, 3, 5, 6]
    assert found["cells"][4][0] == 7.0


def test_a_large_matrix_becomes_few_cells_and_loses_no_difference() -> None:
    left = np.zeros((1000, 3), np.float32)
    right = left.copy()
    right[777, 2] = 5
    found = picture_of(left, right)
    assert len(found["cells"]) <= MOST_CELLS
    assert found["cells"][777 // found["cell"][0]][2] == 5.0


def test_nan_on_one_side_alone_is_the_largest_difference() -> None:
    left = np.array([1.0, np.nan], np.float32)
    assert picture_of(left, np.array([1.0, 2.0], np.float32))["largest"] == 1e300


LARGE = np.broadcast_to(np.float32(0), (1 << 15, 1 << 14))


@pytest.mark.parametrize(
    ("left", "right", "words"),
    [
        (np.zeros(3), np.zeros(4), "shapes differ"),
        (np.zeros((0, 3)), np.zeros((0, 3)), "empty"),
        (np.array(["a"]), np.array(["b"]), "no difference that could be shown"),
        (
            np.broadcast_to(np.float32(0), (1 << 15, 1 << 14)),
            np.broadcast_to(np.float32(0), (1 << 15, 1 << 14)),
            "large",
        ),
    ],
)
def test_what_has_no_picture_is_reported(left: np.ndarray, right: np.ndarray, words: str) -> None:
    with pytest.raises(InvalidInputError, match=words):
        picture_of(left, right)
