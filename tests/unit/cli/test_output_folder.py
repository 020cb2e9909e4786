from __future__ import annotations

import os
from pathlib import Path

import pytest
from support.coded_texts import raising

from msprobe.cli import main
from msprobe.cli.output_folder import usable_output
from msprobe.errors import PathError


@pytest.mark.parametrize("name", ["", "new", "a/b/c"])
def test_a_folder_that_can_be_written_is_left_as_it_is(tmp_path: Path, name: str) -> None:
    assert usable_output(tmp_path / name) == tmp_path / name
    assert list(tmp_path.iterdir()) == []


@pytest.mark.skipif(not Path("/proc/self").exists(), reason="needs a file system that is not to be written to")
def test_a_folder_in_which_nothing_can_be_made_is_refused_though_permissions_allow_it() -> None:
    assert os.access("/proc", os.R_OK)
    with raising(PathError, "place-holds-no-files", shown='"/proc/out"'):
        usable_output("/proc/out")


def test_a_folder_in_the_place_of_a_file_is_named(tmp_path: Path) -> None:
    (tmp_path / "verdict.json").mkdir()
    assert usable_output(tmp_path, ["verdict.html"]) == tmp_path
    with raising(PathError, "output-file-is-folder"):
        usable_output(tmp_path, ["verdict.html", "verdict.json"])


@pytest.mark.parametrize(
    "line",
    [
        "compare a b -o",
        "parse -d a -o",
        "config_check -c a b -o",
        "nan_analyze -i a -o",
        "monitor analyse a -o",
        "graph_visualize -tp a -o",
    ],
)
def test_an_empty_text_is_no_folder(line: str, capsys: pytest.CaptureFixture[str]) -> None:
    """What a variable that is not set becomes in a script: nothing is written to the usual folder in its place."""
    with pytest.raises(SystemExit) as ended:
        main([*line.split(), ""])
    assert ended.value.code == 2
    assert "empty" in capsys.readouterr().err
