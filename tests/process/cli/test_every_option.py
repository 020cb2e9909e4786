"""An option that is accepted does something: every option of every command has a row, which shows what it changes."""

from __future__ import annotations

import argparse
from collections.abc import Iterator

import pytest
from support.option_inputs import make_inputs
from support.option_rows import TABLES, TOP, Row, Table
from support.option_walker import Walker

from msprobe.cli import commands, top_parser

# ---------------------------------------------------------------- what there is


def _parsers() -> Iterator[tuple[str, argparse.ArgumentParser]]:
    for name, declared in commands.COMMANDS.items():
        parser = argparse.ArgumentParser(add_help=False)
        declared.load().configure(parser)
        for called in (name, *declared.aliases):
            yield called, parser


def _options(parser: argparse.ArgumentParser) -> set[frozenset[str]]:
    """The names of each option, of which one stands in the table."""
    return {
        frozenset(action.option_strings or [action.dest]) for action in parser._actions if action.dest not in ("help",)
    }


def _lacking(parser: argparse.ArgumentParser, table: Table) -> tuple[list[str], list[str]]:
    options = _options(parser)
    missing = ["/".join(sorted(names)) for names in options if not names & table.rows.keys()]
    known = set().union(*options)
    return sorted(missing), sorted(table.rows.keys() - known)


def test_every_option_of_every_command_has_a_row_and_no_row_is_of_none() -> None:
    lacking = {
        name: found for name, parser in _parsers() if any(found := _lacking(parser, TABLES.get(name, Table("", {}))))
    }
    assert not lacking, "options without a row in tests/support/option_rows.py, and rows without an option"
    assert not any(_lacking(top_parser(), TOP))
    assert TABLES.keys() == {name for name, _ in _parsers()}


# ---------------------------------------------------------------- what it changes


@pytest.fixture(scope="module")
def walker(tmp_path_factory: pytest.TempPathFactory) -> Walker:
    return Walker(tmp_path_factory.mktemp("calls"), make_inputs(tmp_path_factory.mktemp("inputs")))


#: Of each command under its own name: a further one leads to the same parser (:func:`_parsers`).
ROWS = [
    pytest.param(command, table, option, id=f"{command} {option}")
    for command, table in [*TABLES.items(), ("", TOP)]
    if command not in commands.ALIASES
    for option in table.rows
]


@pytest.mark.usefixtures("forked_workers")
@pytest.mark.parametrize(("command", "table", "option"), ROWS)
def test_an_option_changes_something_or_is_refused(walker: Walker, command: str, table: Table, option: str) -> None:
    row = table.rows[option]
    row = Row(row) if isinstance(row, str) else row
    base = table.base if row.base is None else row.base
    reaches = row.reaches or table.reaches
    line = row.instead if row.instead is not None else f"{base} {row.added}"
    if row.refused:
        done = walker.run(command, line, reaches)
        assert done.returncode in (1, 2), done
        assert (done.stdout, done.stderr.count("\n")) == ("", 1), done
        return
    (before, usual), (done, found) = walker.base(command, base, reaches), walker.seen(command, line, reaches)
    for ended in (before, done) if not row.fails else ():
        said = [text for text in ended.stderr.splitlines() if text.startswith("msprobe: ")]
        assert not [text for text in said if "reached with" not in text], (ended.args, said)
    gone = {name: value for name, value in usual.items() if found.get(name) != value}
    new = found.keys() - usual.keys()
    assert gone or new, f"{option} changes nothing"


# ---------------------------------------------------------------- options that belong to another form


@pytest.mark.parametrize(
    "line",
    [
        "compare -i {compare_file} -o out -da",
        "compare -i {compare_file} -o out -tensor_log",
        "compare -i {compare_file} -o out --rank 0",
        "compare -tp {values} -gp {values} -o out -da --xlsx",
        "compare -tp {kernel_target} -gp {kernel_golden} -o out --rank 0 -f",
        "compare -tp {values} -gp {values} -o out --consistent_check --backend fsdp --jobs 2",
        "-f mindspore compare -i {kernel_file} -o out -s",
        "run_ut -api_info {calls} -o out --ranks 2",
        "run_ut -api_info {calls} -o out --idle 5",
        "run_ut -config {online_config} -o out --repeat 3 -f",
        "multi_run_ut -config {online_config} -o out --engine ray",
        "op_generate -i {op_config} -o out --device cpu+threads=1",
        "op_generate -i {op_config} -o out --seed 5",
        "op_generate --dump {calls} --api Functional.softmax.0.backward --propagation forward -o out",
        "parse -t npy",
        "parse -o out",
        "check --list {bad}",
        "check --list --only labels",
        "monitor watch {monitored} --once --every 5",
        "view {healthy} --html page.html --port 8123",
        "view {healthy} --html page.html --no-browser",
        "view {healthy} --html page.html --jobs 2",
        "view {healthy} --html page.html --noise {longer}",
    ],
)
def test_an_option_that_would_do_nothing_here_is_refused_and_nothing_is_written(walker: Walker, line: str) -> None:
    done = walker.run("", line, "")
    assert done.returncode in (1, 2), done
    assert (done.stdout, done.stderr.count("\n")) == ("", 1), done
    assert not any((walker.folder / str(walker.count)).rglob("*.*"))
