"""The published compare command and graph builder accept our dumps."""

from __future__ import annotations

import csv
import json
import sqlite3
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
from conftest import Recorded
from dumps import OURS, Rank, Setting, run_command
from explained import may_be_missing
from reference_env import clean_environment, python_of

PROGRAMS = ["toy", "transformer"]
SETTINGS = [
    ("L0", "statistics", "statistics"),
    ("L1", "statistics", "statistics"),
    ("mix", "statistics", "statistics"),
    ("L1", "statistics", "md5"),
    ("L1", "tensor", "statistics"),
]
CASES = [(program, *setting) for program in PROGRAMS for setting in SETTINGS]
# What is peculiar to a program puts keys of our own into its records: optimizer steps, recomputation, evaluation.
PECULIAR = [
    (program, "mix", "statistics", "statistics")
    for program in ("optimizer_inside", "checkpoint_non_reentrant", "accumulate", "convnet")
]
AGAINST = ("alone", "itself", "reference")
Row = dict[str, str]


def compare(version: str, candidate: Rank, reference: Rank, output: Path) -> list[Row]:
    """Run the published compare; return the rows of its sheet."""
    output.mkdir()
    if version == "8.1.1":
        asked = {
            "npu_path": str(candidate.folder / "dump.json"),
            "bench_path": str(reference.folder / "dump.json"),
            "stack_path": str(candidate.folder / "stack.json"),
            "is_print_compare_log": True,
        }
        (output / "compare.json").write_text(json.dumps(asked))
        said = run_command(version, "-f", "pytorch", "compare", "-i", "compare.json", "-o", output, "-s", cwd=output)
        ended = "msprobe compare ends successfully"
        assert ended in said
        (sheet,) = output.glob("compare_result_*.xlsx")
        # Read where it was written: openpyxl is part of that environment, not of ours.
        convert = "import pandas, sys; pandas.read_excel(sys.argv[1]).to_csv(sys.argv[2], index=False)"
        table = output / "sheet.csv"
        subprocess.run(
            [str(python_of(version)), "-c", convert, str(sheet), str(table)],
            env=clean_environment(), check=True,
        )  # fmt: skip
    else:
        said = run_command(
            version, "compare", "-tp", candidate.folder / "dump.json", "-gp", reference.folder / "dump.json",
            "-o", output, cwd=output,
        )  # fmt: skip
        ended = "msprobe compare ends successfully"
        assert ended in said
        (table,) = output.glob("compare_result_*.csv")
    with table.open(newline="") as file:
        return list(csv.DictReader(file))


def value_rows(setting: Setting, rank: Rank) -> set[str]:
    """Names of the entries that must have rows in a sheet."""
    return {name for name, entry in rank.data.items() if not may_be_missing(setting, name, entry)}


def entry_of(row_name: str, entries: set[str]) -> str | None:
    """The entry that a row such as `Functional.linear.0.forward.input.0` belongs to."""
    name = row_name
    while name and name not in entries:
        name = name.rpartition(".")[0]
    return name or None


@pytest.mark.parametrize(("program", "level", "task", "summary_mode"), CASES)
def test_compare_pairs_our_dump_with_its_own(
    version: str, program: str, level: str, task: str, summary_mode: str, recorded: Recorded, tmp_path: Path
) -> None:
    setting = Setting(version, program, level, task, summary_mode)
    reference, ours = recorded(setting)[0], recorded(replace(setting, tool=OURS))[0]
    rows = compare(version, ours, reference, tmp_path / "out")
    paired = {row["Bench Name"] for row in rows if row["NPU Name"] == row["Bench Name"]}
    entries = set(reference.data)
    expected = value_rows(setting, reference)
    if version == "26.2.0":
        # Its parameter gradients carry a number, which the unnumbered name of 8.1.1 does not match.
        expected = {name for name in expected if ".parameters_grad" not in name or name in ours.data}
    assert expected == {entry_of(name, entries) for name in paired} & expected
    if task == "tensor":
        cosines = [float(row["Cosine"]) for row in rows if row["Cosine"].replace(".", "", 1).isdigit()]
        assert cosines
        assert min(cosines) > 0.9999


@pytest.mark.parametrize(("program", "level", "task", "summary_mode"), [*CASES, *PECULIAR])
def test_compare_finds_our_dump_equal_to_itself(
    version: str, program: str, level: str, task: str, summary_mode: str, recorded: Recorded, tmp_path: Path
) -> None:
    ours = recorded(Setting(OURS, program, level, task, summary_mode))[0]
    rows = compare(version, ours, ours, tmp_path / "out")
    entries = set(ours.data)
    named = {entry_of(row["NPU Name"], entries) for row in rows}
    silent = {name for name, entry in ours.data.items() if not any(entry.values())}
    assert entries - silent <= named
    assert all(row["NPU Name"] == row["Bench Name"] for row in rows)
    if task == "statistics":
        # 8.1.1 leaves the result of an unremarkable row of statistics blank.
        assert {row["Result"].lower() for row in rows} <= ({"pass", ""} if version == "8.1.1" else {"pass"})


def graph_nodes(version: str, candidate: Rank, reference: Rank | None, output: Path) -> set[str]:
    """Run the published graph builder; return the names of the candidate's nodes."""
    output.mkdir()
    if version == "8.1.1":
        asked = {"npu_path": str(candidate.folder), "is_print_compare_log": True}
        if reference is not None:
            asked["bench_path"] = str(reference.folder)
        (output / "graph.json").write_text(json.dumps(asked))
        run_command(version, "-f", "pytorch", "graph", "-i", "graph.json", "-o", output, cwd=output)
        (result,) = output.glob("*.vis")
        content = json.loads(result.read_text())
        return set(content.get("NPU", content)["node"])
    against = ["-gp", reference.folder] if reference is not None else []
    run_command(version, "graph_visualize", "-tp", candidate.folder, *against, "-o", output, cwd=output)
    (result,) = output.glob("*.vis.db")
    with sqlite3.connect(result) as database:
        rows = database.execute("select node_name from tb_nodes where data_source = 'NPU'").fetchall()
    return {name for (name,) in rows}


GRAPHS = [(program, level, against) for program in PROGRAMS for level in ("L0", "mix") for against in AGAINST]


@pytest.mark.parametrize(("program", "level", "against"), [*GRAPHS, *((case[0], "mix", "alone") for case in PECULIAR)])
def test_graph_builder_shows_every_module_and_call(
    version: str, program: str, level: str, against: str, recorded: Recorded, tmp_path: Path
) -> None:
    setting = Setting(version, program, level)
    ours = recorded(replace(setting, tool=OURS))[0]
    other = {"alone": None, "itself": ours, "reference": recorded(setting)[0]}[against]
    nodes = graph_nodes(version, ours, other, tmp_path / "out")
    assert set(ours.construct) <= nodes
