"""``msprobe.mindspore`` where MindSpore is not installed: what works on files works, the rest says what is missing."""

from __future__ import annotations

import importlib.util

import pytest
from support.row_by_row import for_each

import msprobe.mindspore
from msprobe.errors import NotAvailableError

HAS_MINDSPORE = importlib.util.find_spec("mindspore") is not None


@pytest.mark.skipif(HAS_MINDSPORE, reason="MindSpore is installed")
@for_each(
    "name",
    ["PrecisionDebugger", "TrainerMon", "seed_all", "MsprobeStep", "MsprobeInitStep", "save", "save_grad", "step"],
)
def test_recording_says_that_mindspore_is_missing(name: str) -> None:
    with pytest.raises(NotAvailableError, match=f"{name} needs MindSpore"):
        getattr(msprobe.mindspore, name)


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="nothing_like_it"):
        msprobe.mindspore.nothing_like_it
