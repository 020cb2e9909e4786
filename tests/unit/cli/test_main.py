from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

import msprobe
from msprobe.capture import native
from msprobe.cli import commands, main
from msprobe.foreign.budget import FACTOR_VARIABLE, BudgetError


@pytest.mark.parametrize("words", [[], ["-h"], ["--help"], ["-f", "pytorch"], ["-f", "pytorch", "-h"]])
def test_help_names_every_command(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    try:
        status: object = main(words)
    except SystemExit as ended:
        status = ended.code
    out = capsys.readouterr().out
    assert status == 0
    for name, one in commands.COMMANDS.items():
        assert f"  {name} " in out
        assert one.purpose in out
    assert [group for group in commands.GROUPS if f"\n{group}: " in out] == [*commands.GROUPS]
    assert not [alias for alias in commands.ALIASES if f"  {alias} " in out]


def test_further_names_are_listed_by_help_all(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["help", "--all"]) == 0
    out = capsys.readouterr().out
    assert all(f"  {alias} " in out for alias in commands.ALIASES)


@pytest.mark.parametrize("words", [["compare"], ["monitor", "diff"], ["monitor"], ["data2db"], ["run-ut"]])
def test_help_of_a_command_is_what_the_command_says(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["help", *words]) == 0
    told = capsys.readouterr().out
    with pytest.raises(SystemExit):
        main([*words, "-h"])
    assert told == capsys.readouterr().out


@pytest.mark.parametrize(
    ("unused_because", "told"),
    [("", "in use"), ("not built", "not built"), ("could not be loaded: bad.so", "could not be loaded: bad.so")],
)
def test_version_is_the_one_of_the_package_and_says_whether_the_extension_is_used(
    unused_because: str, told: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(native, "unused_because", unused_because)
    with pytest.raises(SystemExit) as ended:
        main(["--version"])
    assert ended.value.code == 0
    assert capsys.readouterr().out == f"msprobe {msprobe.__version__}\nC extension: {told}\n"


def test_a_command_like_no_other_is_answered_with_the_list(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["xyzzy"]) == 2
    assert ", ".join(commands.known_names()) in capsys.readouterr().err


def code_at_the_end(line: str) -> str:
    """The code of a message, as the command line prints it."""
    found = re.search(r"\[([A-Z]\d{3})\]$", line.rstrip("\n"))
    return found[1] if found else ""


def named_in(line: str) -> list[str]:
    """What stands in quotes."""
    return re.findall(r"'([^']*)'", line)


def wrong_usage(words: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    """What is said of a command line that cannot be understood: one line."""
    with pytest.raises(SystemExit) as ended:
        main(words)
    assert ended.value.code == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("msprobe: ")
    assert err.count("\n") == 1
    return err[len("msprobe: ") : -1]


@pytest.mark.parametrize("words", [["-f", "jax", "summary"], ["--nonsense", "run"], ["-f"]])
def test_wrong_options_are_a_usage_error(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert "(see `msprobe -h`)" in wrong_usage(words, capsys)


@pytest.mark.parametrize(
    ("words", "command", "code", "named"),
    [
        (["compare", "a", "b", "--htlm"], "compare", "U301", ["--htlm", "--html"]),
        (["compare", "--htlm", "a", "b"], "compare", "U301", ["--htlm", "--html"]),
        (["compare", "a", "b", "--out=x"], "compare", "U301", ["--out", "--output"]),
        (["compare", "-tpp", "a", "-gp", "b"], "compare", "U301", ["-tpp", "-tp"]),
        (
            ["-f", "pytorch", "compare", "-i", "x.json", "--fuzy_match"],
            "compare",
            "U301",
            ["--fuzy_match", "--fuzzy_match"],
        ),
        # What is missing beside it is not told: it is missing because of it.
        (["summary", "--debgu"], "summary", "U301", ["--debgu", "--debug"]),
        (["run", "--tsk", "statistics", "train.py"], "run", "U301", ["--tsk", "--task"]),
        (["--versoin"], "", "U301", ["--versoin", "--version"]),
        (["summary", "d", "--xyz"], "summary", "U301", ["--xyz"]),
        (["summary", "d", "e"], "summary", "U303", ["e"]),
        (["summary"], "summary", "U304", []),
        (["-f", "pytroch", "compare"], "", "U302", ["pytroch", "pytorch"]),
        (["compare", "a", "b", "--engine", "rai"], "compare", "U302", ["rai", "ray"]),
        (["compare", "a", "b", "--engine", "x"], "compare", "U302", ["x"]),
    ],
)
def test_a_slip_of_the_hand_is_answered_with_what_was_meant(
    words: list[str], command: str, code: str, named: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    found = wrong_usage(words, capsys)
    assert (code_at_the_end(found), named_in(found)) == (code, named)
    assert found.startswith(f"{command}: " if command else "")
    assert f"(see `{f'msprobe {command}'.rstrip()} -h`)" in found


@pytest.mark.parametrize(
    ("words", "code", "named"),
    [
        (["check", "d", "--only", "softmx"], "U103", ["softmx", "softmax"]),
        (["check", "d", "--skip", "xyz"], "U103", ["xyz"]),
        (["compare", "a", "b", "--fail-on", "divergd"], "U118", ["divergd", "diverged"]),
        (["compare", "a", "b", "--fail-on", "xyz"], "U118", ["xyz"]),
    ],
)
def test_a_wrong_name_in_a_list_is_answered_with_what_was_meant(
    words: list[str], code: str, named: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(words) == 2
    err = capsys.readouterr().err
    assert (code_at_the_end(err), named_in(err), err.count("\n")) == (code, named, 1)


@pytest.mark.parametrize("before", [["-f", "pytorch"], ["--framework=mindspore"], ["--debug"]])
def test_a_misspelt_command_of_the_old_form_is_answered_too(
    before: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*before, "comapre", "-i", "x.json"]) == 2
    err = capsys.readouterr().err
    assert (code_at_the_end(err), named_in(err)) == ("U135", ["comapre", "compare"])


def test_the_limit_is_an_option_of_every_command_before_and_behind_its_name(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(FACTOR_VARIABLE, raising=False)
    (tmp_path / "dump.json").write_text('{"data": {' + ", ".join(f'"r{n}": {{}}' for n in range(300)) + "}}")
    assert main(["summary", str(tmp_path)]) == 0
    for words in (["--limit", "1e-6", "summary", str(tmp_path)], ["summary", str(tmp_path), "--limit=1e-6"]):
        capsys.readouterr()
        assert main(words) == 2
        assert "--limit" in capsys.readouterr().err
        assert FACTOR_VARIABLE not in os.environ


@pytest.mark.parametrize("factor", ["0", "-1", "nan", "many", "inf", ""])
def test_a_limit_that_is_no_factor_is_wrong_usage(factor: str, capsys: pytest.CaptureFixture[str]) -> None:
    for words in ([f"--limit={factor}", "summary", "."], ["summary", ".", f"--limit={factor}"]):
        wrong_usage(words, capsys)


def test_a_limit_of_the_environment_that_is_no_factor_is_wrong_usage(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(FACTOR_VARIABLE, "many")
    assert main(["view", "."]) == 2
    assert FACTOR_VARIABLE in capsys.readouterr().err


def test_the_help_of_every_command_has_the_limit(capsys: pytest.CaptureFixture[str]) -> None:
    for name in commands.known_names():
        with pytest.raises(SystemExit):
            main([name, "-h"])
        assert "--limit" in capsys.readouterr().out, name


@pytest.mark.parametrize("problem", [MemoryError(), RecursionError(), OverflowError("int too large"), BudgetError("x")])
def test_what_only_an_input_can_cause_is_a_sentence(
    problem: Exception, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def execute(_: object) -> int:
        raise problem

    monkeypatch.setattr(commands.COMMANDS["view"].load(), "execute", execute)
    assert main(["view", "."]) == 2
    err = capsys.readouterr().err
    assert err.startswith("msprobe: ")
    assert err.count("\n") == 1
    with pytest.raises(type(problem)):
        main(["view", ".", "--debug"])
