"""The second example as it stands, and other small networks, recorded in both frameworks and compared.

MindSpore is in the environment that runs this; PyTorch in this one too, or in that which PYTORCH_PYTHON names, or in
the one that `make test` made.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from support.mindspore_and_pytorch import FRAMEWORKS, MIX, check_healthy, check_mistake

from msprobe.messages import said

pytest.importorskip("mindspore", reason="MindSpore is not installed here; `make test-mindspore` runs these")
pytestmark = pytest.mark.mindspore

TESTS = Path(__file__).parents[1]
sys.path.insert(0, str(TESTS / "twins"))

from record_twins import EXAMPLE, example, interpreters, record, twins  # noqa: E402

#: One of each kind; all are compared as they were recorded once (tests/unit/diagnose/test_mindspore_and_pytorch.py).
#: For each change half of them.
EVERY = os.environ.get("MSPROBE_TESTS") == "all"
LIVE = ("scale", "residual", "stopped", "learning_rate") if EVERY else ("residual", "learning_rate")
LIVE_NETWORKS = ("conv", "lstm", "encoder") if EVERY else ("lstm",)


@pytest.fixture(scope="module")
def dumps(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if interpreters() is None:
        pytest.skip("PyTorch is not installed here, nor in .venv; set PYTORCH_PYTHON to a Python that has it")
    folder = tmp_path_factory.mktemp("dumps")
    trainings = [one for one in example(["mix"]) if one.name in ("healthy", *LIVE)]
    record([*trainings, *(one for one in twins(["mix"]) if one.name in LIVE_NETWORKS)], folder)
    return folder


def test_healthy_trainings_agree(dumps: Path) -> None:
    check_healthy(dumps / "mix", "healthy")


@pytest.mark.parametrize("network", LIVE_NETWORKS)
def test_other_healthy_networks_agree(dumps: Path, network: str) -> None:
    check_healthy(dumps / "twins_mix", network)


@pytest.mark.parametrize("planted", FRAMEWORKS)
@pytest.mark.parametrize("mistake", LIVE)
def test_a_mistake_in_either_framework_is_named_first(dumps: Path, mistake: str, planted: str) -> None:
    check_mistake(dumps / "mix", mistake, planted, MIX[mistake])


def test_the_example_says_agreement_and_the_mistake(dumps: Path, tmp_path: Path) -> None:
    found = interpreters()
    assert found is not None
    environment = {**os.environ, **{f"{name.upper()}_PYTHON": python for name, python in found.items()}}
    ended = subprocess.run(
        [sys.executable, EXAMPLE / "demo.py", tmp_path],
        capture_output=True,
        text=True,
        env=environment,
        timeout=250,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    healthy, _, broken = ended.stdout.partition("A mistake: ")
    agree = "AGREE: no difference beyond rounding"
    assert agree in healthy
    place = said("named-at", "DIVERGED", "step 0, forward pass")
    assert f"{place}{said('in-module', 'blocks.0.gelu')}" in broken
    assert "its inputs agree" in broken
    assert "train_mindspore.py" in broken
