"""The same training in MindSpore and in PyTorch: healthy pairs agree, and a mistake on either side is named first.

The dumps were recorded by ``tests/twins/record_twins.py``: the trainings of the second example, and other networks.
"""

from __future__ import annotations

import json
import shutil
import tarfile
from pathlib import Path

import pytest
from support.coded_texts import mentions
from support.mindspore_and_pytorch import FRAMEWORKS, WAYS, check_healthy, check_mistake, told

from msprobe.cli import main
from msprobe.compare.mapping import load_mappings
from msprobe.diagnose.runs import compare_runs
from msprobe.messages import said

ARCHIVE = Path(__file__).parents[2] / "data" / "mindspore_and_pytorch.tar.xz"
NETWORKS = ("conv", "lstm", "tied", "encoder", "plain", "half", "attention", "gru", "norms", "styles", "wrapped")


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


def renamed(dumps: Path, tmp_path: Path, name: str, words: dict[str, str]) -> Path:
    """A dump of MindSpore with other words in its names."""
    folder = shutil.copytree(dumps / "mix" / name, tmp_path / name)
    for file in folder.rglob("*.json"):
        text = file.read_text()
        for old, new in words.items():
            text = text.replace(old, new)
        file.write_text(text)
    return folder


#: The second block stands elsewhere, and its halves have other names.
ELSEWHERE = {"Cell.blocks.1.attention.": "Cell.late.mixer.", "Cell.blocks.1.": "Cell.late."}
CELLS = {
    "late.Block": "blocks.1.Block",
    "late.mixer": "blocks.1.attention",
    **{f"late.{name}": f"blocks.1.{name}" for name in ("norm1", "norm2", "wide", "narrow", "gelu")},
}


@pytest.mark.parametrize("mistake", ["healthy", "scale", "not_loaded"])
def test_a_cell_mapping_leads_to_modules_that_stand_elsewhere(dumps: Path, tmp_path: Path, mistake: str) -> None:
    mine, theirs = renamed(dumps, tmp_path, f"mindspore_{mistake}", ELSEWHERE), dumps / "mix" / "pytorch_healthy"
    expected = compare_runs(dumps / "mix" / f"mindspore_{mistake}", theirs)
    mappings = load_mappings(cell=CELLS)
    for found, kept in (
        (compare_runs(mine, theirs, mappings=mappings), expected),
        (compare_runs(theirs, mine, mappings=mappings), compare_runs(theirs, dumps / "mix" / f"mindspore_{mistake}")),
    ):
        assert found.status == kept.status, told(found)
        assert [one.kind for one in found.findings] == [one.kind for one in kept.findings], told(found)
        assert found.summary["pairs"] == kept.summary["pairs"]


def test_an_api_mapping_leads_to_functions_of_the_users_own(dumps: Path, tmp_path: Path) -> None:
    mine = renamed(dumps, tmp_path, "mindspore_healthy", {"Functional.softmax": "Functional.my_weights"})
    for file in mine.rglob("dump.json"):
        dump = json.loads(file.read_text())
        for name, record in dump["data"].items():
            if "my_weights" in name and "input_args" in record:
                record["input_args"].insert(0, {"type": "int", "value": 3})
        file.write_text(json.dumps(dump))
    theirs = dumps / "mix" / "pytorch_healthy"
    pair = {"ms_api": "Functional.my_weights", "pt_api": "Functional.softmax", "ms_args": [1], "pt_args": [0]}
    pair |= {"ms_output": [0], "pt_output": [0], "ms_parameters": [], "pt_parameters": []}
    verdict = compare_runs(mine, theirs, mappings=load_mappings(api=[pair]))
    assert verdict.status == "agree", told(verdict)
    assert verdict.summary["pairs"] == compare_runs(dumps / "mix" / "mindspore_healthy", theirs).summary["pairs"]
    assert compare_runs(mine, theirs).summary["pairs"] < verdict.summary["pairs"]


def test_the_command_takes_mappings_for_the_verdict(
    dumps: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    mine, theirs = renamed(dumps, tmp_path, "mindspore_scale", ELSEWHERE), dumps / "mix" / "pytorch_healthy"
    file = tmp_path / "cells.yaml"
    file.write_text("".join(f"{name}: {other}\n" for name, other in CELLS.items()))
    assert main(["compare", str(mine), str(theirs), "-cm", str(file)]) == 1
    place = said("named-at", "DIVERGED", "step 0, forward pass")
    assert f"{place}{said('in-module', 'blocks.1.attention')}" in capsys.readouterr().out
    assert main(["compare", str(theirs), str(dumps / "mix" / "pytorch_scale"), "-cm", str(file)]) == 1
    assert mentions(" ".join(capsys.readouterr().out.split()), "mappings-not-used")


def test_running_averages_of_a_batch_norm_are_compared(dumps: Path, tmp_path: Path) -> None:
    """As with ``momentum=0.1``, which means in MindSpore what 0.9 means in PyTorch."""
    mine = shutil.copytree(dumps / "twins_mix" / "mindspore_conv", tmp_path / "mine")
    file = mine / "step1" / "rank" / "dump.json"
    dump = json.loads(file.read_text())
    mean = dump["data"]["Primitive.bn_train.BatchNorm.0.forward"]["input_args"][3]
    mean |= {key: 9 * mean[key] for key in ("Max", "Min", "Mean", "Norm")}
    file.write_text(json.dumps(dump))
    for pair in ((mine, dumps / "twins_mix" / "pytorch_conv"), (dumps / "twins_mix" / "pytorch_conv", mine)):
        verdict = compare_runs(*pair)
        assert verdict.status == "diverged", told(verdict)
        first = verdict.findings[0]
        assert (first.kind, first.step, first.where) == ("weights", 1, "norm1.running_mean"), told(verdict)
