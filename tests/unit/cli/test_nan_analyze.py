"""``msprobe nan_analyze`` and ``overflow_check``: both forms, the file, the words, and what is refused."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
from support.coded_texts import mentions
from support.hand_made import call, tensor, write_part

from msprobe.cli import main
from msprobe.nan_analyze.analyzer import NanAnalyzer
from msprobe.overflow_check.analyzer import OverFlowCheck
from msprobe.view.opening import open_source


@pytest.fixture
def step(tmp_path: Path) -> Path:
    """Two ranks, of which the second divides by zero before they add up."""
    bad = tensor(2, value=math.inf)
    for rank in (0, 1):
        data: dict[str, Any] = {"Torch.mul.0.forward": call(tensor(2))}
        if rank == 1:
            data["Torch.div.0.forward"] = call(tensor(2), tensor(2, value=0.0), out=bad)
        data["Distributed.all_reduce.0.forward"] = call(bad if rank == 1 else tensor(2), out=bad)
        data["Torch.add.0.forward"] = call(bad, out=bad)
        stack = {"Torch.div.0.forward": ["File /train.py, line 15, in <module>, \n h = torch.div(h, z)"]}
        chain = dict.fromkeys(data, "Module.i.Inner.forward.0")
        write_part(tmp_path / "step0" / f"rank{rank}", data, construct=chain, stacks=stack if rank else {}).close()
    return tmp_path / "step0"


def result(folder: Path) -> dict[str, Any]:
    (file,) = folder.glob("anomaly_analyze_*.json")
    found: dict[str, Any] = json.loads(file.read_text())
    return found


@pytest.mark.parametrize(
    "words", [["-f", "pytorch", "nan_analyze"], ["overflow_check"], ["-f", "mindspore", "nan_analyze"]]
)
def test_the_file_has_the_fields_of_8_1_1_and_ours(
    step: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], words: list[str]
) -> None:
    assert main([*words, "-i", str(step), "-o", str(tmp_path / "out")]) == 0
    found = result(tmp_path / "out")
    assert list(found) == ["rank_1", "_propagation"]
    (entry,) = found["rank_1"]
    assert entry["op_name"] == "Torch.div.0.forward"
    assert list(entry["data_info"]) == ["input_args", "input_kwargs", "output"]
    assert entry["data_info"]["output"][0]["Max"] == math.inf
    assert entry["construct_info"] == ["Module.i.Inner.forward.0", "Torch.div.0.forward"]
    assert entry["stack_info"] == ["File /train.py, line 15, in <module>, \n h = torch.div(h, z)"]
    assert (entry["kind"], entry["layer"], entry["step"], entry["first_bad_value"]) == ("compute", 1, 0, "inf")
    assert "division by zero" in entry["hint"]
    spread = found["_propagation"]["from"][0]["to"]
    assert spread == {
        "rank_0": {"arrived_through": "Distributed.all_reduce.0.forward", "first_bad": "Torch.add.0.forward"}
    }
    printed = capsys.readouterr().out
    for text in (
        *("division by zero", "train.py:15", "rank 0: through Distributed.all_reduce.0.forward"),
        "The analyze result is saved in: ",
    ):
        assert text in printed


def test_nothing_found_writes_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_part(tmp_path / "step0" / "rank", {"Torch.mul.0.forward": call(tensor(2))}).close()
    assert main(["nan_analyze", "-i", str(tmp_path / "step0"), "-o", str(tmp_path / "out")]) == 0
    assert not (tmp_path / "out").exists()
    assert mentions(capsys.readouterr().out, "no-anomaly-node")


def test_json_is_printed_alone(step: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["nan_analyze", "-i", str(step), "--json", "-"]) == 0
    assert json.loads(capsys.readouterr().out)["rank_1"][0]["op_name"] == "Torch.div.0.forward"
    printed = main(["nan_analyze", "-i", str(step), "-o", str(tmp_path / "out"), "--json"]), capsys.readouterr().out
    assert printed[0] == 0
    assert json.loads(printed[1]) == result(tmp_path / "out")


@pytest.mark.parametrize("analyzer", [NanAnalyzer, OverFlowCheck])
def test_the_classes_do_the_same(step: Path, tmp_path: Path, analyzer: type[NanAnalyzer]) -> None:
    analyzer(str(step), str(tmp_path / "out")).analyze()
    assert result(tmp_path / "out")["rank_1"][0]["op_name"] == "Torch.div.0.forward"


def test_the_page_opens_the_file_with_its_dump(step: Path, tmp_path: Path) -> None:
    from msprobe.view.opening import open_source

    main(["nan_analyze", "-i", str(step), "-o", str(tmp_path / "out")])
    for path in (tmp_path / "out", next((tmp_path / "out").iterdir())):
        source = open_source([path])
        told = json.dumps(source.overview(), default=str)
        source.close()
        assert "Torch.div.0.forward" in told


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["-i", "nowhere"], "does not exist"),
        (["-i", "{folder}"], "folders step* and rank*"),
        (["-i", "{step}", "--threshold", "many"], "--threshold: 'many' is no number above 0"),
        (["-i", "{step}", "--threshold", "0", "--growth", "nan"], "--growth: 'nan' is no number above 0"),
        (["-i", "{step}", "-o", "{step}/rank0/dump.json"], "is a file"),
    ],
)
def test_bad_input_is_one_sentence(
    step: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], words: list[str], told: str
) -> None:
    (tmp_path / "empty").mkdir()
    given = [word.format(step=step, folder=tmp_path / "empty") for word in words]
    assert main(["nan_analyze", *given]) != 0
    (line,) = capsys.readouterr().err.splitlines()
    assert told in line


def test_the_page_shows_what_the_file_says(step: Path, tmp_path: Path) -> None:
    """With the limits that were asked for, and nothing of other checks."""
    for rank, value in ((0, 5.0), (1, 5.0)):
        data = {"Torch.mul.0.forward": call(tensor(2), out=tensor(2, value=value * (1 + 99 * rank)))}
        write_part(tmp_path / "large" / "step0" / f"rank{rank}", data).close()
    for dump, words, name in (
        (step, [], "Torch.div.0.forward"),
        (tmp_path / "large", ["--threshold", "100"], "Torch.mul.0.forward"),
    ):
        out = tmp_path / f"out-{name}"
        assert main(["nan_analyze", "-i", str(dump), "-o", str(out), *words]) == 0
        source = open_source([out])
        try:
            (finding,) = source.overview()["verdict"]["findings"]
            assert finding["name"] == name
            assert "rank 1" in json.dumps(finding)
        finally:
            source.close()
