"""When a tensor holds what was recorded, and how far it is apart from it."""

from __future__ import annotations

import math

import numpy as np
import torch
from support.row_by_row import for_each

from msprobe.lockstep.torch.values import TorchValues

VALUES = TorchValues()
LOWEST = torch.finfo(torch.float32).min


@for_each(
    ("own", "recorded", "same"),
    [
        ([1.0, math.nan, math.inf], [1.0, math.nan, math.inf], True),
        ([-math.inf, 0.0], [-math.inf, 0.0], True),
        ([-math.inf, 0.0], [LOWEST, 0.0], False),
        ([math.inf], [-LOWEST], False),
        ([math.inf], [-math.inf], False),
        ([math.nan], [0.0], False),
        ([1.0, 2.0], [1.0, 2.5], False),
    ],
)
def test_a_tensor_holds_what_was_recorded_bit_for_bit(own: list[float], recorded: list[float], same: bool) -> None:
    assert VALUES.equals(torch.tensor(own), np.array(recorded, np.float32)) is same


def test_a_complex_infinity_is_distinguished_from_a_number() -> None:
    own = torch.tensor([complex(math.inf, 1.0)])
    assert VALUES.equals(own, own.numpy())
    assert not VALUES.equals(own, np.array([complex(-LOWEST, 1.0)], np.complex64))


def test_a_mask_that_was_added_twice_is_infinitely_far_apart() -> None:
    mask = torch.tensor([LOWEST, 0.0])
    assert VALUES.apart(mask + mask, mask) == math.inf
    assert VALUES.apart(mask, mask) == 0.0


def test_the_largest_number_of_a_wider_type_is_no_infinity() -> None:
    """A mask of `torch.finfo(float32).min` would be one in bfloat16 and in float16."""
    array = np.array([torch.finfo(torch.float32).min, -np.inf, np.inf, np.nan, 1e30, 1.0], dtype=np.float32)

    for dtype in (torch.bfloat16, torch.float16):
        largest = torch.finfo(dtype).max
        found = TorchValues().like(torch.zeros(6, dtype=dtype), array)
        expected = [-largest, -np.inf, np.inf, np.nan, 1e30 if dtype is torch.bfloat16 else largest, 1.0]
        assert torch.equal(found.nan_to_num(3.0), torch.tensor(expected).to(dtype).nan_to_num(3.0))
        assert found.isinf().tolist() == [False, True, True, False, False, False]
