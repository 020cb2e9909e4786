"""The table of formats: one row and one renderer are all that a new format takes."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path

import pytest
from support import command_line
from support.coded_texts import mentions
from support.hand_made import call, tensor, write_part
from support.row_by_row import for_each

from msprobe.diagnose.check import CheckResult
from msprobe.diagnose.findings import Verdict
from msprobe.messages import code_of, said
from msprobe.paths import StrPath
from msprobe.report import formats
from msprobe.report.formats import FORMATS, Format
from msprobe.report.workbook import Sheet


def render_haiku(verdict: Verdict) -> str:
    """A toy format of verdicts."""
    return f"two runs were compared\nof {verdict.summary['steps_in_common']} step in common\n{verdict.status} they do"


def write_tabs(path: StrPath, sheets: Iterable[Sheet]) -> None:
    """A toy format of sheets."""
    Path(path).write_text("\n".join("\t".join(sheet.header) for sheet in sheets))


def render_count(result: CheckResult) -> bytes:
    """A toy format of checks."""
    return b"%d" % len(result.findings)


HAIKU = Format(
    "haiku", "verdict", "verdict.haiku", f"{__name__}:render_haiku", "write a poem in one file", forms=("two dumps",)
)
TABS = Format(
    "tabs",
    "rows",
    "compare_result{part}.tabs",
    f"{__name__}:write_tabs",
    "write the header with tabs",
    forms=("two dumps", "-i", "-tp"),
)
COUNT = Format("count", "check", "check.count", f"{__name__}:render_count", "how many findings")


@pytest.fixture
def dumps(tmp_path: Path) -> Path:
    """Two dumps of one step, ``a`` and ``b``, which differ."""
    for side, value in (("a", 1.0), ("b", 5.0)):
        data = {"Torch.exp.0.forward": call(tensor(2, 3), out=tensor(2, 3, value=value))}
        write_part(tmp_path / side / "step0" / "rank", data)
    return tmp_path


@pytest.fixture
def toys(monkeypatch: pytest.MonkeyPatch) -> None:
    """The table with three rows more."""
    monkeypatch.setattr(formats, "FORMATS", (*FORMATS, HAIKU, TABS, COUNT))


@pytest.mark.usefixtures("toys")
def test_a_row_more_is_a_flag_with_help_and_a_file_on_disk(dumps: Path) -> None:
    told = " ".join(command_line.call("compare", "--help").stdout.split())
    for row in (HAIKU, TABS):
        assert f"{row.flag} {row.text}" in told
    assert "(--html, --xlsx, --csv, --parquet, --haiku, --tabs)" in told
    assert "tables (--xlsx, --csv, --parquet, --tabs) of all steps" in told
    done = command_line.call("compare", dumps / "a", dumps / "b", "--haiku", "--tabs", "-o", dumps / "o")
    assert done.returncode == 1, done.stderr
    written = sorted(path.name for path in (dumps / "o").iterdir())
    assert written == ["compare_result_step0_rank.tabs", "verdict.haiku", "verdict.json"]
    assert (dumps / "o/verdict.haiku").read_text().splitlines()[1:] == ["of 1 step in common", "diverged they do"]
    assert (dumps / "o/compare_result_step0_rank.tabs").read_text().startswith("NPU Name\tBench Name")
    assert all(name in done.stdout for name in written), "what was written is named"


@pytest.mark.usefixtures("toys")
def test_a_format_of_sheets_serves_all_forms_of_the_command(dumps: Path) -> None:
    parts = [str(dumps / side / "step0/rank/dump.json") for side in ("a", "b")]
    (dumps / "compare.json").write_text(json.dumps({"npu_path": parts[0], "bench_path": parts[1]}))
    for number, words in enumerate(
        (
            ("-f", "pytorch", "compare", "-i", dumps / "compare.json"),
            ("compare", "-tp", parts[0], "-gp", parts[1]),
        )
    ):
        folder = dumps / f"o{number}"
        done = command_line.call(*words, "-o", folder, "--tabs")
        assert done.returncode == 0, done.stderr
        assert [path.suffix for path in folder.glob("compare_result_*")] == [".tabs"]
        refused = command_line.call(*words, "-o", folder, "--tabs", "--csv")
        assert mentions(refused.stderr, "options-exclude", options="--csv and --tabs")
        refused = command_line.call(*words, "-o", folder, "--haiku")
        assert mentions(refused.stderr, "option-of-two-dumps", flag="--haiku")
        assert refused.returncode == 2


@pytest.mark.usefixtures("toys")
def test_what_check_writes_stands_in_the_table(dumps: Path) -> None:
    assert "write check.json, check.count there" in command_line.call("check", "--help").stdout
    done = command_line.call("check", dumps / "a", "-o", dumps / "o")
    assert sorted(path.name for path in (dumps / "o").iterdir()) == ["check.count", "check.json"]
    assert "check.count" in done.stdout


def test_a_flag_of_the_sheets_alone_is_refused_with_two_dumps(dumps: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(formats, "FORMATS", (*FORMATS, TABS._replace(forms=("-i",))))
    done = command_line.call("compare", dumps / "a", dumps / "b", "--tabs")
    assert done.returncode == 2
    assert mentions(done.stderr, "option-not-of-two-dumps", wrong="--tabs")


def test_a_format_whose_package_is_missing_is_refused_before_the_work(
    dumps: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    needy = HAIKU._replace(package="no_such_package", extra="poems")
    monkeypatch.setattr(formats, "FORMATS", (*FORMATS, needy))
    assert f"{HAIKU.text} (needs no_such_package)" in command_line.call("compare", "--help").stdout
    done = command_line.call("compare", dumps / "a", dumps / "b", "--haiku", "-o", dumps / "o")
    assert done.returncode == 2
    needs = said("package-missing-for-option", "--haiku", "no_such_package", "pip install 'msprobe-debugger[poems]'")
    assert done.stderr == f"msprobe: {needs} [{code_of(needs)[0]}]\n"
    assert not (dumps / "o").exists()


@for_each("row", FORMATS)
def test_each_row_names_a_renderer_and_describes_itself(row: Format) -> None:
    assert callable(row.render())
    assert row.text
    assert row.file == "" or Path(row.file).name == row.file
    assert ("{part}" in row.file) == (row.shows in ("rows", "advice"))


def test_flags_and_file_names_are_given_once() -> None:
    asked = [row.flag for row in formats.with_flag()]
    files = [row.file for row in FORMATS if row.file]
    assert len(set(asked)) == len(asked)
    assert len(set(files)) == len(files)
    assert [formats.default_sheet(form).word for form in ("-i", "-tp")] == ["xlsx", "csv"]
