"""An option that is accepted does something: every option of every command has a row, which shows what it changes."""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import importlib
import re
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from command_line import Completed, call
from option_inputs import make_inputs
from option_rows import TABLES, TOP, Row, Table

from msprobe.cli import commands, top_parser
from msprobe.coverage import Coverage
from msprobe.errors import MsprobeError

Seen = dict[str, object]


class Reached(MsprobeError):
    """Ends a command where its work would begin; the text is what that was asked for."""


# ---------------------------------------------------------------- what there is


def _parsers() -> Iterator[tuple[str, argparse.ArgumentParser]]:
    for name in commands.AVAILABLE:
        command = commands.load(name)
        parts: dict[str, tuple[str, str]] = getattr(command, "SUBCOMMANDS", {})
        for part, (module, _) in parts.items():
            yield f"{name} {part}", _configured(commands.load_part(name, module))
        if not parts:
            yield name, _configured(command)


def _configured(command: commands.Command) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(add_help=False)
    command.configure(parser)
    return parser


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
    assert not lacking, "options without a row in tests/option_rows.py, and rows without an option"
    assert not any(_lacking(top_parser(), TOP))
    assert TABLES.keys() == {name for name, _ in _parsers()}


# ---------------------------------------------------------------- what it changes


def _reached(*args: Any, **named: Any) -> Any:
    raise Reached(f"reached with {args!r} {named!r}")


def _told(*args: Any, **named: Any) -> Any:
    print("called")


class _Listening:
    """A socket that is none."""

    def __enter__(self) -> _Listening:
        return self

    def __exit__(self, *error: object) -> None:
        pass


def _failed_check(*args: Any, **named: Any) -> Any:
    ranking = SimpleNamespace(
        failed=[1],
        warned=[],
        is_error=True,
        is_warning=False,
        lines=lambda top: ["failed"][:top],
        coverage=Coverage({"forward": 1}),
    )
    return SimpleNamespace(ranking=ranking, files=SimpleNamespace(written=()), summaries=(), compared=())


#: What stands for work that takes too long here, where more than the arguments of one function count.
STAND_INS: dict[str, dict[str, Any]] = {
    "status of failed calls": {"msprobe.precheck.check:run_check": _failed_check},
    "samples that fail": {
        "msprobe.precheck.sample_check:check_samples": lambda *args: ((), _failed_check().ranking),
    },
    "no devices": {"msprobe.doctor.devices:of_devices": lambda: None},
    "browser": {
        "msprobe.view.serving:listen": lambda host, port: _Listening(),
        "msprobe.view.serving:address_of": lambda *args: "http://127.0.0.1:1/",
        "msprobe.view.serving:open_browser": _told,
        "msprobe.view.serving:serve": lambda source, listening, token, host, ready: ready(),
    },
}


@contextlib.contextmanager
def _standing_in(name: str) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        for target, function in STAND_INS.get(name, {name: _reached} if name else {}).items():
            module, _, attribute = target.partition(":")
            place: Any = importlib.import_module(module)
            *owners, last = attribute.split(".")
            for owner in owners:
                place = getattr(place, owner)
            patch.setattr(place, last, function)
        yield


def _plain(text: str, folder: Path) -> str:
    """Without what differs from call to call: the folder, addresses of objects, times."""
    text = text.replace(str(folder), "HERE")
    return re.sub(r"0x[0-9a-f]{6,}|\d{4}-\d\d-\d\d \d\d:\d\d:\d\d|\d{8,}|\d+\.\d+ s", "#", text)


def _seen(done: Completed, folder: Path) -> Seen:
    """What a command answered, showed and wrote."""
    found: Seen = {"status": done.returncode}
    found.update({f"out {line}": 1 for line in _plain(done.stdout, folder).splitlines()})
    found.update({f"err {line}": 1 for line in _plain(done.stderr, folder).splitlines()})
    for file in sorted(folder.rglob("*")):
        if file.is_file():
            name = _plain(str(file.relative_to(folder)), folder)
            found[f"file {name}"] = hashlib.sha256(_content(file, folder)).hexdigest()
    return found


def _content(file: Path, folder: Path) -> bytes:
    data = file.read_bytes()
    try:
        return _plain(data.decode(), folder).encode()
    except UnicodeDecodeError:
        return data


class Walker:
    """Calls command lines, each in a folder of its own."""

    def __init__(self, folder: Path, inputs: dict[str, str]) -> None:
        self.folder = folder
        self.inputs = inputs
        self._known: dict[tuple[str, str, str], Seen] = {}
        self.count = 0

    def run(self, command: str, line: str, reaches: str) -> Completed:
        self.count += 1
        place = self.folder / str(self.count)
        place.mkdir()
        front, _, own = line.rpartition(f"{command} ")
        words = [word.format(**self.inputs) for word in f"{front} {command} {own}".split()]
        with _standing_in(reaches):
            try:
                return call(*words, cwd=place)
            except MsprobeError as raised:  # with --debug
                return Completed(words, 1, "", f"raised {raised!r}")

    def seen(self, command: str, line: str, reaches: str) -> Seen:
        done = self.run(command, line, reaches)
        return _seen(done, self.folder / str(self.count))

    def base(self, command: str, line: str, reaches: str) -> Seen:
        """What is the same each time."""
        key = command, line, reaches
        if key not in self._known:
            first, second = self.seen(*key), self.seen(*key)
            self._known[key] = {name: value for name, value in first.items() if second.get(name) == value}
        return self._known[key]


@pytest.fixture(scope="module")
def walker(tmp_path_factory: pytest.TempPathFactory) -> Walker:
    return Walker(tmp_path_factory.mktemp("calls"), make_inputs(tmp_path_factory.mktemp("inputs")))


ROWS = [
    pytest.param(command, table, option, id=f"{command} {option}")
    for command, table in [*TABLES.items(), ("", TOP)]
    for option in table.rows
]


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
    for one in (base, line) if not row.fails else ():
        said = [text for text in walker.run(command, one, reaches).stderr.splitlines() if text.startswith("msprobe: ")]
        assert not [text for text in said if "reached with" not in text], (one, said)
    usual, found = walker.base(command, base, reaches), walker.seen(command, line, reaches)
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
        "nan_analyze -i {bad} -o out --json -",
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
