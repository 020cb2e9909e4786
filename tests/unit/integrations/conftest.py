"""What recordings of engines share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest


@pytest.fixture(autouse=True)
def one_debugger() -> Iterator[None]:
    from msprobe.pytorch import PrecisionDebugger

    PrecisionDebugger.reset()
    yield
    PrecisionDebugger.reset()
