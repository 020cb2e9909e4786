"""Compatibility with the published package; its environments come from `python bench/reference_env.py`."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parent))

from dumps import REFERENCES, Rank, Setting, record
from reference_env import make

Recorded = Callable[[Setting], list[Rank]]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    own = f"{Path(__file__).parent}{os.sep}"
    for item in items:
        if str(item.path).startswith(own):
            item.add_marker(pytest.mark.compat)


@pytest.fixture(scope="session", params=REFERENCES)
def version(request: pytest.FixtureRequest) -> str:
    """One published version, with its environment made."""
    make(request.param)
    return str(request.param)


@pytest.fixture(scope="session")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Recorded:
    """Record a setting once a session."""
    below = tmp_path_factory.mktemp("recorded")
    known: dict[Setting, list[Rank]] = {}

    def steps(setting: Setting) -> list[Rank]:
        if setting not in known:
            known[setting] = record(setting, below)
        return known[setting]

    return steps
