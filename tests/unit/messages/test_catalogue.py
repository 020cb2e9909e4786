"""The catalogue: codes are there once, both languages have the same values, the source makes what the catalogue has."""

from __future__ import annotations

import ast
import re
import string
from collections import Counter
from pathlib import Path

import pytest
from message_snapshots import SNAPSHOTS, snapshot
from support.row_by_row import for_each

import msprobe
from msprobe.diagnose.check import CHECKS
from msprobe.diagnose.findings import KINDS
from msprobe.messages import ENTRIES, MESSAGES, TOPICS, find
from msprobe.messages.catalogue import _ALL, _OF_TOPICS, _PIECES
from msprobe.messages.words import WORDS

SOURCE = Path(msprobe.__file__).parent
_LETTERS = re.compile(r"[A-Za-z]{2,}")
_CODE = re.compile(r"[A-Z]\d{3}")
_NAME = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*")


def values_of(template: str) -> dict[str, str]:
    """Which values a template takes, and how each is written."""
    found: dict[str, str] = {}
    for _, name, spec, conversion in string.Formatter().parse(template):
        if name is not None:
            found[name or str(len(found))] = f"{conversion}:{spec}"
    return found


def test_no_code_and_no_name_is_there_twice() -> None:
    names = Counter(each.name for each in (*_ALL, *_PIECES, *_OF_TOPICS))
    assert [name for name, count in names.items() if count > 1] == []
    assert len(MESSAGES) == len(_ALL)
    assert [each.code for each in _ALL if not _CODE.fullmatch(each.code)] == []
    assert [each.name for each in (*_ALL, *_PIECES) if not _NAME.fullmatch(each.name)] == []


@for_each("entry", ENTRIES.values())
def test_the_chinese_text_has_values_of_the_english_one_and_writes_numbers_alike(entry) -> None:
    taken, given = values_of(entry.chinese), values_of(entry.english)
    if "{mesh" in entry.english.replace("{{", "").replace("}}", ""):
        return  # what to write into a file: no template
    assert taken.items() <= given.items()
    if entry.arguments:
        assert set(given) <= set(entry.names)
    assert entry.english
    assert entry.chinese


def test_words_have_the_same_values_in_both_languages() -> None:
    for english, chinese in WORDS.items():
        assert values_of(chinese).items() <= values_of(english).items(), english


def test_every_message_has_a_topic_and_every_kind_and_check_is_one() -> None:
    assert [each.code for each in _ALL if each.topic not in TOPICS] == []
    assert all(all(TOPICS[each.topic].advice) for each in _ALL)
    assert [kind for kind in KINDS if f"kind:{kind}" not in TOPICS] == []
    assert [check.name for check in CHECKS if f"check:{check.name}" not in TOPICS] == []


def calls_of(function: str) -> list[tuple[str, ast.Call]]:
    """The calls of a function in the source, and the file of each."""
    found = []
    for file in sorted(SOURCE.rglob("*.py")):
        text = file.read_text("utf-8")
        for node in ast.walk(ast.parse(text)) if function in text else ():
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == function:
                found.append((str(file.relative_to(SOURCE)), node))
    return found


def test_the_source_makes_messages_that_are_there_of_as_many_values_as_they_have() -> None:
    wrong = []
    for file, call in calls_of("said"):
        name, *values = call.args
        if not isinstance(name, ast.Constant) or file.startswith("messages/"):
            continue
        entry = ENTRIES.get(name.value)
        if entry is None:
            wrong.append(f"{file}:{call.lineno}: {name.value}")
        elif not any(isinstance(value, ast.Starred) for value in values):
            wanted = len(entry.names) if entry.arguments else len(values_of(entry.english)) if values else 0
            if len(values) != wanted:
                wrong.append(f"{file}:{call.lineno}: {name.value} has {len(values)} values, not {wanted}")
    assert wrong == []


def test_a_wording_that_is_no_entry_is_punctuation() -> None:
    wrong = []
    for file, call in calls_of("Wording"):
        first = call.args[0]
        if isinstance(first, ast.Constant) and _LETTERS.search(re.sub(r"\{[^}]*\}", "", first.value)):
            wrong.append(f"{file}:{call.lineno}: {first.value}")
    assert wrong == []


@pytest.mark.parametrize("wanted", ["D204", "d204", "argument-differs", "argument_differs", "ARGUMENT-DIFFERS"])
def test_a_message_is_found_by_its_code_and_by_its_name(wanted: str) -> None:
    message = find(wanted)
    assert message is not None
    assert (message.code, message.name) == ("D204", "argument-differs")


@pytest.mark.parametrize("wanted", ["D999", "made-by", "", "advice kind:data"])
def test_what_is_no_message_is_not_found(wanted: str) -> None:
    assert find(wanted) is None


@pytest.mark.parametrize("language", ["en", "zh"])
def test_all_sentences_are_those_of_the_snapshot(language) -> None:
    """To be read as a text: `python tests/message_snapshots.py` writes it anew."""
    assert (SNAPSHOTS / f"messages.{language}.txt").read_text("utf-8") == snapshot(language)
