"""Bad input of ``compare --second-look``: one sentence with a code, and status 2."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.coded_texts import names_of
from unit.diagnose.training import Plan, train

from msprobe.compare.entry_names import read_name
from msprobe.diagnose.runs import compare_runs
from msprobe.errors import InvalidInputError
from msprobe.second_look.looking import second_look

_CALL = "blocks.1.tanh"


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Two runs, one with a wrong call."""
    folder = tmp_path_factory.mktemp("runs")
    wrong = Plan(results={_CALL: lambda array: array * 1.5})
    return train(folder / "candidate", wrong), train(folder / "reference", Plan())


def _refusal(runs: tuple[Path, Path], folder: Path) -> list[str]:
    with pytest.raises(InvalidInputError) as raised:
        second_look(compare_runs(*runs), *runs, folder)
    return names_of(raised.value.args)


def test_one_side_alone_is_no_second_look(runs: tuple[Path, Path], tmp_path: Path) -> None:
    (tmp_path / "candidate").mkdir()
    assert _refusal(runs, tmp_path) == ["second-look-one-side"]


def test_configurations_name_calls_that_findings_name(runs: tuple[Path, Path], tmp_path: Path) -> None:
    verdict = compare_runs(*runs)
    found = second_look(verdict, *runs, tmp_path)
    calls = found.summary["second_look"]["calls"]
    assert read_name(f"{calls[0]}.forward").kind == "api"
    assert {path.name for path in tmp_path.iterdir()} == {"candidate.json", "reference.json"}
