"""Help is in English and in Chinese: each option, group and exit status, and what argparse says of a wrong line."""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterator

import pytest
from support.row_by_row import for_each

from msprobe.cli import commands, family_help, main, parse_shell, top_help, top_parser
from msprobe.cli.command import Command
from msprobe.cli.parser import Parser
from msprobe.messages import in_language

COMMANDS = commands.COMMANDS
#: Three words in a row are English; names of files, fields and dtypes are not.
_ENGLISH = re.compile(r"(?<![\w./-])[a-z]{2,} [a-z]{2,} [a-z]{2,}(?![\w./(-])")
_CHINESE = re.compile("[\u3000-\u9fff]")


def texts_of(parser: argparse.ArgumentParser) -> Iterator[tuple[str, str]]:
    """All texts that a parser was declared with, and where each stands."""
    for action in parser._actions:
        if action.help is not argparse.SUPPRESS:
            yield "/".join(action.option_strings) or action.dest, action.help or ""
    for group in parser._action_groups:
        if group.title not in ("positional arguments", "options"):
            yield "group", group.title or ""
        yield "group", group.description or "dump.json"
    yield "description", parser.description or ""
    yield "epilog", parser.epilog or "dump.json"


def lacking(texts: Iterator[tuple[str, str]]) -> list[tuple[str, str]]:
    """Those without a Chinese text; what is one word, as a name of a file, needs none."""
    chinese = ((place, in_language(text, "zh")) for place, text in texts)
    return [(place, text) for place, text in chinese if not _CHINESE.search(text) and " " in text]


@for_each("name", COMMANDS)
def test_every_text_of_the_help_of_a_command_has_both_languages(name: str) -> None:
    parser = commands.parser_of(COMMANDS[name])
    assert lacking(texts_of(parser)) == []
    assert all(text for _, text in texts_of(parser)), "an option without help"


@for_each("one", COMMANDS.values())
def test_every_text_of_a_declaration_has_both_languages(one: Command) -> None:
    fields = ("purpose", "reads", "writes", "clean", "on_findings", "could_not", "sentence", "statuses")
    assert lacking((field, getattr(one, field)) for field in fields) == []


@for_each("name", parse_shell.COMMANDS)
def test_every_text_of_a_command_of_the_shell_has_both_languages(name: str) -> None:
    purpose, configure, _ = parse_shell.COMMANDS[name]
    parser = Parser(prog=f"parse {name}", description=purpose)
    configure(parser)
    assert lacking(texts_of(parser)) == []


@pytest.mark.parametrize("name", ["", "monitor", *COMMANDS])
def test_the_help_is_in_the_language_that_is_asked_for(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def shown() -> str:
        if name in COMMANDS:
            return commands.parser_of(COMMANDS[name]).format_help()
        return family_help(name) if name else top_help(True)

    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.setenv("MSPROBE_LANG", "zh")
    chinese = shown()
    assert _ENGLISH.findall(re.sub(r"^用法.*?\n\n|msprobe completion \w+", "", chinese, flags=re.DOTALL)) == []
    assert chinese.startswith("用法：msprobe")
    monkeypatch.setenv("MSPROBE_LANG", "en")
    english = shown()
    assert not _CHINESE.search(english)
    assert english.startswith("usage: msprobe")


def test_no_line_of_a_chinese_help_is_wider_than_the_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    from msprobe.messages.lines import columns

    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("MSPROBE_LANG", "zh")
    for one in COMMANDS.values():
        _, _, behind_usage = commands.parser_of(one).format_help().partition("\n\n")
        wide = [line for line in behind_usage.splitlines() if columns(line) > 80 and _CHINESE.search(line)]
        assert wide == [], one.name


def parser() -> Parser:
    """Options of each sort."""
    found = Parser(prog="msprobe x")
    found.add_argument("--one")
    found.add_argument("--two", nargs=2)
    found.add_argument("--some", nargs="+")
    found.add_argument("--number", type=int)
    found.add_argument("--share", type=float)
    found.add_argument("--word", choices=("first", "second"))
    either = found.add_mutually_exclusive_group()
    either.add_argument("--left", action="store_true")
    either.add_argument("--right", action="store_true")
    return found


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (["--one"], "U302"),
        (["--two", "a"], "U302"),
        (["--some"], "U302"),
        (["--number", "many"], "U302"),
        (["--share", "much"], "U302"),
        (["--word", "frist"], "U302"),
        (["--left", "--right"], "U302"),
        (["--left=1"], "U302"),
        (["--none"], "U301"),
        (["more"], "U303"),
    ],
)
@pytest.mark.parametrize("language", ["en", "zh"])
def test_what_argparse_says_of_a_wrong_option_is_a_message_in_both_languages(
    words: list[str], code: str, language: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MSPROBE_LANG", language)
    with pytest.raises(SystemExit) as ended:
        parser().parse(words, intermixed=False)
    said = capsys.readouterr().err
    assert ended.value.code == 2
    assert said.endswith(f"[{code}]\n")
    assert bool(_CHINESE.search(said)) is (language == "zh")
    assert language == "en" or not re.search(r"[a-z]{2,} [a-z]{2,} [a-z]{2,}", said)


@pytest.mark.parametrize(("words", "code"), [(["summary"], "U304"), (["monitor", "x"], "U135"), (["sumary"], "U135")])
def test_a_line_without_what_it_needs_is_answered_in_chinese(
    words: list[str], code: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MSPROBE_LANG", "zh")
    try:
        status: object = main(words)
    except SystemExit as ended:
        status = ended.code
    said = capsys.readouterr().err
    assert status == 2
    assert said.endswith(f"[{code}]\n")
    assert _CHINESE.search(said)


def test_one_of_several_that_is_required_is_a_message_too(capsys: pytest.CaptureFixture[str]) -> None:
    found = Parser(prog="msprobe x")
    either = found.add_mutually_exclusive_group(required=True)
    either.add_argument("--left", action="store_true")
    either.add_argument("--right", action="store_true")
    with pytest.raises(SystemExit):
        found.parse([], intermixed=False)
    assert capsys.readouterr().err.endswith("[U305]\n")


def test_the_options_before_a_command_have_both_languages() -> None:
    assert lacking(texts_of(top_parser())) == []
