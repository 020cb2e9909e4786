"""What the distribution is called, in all that users read, and who else has files of its names."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest
from support.command_line import call
from support.row_by_row import for_each

from msprobe import distribution

ROOT = Path(__file__).parents[2]
READ_BY_USERS = (
    "README.md",
    "CHANGELOG.md",
    "CONTRIBUTING.md",
    "Makefile",
    "pyproject.toml",
    "docs",
    "examples",
    "src",
)
# `pip install msprobe`, `uv add msprobe`, "msprobe[torch]": neither is what this package is called on an index.
FOREIGN = re.compile(
    r"""(?:install|add)\s+(?:-\S+\s+)*['"]?msprobe['"\[=<>~!`]|(?:^|[\s`'"])msprobe\[[a-z]+[,\]]"""
    r"""|pip3?\s+install\s+(?:-\S+\s+)*['"]?msprobe\b(?!-)""",
    re.MULTILINE,
)


def texts() -> list[Path]:
    kinds = {".md", ".py", ".toml", ".sh", ".txt", ".yaml", ".json", ".ipynb", ""}
    found = []
    for name in READ_BY_USERS:
        place = ROOT / name
        files = [place] if place.is_file() else sorted(place.rglob("*"))
        found += [
            path
            for path in files
            if path.is_file() and path.suffix in kinds and not path.parent.name.endswith(".egg-info")
        ]
    return found


def made(folder: Path, name: str, **files: str) -> None:
    """The metadata of an installed distribution."""
    place = folder / f"{name}.dist-info"
    place.mkdir(parents=True)
    for file, text in {"METADATA": f"Metadata-Version: 2.1\nName: {name}\nSummary: foreign\n", **files}.items():
        (place / file.replace("_txt", ".txt")).write_text(text)


def test_no_text_installs_the_foreign_package_of_the_index() -> None:
    found = {
        f"{path.relative_to(ROOT)}: {match[0].strip()}"
        for path in texts()
        for match in FOREIGN.finditer(path.read_text(encoding="utf-8"))
    }
    assert not found


@for_each(
    "line",
    [
        "pip install msprobe",
        "run `pip install msprobe` first",
        "pip install 'msprobe[torch]'",
        "pip install -U msprobe==0.1.4",
        "pip3 install --user msprobe",
        "uv add msprobe[view]",
        "needs `msprobe[jobs]`",
    ],
)
def test_the_rule_knows_the_ways_to_write_it(line: str) -> None:
    assert FOREIGN.search(line)


@pytest.mark.parametrize(
    "line", ["pip install 'msprobe-debugger[torch]'", "pip install .[torch]", "pip install msprobe-debugger"]
)
def test_the_rule_lets_our_own_name_pass(line: str) -> None:
    assert not FOREIGN.search(line)


def test_the_distribution_is_built_under_its_name() -> None:
    assert f'\nname = "{distribution.NAME}"\n' in (ROOT / "pyproject.toml").read_text()


def test_an_install_line_names_the_extras() -> None:
    assert distribution.install() == "pip install msprobe-debugger"
    assert distribution.install("torch", "hf") == "pip install 'msprobe-debugger[torch,hf]'"


@pytest.mark.parametrize(
    ("folder", "files", "name"),
    [
        ("msprobe-0.1.4", {}, "msprobe"),
        ("mindstudio_probe-26.2.0", {"top_level_txt": "msprobe\n"}, "mindstudio-probe"),
        ("Some_Probe-1", {"top_level_txt": "other\nmsprobe\n"}, "some-probe"),
        ("a_tool-2", {"entry_points_txt": "[console_scripts]\nmsprobe = a_tool:main\n"}, "a-tool"),
        ("a_tool-3", {"RECORD": "a_tool/x.py,,\nmsprobe/__init__.py,,\n"}, "a-tool"),
    ],
)
def test_a_distribution_that_owns_our_names_is_found(
    tmp_path: Path, folder: str, files: dict[str, str], name: str
) -> None:
    made(tmp_path, folder, **files)
    made(tmp_path, "numpy-2", top_level_txt="numpy\n")
    assert distribution.sharers([str(tmp_path)]) == [name]


def test_honest_packages_and_our_own_earlier_name_are_not_named(tmp_path: Path) -> None:
    own = "Name: msprobe\nSummary: Tells where two neural-network trainings part ways, and why: ...\n"
    made(tmp_path, "msprobe-0.1.0", METADATA=own)
    made(tmp_path, "msprobe_debugger-0.1.0", top_level_txt="msprobe\n")
    made(tmp_path, "numpy-2", RECORD="numpy/__init__.py,,\nnumpy/msprobe/x.py,,\n")
    assert distribution.sharers([str(tmp_path), str(tmp_path / "none")]) == []


def test_a_command_names_the_foreign_package_in_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made(tmp_path, "msprobe-0.1.4")
    made(tmp_path, "mindstudio_probe-8.1.1")
    monkeypatch.setattr(sys, "path", [*sys.path, str(tmp_path)])
    lines = call("summary", tmp_path / "nothing").stderr.splitlines()
    assert "mindstudio-probe and msprobe" in lines[0]
    assert "pip uninstall mindstudio-probe msprobe" in lines[0]
    assert len(lines) == 2


@pytest.mark.parametrize("words", [("-h",), ("--version",), ("summary", "-h")])
def test_help_looks_for_no_packages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...]) -> None:
    made(tmp_path, "msprobe-0.1.4")
    monkeypatch.setattr(sys, "path", [*sys.path, str(tmp_path)])
    assert call(*words).stderr == ""


def test_ranks_but_the_first_are_silent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    made(tmp_path, "msprobe-0.1.4")
    monkeypatch.setattr(sys, "path", [*sys.path, str(tmp_path)])
    monkeypatch.setenv("RANK", "3")
    distribution.warn_once()
    assert capsys.readouterr().err == ""
