"""What holds in every command: its options, what ``--json`` and ``--quiet`` print, and what its exit status says."""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.option_inputs import make_inputs
from support.option_rows import TABLES
from support.option_walker import Walker
from support.row_by_row import for_each

from msprobe.cli import commands, main
from msprobe.cli.spellings import LETTERS

COMMANDS = commands.COMMANDS
#: Under every name that they have.
NAMES = [name for one in COMMANDS.values() for name in (one.name, *one.aliases)]
#: Letters of commands that are not of mindstudio-probe, beyond those of all: what they were before `--jobs`.
ALSO = {"op_check": {"-n"}}

#: Of each command that looks for something: a line that finds nothing, and one that finds it, with what stands for work
#: that takes long. How `lockstep` and `confirm` answer is shown with real trainings, in tests/integration.
ANSWERS: dict[str, tuple[tuple[str, str], tuple[str, str]]] = {
    "summary": (("{healthy}", ""), ("{cut}", "")),
    "check": (("{healthy}", ""), ("{not_a_number}", "")),
    "nan_analyze": (("-i {bad} -o out", ""), ("-i {bad} -o out --fail-on found", "")),
    "compare": (("{longer} {healthy} --fail-on never", ""), ("{apart} {healthy}", "")),
    "grad_compare": (("{gradients_a} {gradients_a} -o out", ""), ("{gradients_b} {gradients_a} -o out", "")),
    "rollout": (
        ("--log-probs {engine_log_probs} {trainer_log_probs}", ""),
        ("--log-probs {engine_log_probs} {other_tokens}", ""),
    ),
    "run_ut": (
        ("-api_info {calls} -o out", "status of failed calls"),
        ("-api_info {calls} -o out --fail-on error", "status of failed calls"),
    ),
    "multi_run_ut": (
        ("-api_info {calls} -o out", "status of failed calls"),
        ("-api_info {calls} -o out --fail-on error", "status of failed calls"),
    ),
    "api_precision_compare": (
        ("-npu {npu_details} -gpu {gpu_details} -o out", ""),
        ("-npu {npu_details} -gpu {gpu_details} -o out --fail-on found", ""),
    ),
    "run_overflow_check": (
        ("-api_info {calls} -d cpu", "an overflow on one side"),
        ("-api_info {calls} -d cpu --fail-on found", "an overflow on one side"),
    ),
    "op_check": (("--ops relu --samples 1 --candidate cpu -o out", ""), ("--ops relu -o out", "samples that fail")),
    "monitor analyse": (("{alerts} -o out -s [7]", ""), ("{alerts} -o out", "")),
    "monitor diff": (("{monitored} {monitored}", ""), ("{monitored_apart} {monitored}", "")),
    "config_check": (("-c {pack_a} {pack_a} -o out", ""), ("-c {pack_a} {pack_b} -o out", "")),
    "doctor": (("", "no devices"), ("", "an error in the installation")),
}
WITH_TRAININGS = {"lockstep", "confirm"}


@pytest.fixture(scope="module")
def walker(tmp_path_factory: pytest.TempPathFactory) -> Walker:
    return Walker(tmp_path_factory.mktemp("calls"), make_inputs(tmp_path_factory.mktemp("inputs")))


# ---------------------------------------------------------------- options


def _options(name: str) -> Iterator[argparse.Action]:
    return (action for action in commands.parser_of(COMMANDS[name])._actions if action.option_strings)


@for_each("name", COMMANDS)
def test_each_option_has_a_name_of_two_dashes_and_hyphens_and_letters_mean_one_thing(name: str) -> None:
    for action in _options(name):
        names = set(action.option_strings)
        assert any(re.fullmatch(r"--[a-z0-9]+(-[a-z0-9]+)*", one) for one in names), names
        assert {one.replace("_", "-") for one in names if one.startswith("--")} <= names
        letters = {one for one in names if len(one) == 2}
        if COMMANDS[name].published:
            letters &= {"-h", "-o", "-q"}
        assert all(set(LETTERS[one]) & names for one in letters - ALSO.get(name, set())), (name, names)
        assert action.dest not in ("num_splits", "process_num") or "--jobs" in names


#: The options that commands have in common.
COMMON = {"-o", "--output", "--jobs", "--engine", "--json", "-q", "--quiet", "--debug", "--limit", "--follow-links"}


@pytest.mark.parametrize("name", COMMANDS)
def test_an_option_that_commands_have_in_common_is_declared_in_one_place(
    monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    declare = argparse._ActionsContainer.add_argument
    places: dict[str, str] = {}

    def declared(self: argparse._ActionsContainer, *names: str, **more: Any) -> argparse.Action:
        places.update(dict.fromkeys(names, sys._getframe(1).f_globals["__name__"]))
        return declare(self, *names, **more)

    monkeypatch.setattr(argparse._ActionsContainer, "add_argument", declared)
    parser = commands.parser_of(COMMANDS[name])
    found = {one: place for one, place in places.items() if one in COMMON}
    assert {"--json", "--quiet"} <= found.keys()
    assert set(found.values()) == {"msprobe.cli.common"}
    assert COMMON & parser._option_string_actions.keys() == found.keys(), "a spelling that is no declaration"


@for_each("name", COMMANDS)
def test_the_help_shows_each_option_under_its_name_of_today_and_what_the_statuses_say(name: str) -> None:
    parser, shown = commands.parser_of(COMMANDS[name]), commands.parser_of(COMMANDS[name]).format_help()
    assert {"--json", "--quiet", "--debug", "--limit", "--follow-links"} <= parser._option_string_actions.keys()
    assert not re.search(r"^ {2,4}(-[a-z_]{2,}|--[a-z-]*_)", shown, re.MULTILINE), "an old spelling stands first"
    assert " ".join(COMMANDS[name].statuses.split()) in " ".join(shown.split())
    assert f"usage: msprobe {name}" in shown


# ---------------------------------------------------------------- what is printed


def _without_json(printed: str) -> bool:
    try:
        json.loads(printed)
    except ValueError:
        return True
    return False


@pytest.mark.usefixtures("forked_workers")
@pytest.mark.parametrize("name", NAMES)
def test_with_json_stdout_is_one_object_and_with_quiet_it_is_empty(walker: Walker, name: str) -> None:
    table = TABLES[name]
    own, program = table.base.partition(" -- ")[::2]
    behind = f" -- {program}" if program else ""
    if table.base.startswith("-- "):
        own, behind = "", f" {table.base}"
    plain = walker.run(name, table.base, table.reaches)
    answered = walker.run(name, f"{own} --json{behind}", table.reaches)
    assert isinstance(json.loads(answered.stdout), dict)
    assert answered.returncode == plain.returncode
    quiet = walker.run(name, f"{own} --quiet{behind}", table.reaches)
    assert (quiet.stdout, quiet.returncode) == ("", plain.returncode)


def test_what_could_not_be_done_is_an_object_too(walker: Walker) -> None:
    done = walker.run("summary", "/nowhere --json -", "")
    found = json.loads(done.stdout)
    assert (done.returncode, found["exit_status"], found["command"]) == (2, 2, "summary")
    assert found["error"] in done.stderr


def test_each_of_several_mistakes_keeps_its_code_and_its_arguments(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    paths = [str(tmp_path / name) for name in ("engine.json", "trainer.json")]
    assert main(["rollout", "--log-probs", *paths, "--json", "-"]) == 2
    found = json.loads(capsys.readouterr().out)
    assert [one["code"] for one in found["errors"]] == [found["code"]] * 2
    assert [path for path, one in zip(paths, found["errors"], strict=True) if path in str(one["arguments"])] == paths


# ---------------------------------------------------------------- what the exit status says


def test_each_command_that_looks_for_something_has_a_line_here() -> None:
    looks = {name for name, one in COMMANDS.items() if one.on_findings}
    assert looks == ANSWERS.keys() | WITH_TRAININGS


@pytest.mark.usefixtures("forked_workers")
@pytest.mark.parametrize("name", ANSWERS)
def test_0_is_clean_and_1_is_found(walker: Walker, name: str) -> None:
    for wanted, (line, reaches) in enumerate(ANSWERS[name]):
        done = walker.run(name, line, reaches)
        assert done.returncode == wanted, done


@pytest.mark.parametrize("name", NAMES)
def test_2_is_wrong_usage_or_an_input_that_is_not_there(walker: Walker, name: str) -> None:
    done = walker.run(name, "--no-such-option -- x" if " -- " in TABLES[name].base else "--no-such-option", "")
    assert (done.returncode, done.stdout) == (2, ""), done
    for given in sorted(set(re.findall(r"\{(\w+)\}", TABLES[name].base))):
        line = re.sub(rf"\{{{given}\}}[^ ]*", "/nowhere/missing", TABLES[name].base)
        done = walker.run(name, line, "")
        assert done.returncode == 2, (line, done)
        assert (done.stderr.count("\n"), done.stderr[:9]) == (1, "msprobe: "), (line, done)


# ---------------------------------------------------------------- two runs

#: Commands that take two runs, or what was made of two.
OF_TWO = {
    *("compare", "grad_compare", "graph_visualize", "view", "rollout", "config_check", "api_precision_compare"),
    *("monitor diff", "monitor report"),
}


def test_each_command_of_two_runs_takes_them_by_the_same_names() -> None:
    parsers = {name: commands.parser_of(one)._option_string_actions for name, one in COMMANDS.items()}
    for name in OF_TWO:
        assert {"--candidate", "--reference"} <= parsers[name].keys(), name
        assert {parsers[name][one].nargs for one in ("--candidate", "--reference")} == {None}, name


@pytest.mark.parametrize(
    ("name", "line", "same"),
    [
        ("compare", "{apart} {healthy}", "--reference {healthy} --candidate {apart}"),
        ("compare", "{apart} {healthy}", "{apart} --reference {healthy}"),
        ("grad_compare", "{gradients_b} {gradients_a} -o out", "-o out --reference {gradients_a} {gradients_b}"),
        (
            "rollout",
            "--log-probs {engine_log_probs} {trainer_log_probs}",
            "--reference {trainer_log_probs} --candidate {engine_log_probs}",
        ),
        ("monitor diff", "{monitored_apart} {monitored}", "--reference {monitored} --candidate {monitored_apart}"),
        ("config_check", "-c {pack_a} {pack_b} -o out", "--candidate {pack_b} --reference {pack_a} -o out"),
        (
            "api_precision_compare",
            "-npu {npu_details} -gpu {gpu_details} -o out",
            "--reference {gpu_details} --candidate {npu_details} -o out",
        ),
    ],
)
def test_the_doubted_run_stands_first_or_both_have_their_names(walker: Walker, name: str, line: str, same: str) -> None:
    _, seen = walker.base(name, line, "")
    _, found = walker.seen(name, same, "")
    assert {key: value for key, value in found.items() if key in seen} == seen


@pytest.mark.parametrize(
    "line",
    [
        "compare --reference {healthy}",
        "compare {apart} {healthy} --candidate {bad}",
        "compare --candidate {apart}",
        "grad_compare {gradients_a} -o out",
        "monitor diff {monitored}",
        "monitor report {monitored} {monitored} {monitored} -o page.html",
        "config_check -c {pack_a} {pack_b} --candidate {pack_a} --reference {pack_b}",
        "config_check --candidate {pack_a}",
        "config_check",
        "view --reference {healthy} --html page.html",
        "rollout --candidate {engine_log_probs}",
        "rollout --log-probs {engine_log_probs} {trainer_log_probs} --candidate {other_log_probs}",
    ],
)
def test_one_run_too_few_or_too_many_is_wrong_usage(walker: Walker, line: str) -> None:
    done = walker.run("", line, "")
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1), done


# ---------------------------------------------------------------- words


@for_each("name", COMMANDS)
def test_the_help_has_words_of_the_field(name: str) -> None:
    unwanted = r"\b(guilty|accus\w+|victim\w*|tells?|told|astray|they part|(goes|went) in|left behind)\b"
    assert not re.findall(unwanted, commands.parser_of(COMMANDS[name]).format_help())


# ---------------------------------------------------------------- output and jobs

JOBS = [name for name, one in COMMANDS.items() if "--jobs" in commands.parser_of(one)._option_string_actions]


@for_each("name", [name for name, one in COMMANDS.items() if one.writes])
def test_each_command_that_writes_takes_the_place_from_one_option(name: str) -> None:
    found = commands.parser_of(COMMANDS[name])._option_string_actions
    assert found["-o"] is found["--output"], name


@pytest.mark.parametrize("name", JOBS)
def test_no_process_at_all_is_wrong_usage(walker: Walker, name: str) -> None:
    for wrong in ("0", "-1", "many"):
        done = walker.run(name, f"{TABLES[name].base} --jobs={wrong}", TABLES[name].reaches)
        assert (done.returncode, done.stdout) == (2, ""), (wrong, done)
