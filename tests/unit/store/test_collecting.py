"""The ranks of several machines as one dump."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from unit.diagnose.overflow_ranks import c13

from msprobe.cli import main
from msprobe.diagnose import compare_runs
from msprobe.diagnose.check import check_run
from msprobe.errors import InvalidInputError, PathError
from msprobe.store.collecting import collect


@pytest.fixture
def nodes(tmp_path: Path) -> tuple[Path, Path]:
    """Ranks 0 and 1 of a run on one machine, 2 and 3 on another; ``whole`` has all."""
    c13().write(tmp_path / "whole")
    for node, ranks in (("one", (0, 1)), ("two", (2, 3))):
        for rank in ranks:
            place = tmp_path / node / "step0" / f"rank{rank}"
            place.parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / "whole" / "step0" / f"rank{rank}").rename(place)
    c13().write(tmp_path / "whole")
    return tmp_path / "one", tmp_path / "two"


def test_each_command_says_the_same_of_a_collected_dump(
    nodes: tuple[Path, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    whole, together = tmp_path / "whole", tmp_path / "together"
    assert main(["collect", *map(str, nodes), "-o", str(together)]) == 0
    assert "ranks 0-3 of 1 steps" in capsys.readouterr().out
    assert check_run(together).findings == check_run(whole).findings
    assert compare_runs(together, whole).status == "agree"
    said = []
    for dump in (together, whole):
        assert main(["nan_analyze", "-i", str(dump), "--json", "-"]) == 0
        said.append(json.loads(capsys.readouterr().out.replace(str(dump), "")))
    assert said[0] == said[1]
    assert "rank_1" in said[0]


def test_ranks_that_are_missing_are_reported(
    nodes: tuple[Path, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["collect", str(nodes[1]), "-o", str(tmp_path / "part")]) == 2
    assert "Not collected: step 0: rank 0, 1 (" in capsys.readouterr().out


def test_ranks_that_are_there_twice_are_refused_all_at_once(nodes: tuple[Path, Path], tmp_path: Path) -> None:
    with pytest.raises(InvalidInputError, match=r"ranks 0, 1 of step 0 are in .*one.* and in .*whole.*ranks 2, 3 of"):
        collect([*nodes, tmp_path / "whole"], tmp_path / "together")
    assert not (tmp_path / "together").exists()


def test_a_folder_with_something_in_it_is_left_alone(nodes: tuple[Path, Path], tmp_path: Path) -> None:
    with pytest.raises(PathError, match="is not empty"):
        collect(nodes, nodes[0])
    with pytest.raises(PathError, match="does not exist"):
        collect([nodes[0], tmp_path / "none"], tmp_path / "together")
