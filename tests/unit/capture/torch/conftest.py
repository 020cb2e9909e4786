"""What several of these tests need of torch."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import pytest
import torch
import torch.distributed as dist


@pytest.fixture(scope="module")
def group_of_one(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """A process group with this rank alone."""
    store = tmp_path_factory.mktemp("rendezvous") / "store"
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=0, world_size=1)
    yield
    dist.destroy_process_group()


@pytest.fixture
def mesh() -> Iterator[Any]:
    """The same as a mesh of devices."""
    from torch.distributed.device_mesh import init_device_mesh

    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    yield init_device_mesh("cpu", (1,), mesh_dim_names=("dp",))
    dist.destroy_process_group()


@pytest.fixture
def known_memory() -> Iterator[None]:
    """What nobody has written yet is NaN."""
    torch.use_deterministic_algorithms(True)
    yield
    torch.use_deterministic_algorithms(False)
