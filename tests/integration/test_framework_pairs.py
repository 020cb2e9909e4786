"""Networks as users of each framework write them: healthy pairs agree, mistakes are named first.

A few of those that `bench/mindspore/pairs.py` compares; MindSpore is in the environment that runs this.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

pytest.importorskip("mindspore", reason="MindSpore is not installed here; `make test-mindspore` runs these")
pytestmark = pytest.mark.mindspore

TESTS = Path(__file__).parents[1]
sys.path[:0] = [str(TESTS / "twins"), str(TESTS / "framework_pairs")]

from common import MISTAKES, NETWORKS, is_named  # noqa: E402
from record_twins import interpreters  # noqa: E402
from relatives import HEALTHY as RELATED  # noqa: E402
from relatives import RELATIVES  # noqa: E402
from wrong_kernels import changed_first  # noqa: E402

from msprobe.diagnose.runs import compare_runs  # noqa: E402

HEALTHY = ("mlp-relu", "mlp-tanh", "attention-fused", "places", "branches")
PLANTED = [one for one in MISTAKES if one[:2] in (("gelu", "form"), ("branches", "detach"), ("places", "position"))]

#: In float16: a network, and kernels of its PyTorch side that are wrong in turn.
HALF = {
    "mlp-gelu": ("addmm-scale-0.02-call1", "gelu_backward-scale-0.05"),
    "attention-fused": ("bmm-scale-0.05", "softmax-scale-0.05"),
    "norm-layer": ("native_layer_norm-scale-0.03", "mm-last-rows-1-call1"),
    "gates-silu": ("silu_backward-scale-0.05",),
}
WRONG = [f"{name}+{kernel}" for name, kernels in HALF.items() for kernel in kernels]


def _recorded(folder: Path, scripts: str, names: Mapping[str, Sequence[str]], *options: str) -> Path:
    """Both sides of networks, each by its script, in a folder for each side. ``names``: by side; without one, all."""
    found = interpreters()
    if found is None:
        pytest.skip("PyTorch is not installed here, nor in .venv; set PYTORCH_PYTHON to a Python that has it")
    for side, python in found.items():
        script = TESTS / "framework_pairs" / f"{scripts}_{side}.py"
        words = [python, script, folder / side, *names.get(side, ()), *options]
        subprocess.run(words, check=True, capture_output=True)
    return folder


def assert_agrees(pairs: Path, name: str) -> None:
    """Either side may be the reference."""
    pair = pairs / "mindspore" / name, pairs / "pytorch" / name
    for candidate, reference in (pair, pair[::-1]):
        assert compare_runs(candidate, reference).status == "agree"


@pytest.fixture(scope="module")
def half(tmp_path_factory: pytest.TempPathFactory) -> Path:
    names = {"mindspore": [*HALF], "pytorch": [*HALF, *WRONG]}
    return _recorded(tmp_path_factory.mktemp("half"), "networks", names, "--dtype", "float16")


@pytest.fixture(scope="module")
def dumps(tmp_path_factory: pytest.TempPathFactory) -> Path:
    names = list(dict.fromkeys([*HEALTHY, *(name for name, _, _ in PLANTED)]))
    wanted = {"mindspore": [*HEALTHY, *(f"{name}+{wrong}" for name, wrong, _ in PLANTED)], "pytorch": names}
    return _recorded(tmp_path_factory.mktemp("pairs"), "networks", wanted)


@pytest.fixture(scope="module")
def relatives(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return _recorded(tmp_path_factory.mktemp("relatives"), "relatives", {})


@pytest.mark.parametrize("name", RELATED)
def test_what_pages_on_both_frameworks_warn_of_agrees_where_it_is_written_rightly(relatives: Path, name: str) -> None:
    assert_agrees(relatives, name)


@pytest.mark.parametrize(("name", "wrong", "words"), RELATIVES)
def test_what_pages_on_both_frameworks_warn_of_is_named_first(
    relatives: Path, name: str, wrong: str, words: tuple[str, ...]
) -> None:
    pair = relatives / "mindspore" / f"{name}+{wrong}", relatives / "pytorch" / name
    for candidate, reference in (pair, pair[::-1]):
        verdict = compare_runs(candidate, reference)
        assert is_named(verdict, words), [one.message for one in verdict.findings]


@pytest.mark.parametrize("name", HEALTHY)
def test_a_network_that_both_write_in_their_own_way_agrees(dumps: Path, name: str) -> None:
    assert_agrees(dumps, name)


@pytest.mark.parametrize(("name", "wrong", "words"), PLANTED)
def test_a_mistake_is_named_first(dumps: Path, name: str, wrong: str, words: tuple[str, ...]) -> None:
    verdict = compare_runs(dumps / "mindspore" / f"{name}+{wrong}", dumps / "pytorch" / name)
    assert is_named(verdict, words), [one.message for one in verdict.findings]


def test_there_are_as_many_pairs_as_the_bench_says() -> None:
    assert len(NETWORKS) == len(set(NETWORKS)) == 20
    assert {name for name, _, _ in MISTAKES} <= set(NETWORKS)


@pytest.mark.parametrize("name", HALF)
def test_a_network_in_a_half_type_agrees(half: Path, name: str) -> None:
    """The gradient of a factor that MindSpore's kernel transposes itself has its elements in another order."""
    assert_agrees(half, name)


@pytest.mark.parametrize("wrong", WRONG)
def test_a_wrong_kernel_in_a_half_type_is_named_first(half: Path, wrong: str) -> None:
    name = wrong.partition("+")[0]
    candidate, reference = half / "pytorch" / wrong, half / "mindspore" / name
    verdict = compare_runs(candidate, reference)
    assert verdict.status == "diverged"
    assert verdict.findings[0].entry in changed_first(half / "pytorch" / name, candidate)
    assert compare_runs(reference, candidate).status == "diverged"
