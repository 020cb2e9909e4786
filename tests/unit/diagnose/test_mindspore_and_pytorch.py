"""The same training in MindSpore and in PyTorch: healthy pairs agree, and a mistake on either side is named first.

The dumps were recorded by ``tests/twins/record.py``: the trainings of the second example, and other small networks.
"""

from __future__ import annotations

import tarfile
from pathlib import Path

import pytest
from mindspore_and_pytorch import FRAMEWORKS, WAYS, check_healthy, check_mistake

ARCHIVE = Path(__file__).parents[2] / "data" / "mindspore_and_pytorch.tar.xz"
NETWORKS = ("conv", "lstm", "tied", "encoder", "plain", "half")


@pytest.fixture(scope="module")
def dumps(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("dumps")
    with tarfile.open(ARCHIVE) as packed:
        packed.extractall(folder, filter="data")
    return folder


@pytest.mark.parametrize("way", WAYS)
def test_healthy_trainings_agree_however_they_are_recorded(dumps: Path, way: str) -> None:
    check_healthy(dumps / way, "healthy")


@pytest.mark.parametrize("network", NETWORKS)
@pytest.mark.parametrize("level", ["mix", "L0", "L1"])
def test_other_healthy_networks_agree(dumps: Path, level: str, network: str) -> None:
    check_healthy(dumps / f"twins_{level}", network)


@pytest.mark.parametrize("planted", FRAMEWORKS)
@pytest.mark.parametrize("mistake", WAYS["mix"])
def test_a_mistake_in_either_framework_is_named_first(dumps: Path, mistake: str, planted: str) -> None:
    check_mistake(dumps / "mix", mistake, planted, WAYS["mix"][mistake])


@pytest.mark.parametrize("planted", FRAMEWORKS)
@pytest.mark.parametrize(
    ("way", "mistake"),
    [
        *(("L0", name) for name in ("scale", "gelu", "residual", "weight", "stopped", "gradient", "learning_rate")),
        *(("L1", name) for name in ("scale", "mask", "gelu", "residual", "epsilon", "gradient", "learning_rate")),
        *(("md5", name) for name in ("gelu", "weight")),
        ("tensor", "epsilon"),
        ("structure", "mask"),
    ],
)
def test_a_mistake_is_named_first_however_it_is_recorded(dumps: Path, way: str, mistake: str, planted: str) -> None:
    check_mistake(dumps / way, mistake, planted, WAYS[way][mistake])
