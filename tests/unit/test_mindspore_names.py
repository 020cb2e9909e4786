"""``msprobe.mindspore`` where MindSpore is not installed: what works on files works, the rest says what is missing."""

from __future__ import annotations

import importlib.util
import subprocess
import sys

import pytest
from support.row_by_row import for_each

import msprobe.mindspore
from msprobe.errors import NotAvailableError

HAS_MINDSPORE = importlib.util.find_spec("mindspore") is not None


@pytest.mark.process
def test_comparing_needs_no_mindspore() -> None:
    code = (
        "import sys; from msprobe.mindspore.compare.ms_compare import ms_compare;"
        "assert 'mindspore' not in sys.modules and 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


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
