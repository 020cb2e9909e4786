"""What trainings share that are compared number by number."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder for all trainings of a file, each of which computes with one thread."""
    import torch

    count = torch.get_num_threads()
    torch.set_num_threads(1)
    yield tmp_path_factory.mktemp("trainings")
    torch.set_num_threads(count)
