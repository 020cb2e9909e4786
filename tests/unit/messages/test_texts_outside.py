"""Texts are made by the catalogue, and tests know them by code: what is not so yet is counted, and becomes less."""

from __future__ import annotations

import ast
import io
import re
import tokenize
from functools import cache

import pytest
from text_counts import ROOT, counts, known

from msprobe.messages import ENTRIES
from msprobe.messages.words import WORDS


@pytest.mark.parametrize(
    ("folder", "advice"),
    [
        ("src", "make the text a message: said('its-name', value, ...), see docs/adding-a-finding.md"),
        ("tests", "assert the code and the arguments (finding.code, said(...)), not the sentence"),
    ],
)
def test_no_file_has_more_of_them_than_before(folder: str, advice: str) -> None:
    written = known(folder)
    more = {file: number for file, number in counts(folder).items() if number > written.get(file, 0)}
    assert more == {}, f"{advice}; these files have more than tests/text_counts*.json allow"


#: Words for which the field has better ones.
_BANNED = re.compile(
    r"\b(told|tell|tells|telling|accus\w*|guilty|victims?|astray|arrived?|arrives|what goes in|goes in|"
    r"(?<!choose )(?<!give )(?<!to )(?<!of )another (?!(?:call|rank|process|"
    r"other|one (?:of|on)|name|folder|place|device|layout)\b)\w+|"
    r"(?:will|they|runs|trainings|dumps|both|where \w+) part\b|parts (?:from|company))",
    re.IGNORECASE,
)


@pytest.mark.parametrize("language", ["en"])
def test_no_message_has_a_word_that_has_a_better_one(language) -> None:
    found = {
        name: _BANNED.findall(entry.text(language))
        for name, entry in ENTRIES.items()
        if _BANNED.search(entry.text(language))
    }
    assert found == {}
    assert [text for text in WORDS if _BANNED.search(text)] == []


#: Chinese texts have one word for each side, and for recording.
_OTHER_WORDS = re.compile("候选(?!值)|待测|基准侧|参考侧|归约")


def test_the_chinese_texts_use_one_word_for_one_thing() -> None:
    assert [name for name, entry in ENTRIES.items() if _OTHER_WORDS.search(entry.chinese)] == []
    assert [text for text in WORDS.values() if _OTHER_WORDS.search(text)] == []


@cache
def _bad_words_and_names() -> tuple[list[str], list[str]]:
    """Of ``src``, which is walked once for both tests: banned words in ``raise``, and names that hold nothing."""
    words, names = [], []
    for file in sorted((ROOT / "src").rglob("*.py")):
        name_of_file = file.relative_to(ROOT)
        for node in ast.walk(ast.parse(file.read_text("utf-8"))):
            if isinstance(node, ast.Raise) and node.exc is not None:
                for text in ast.walk(node.exc):
                    if isinstance(text, ast.Constant) and isinstance(text.value, str) and _BANNED.search(text.value):
                        words.append(f"{name_of_file}:{text.lineno}: {text.value[:80]}")
            for name in _names_in(node):
                if _EMPTY_NAMES.fullmatch(name) and name not in _PUBLIC_NAMES:
                    names.append(f"{name_of_file}:{getattr(node, 'lineno', '')}: {name}")
    return words, names


def test_texts_of_the_source_have_no_banned_words_where_users_meet_them() -> None:
    """In `raise` and in the log, of what is not in the catalogue yet; counted as the others are."""
    assert _bad_words_and_names()[0] == []


def test_names_say_what_they_hold() -> None:
    assert _bad_words_and_names()[1] == []


#: Of names, comments and docstrings: they have the words of the field, too. Gradients do arrive.
_BANNED_IN_CODE = re.compile(
    r"(?<![a-z])(told|tell|tells|telling|accus(?:e|es|ed|ing)|guilty|victims?|astray)(?![a-z])|what (?:goes|came) in\b",
    re.IGNORECASE,
)
#: A method of files; names in JSON that programs read.
_NAMES_OF_OTHERS = {"tell"}


def test_names_and_comments_have_the_words_of_the_field() -> None:
    """Each file once, without a process: names, comments and docstrings of ``src``."""
    bad = []
    for file in sorted((ROOT / "src").rglob("*.py")):
        text = file.read_text("utf-8")
        if not _BANNED_IN_CODE.search(text):
            continue
        prose = [
            (token.start[0], token.string)
            for token in tokenize.generate_tokens(io.StringIO(text).readline)
            if token.type == tokenize.COMMENT or (token.type == tokenize.NAME and token.string not in _NAMES_OF_OTHERS)
        ]
        prose += [
            (node.lineno, node.value.value)
            for node in ast.walk(ast.parse(text))
            if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
        ]
        bad += [
            f"{file.relative_to(ROOT)}:{line}: {found[0]}"
            for line, each in prose
            if (found := _BANNED_IN_CODE.search(each))
        ]
    assert bad == []


#: Names that say nothing of what they hold. Constants and types have other rules.
_EMPTY_NAMES = re.compile(r"_*(?:found|one|told|ways?|heard\w*|surroundings|of_\w+)")
#: Of the public interface (docs/rollout.md): they stay as they are.
_PUBLIC_NAMES = {"of_model", "of_state_dict", "of_megatron"}


def _names_in(node: ast.AST) -> list[str]:
    """The names that a node of a program gives to something, or uses."""
    if isinstance(node, ast.Name):
        return [node.id]
    if isinstance(node, ast.Attribute):
        return [node.attr]
    if isinstance(node, (ast.arg, ast.keyword)):
        return [node.arg or ""]
    if isinstance(node, (ast.Global, ast.Nonlocal)):
        return node.names
    return [getattr(node, "asname", None) or getattr(node, "name", None) or ""]


#: Public classes of one name in two rooms, as they still are. Only to become fewer: a reader takes one for the other.
_CLASSES_OF_ONE_NAME = set(
    """
    Attention Call Event Exchanges Finding GradientProbe Gradients Groups Lockstep Operators OptimizerSteps
    Origin Pairs Probe RankFolder Record RecordedStep Regions Session Settings Sink Step StepFacts
    Steps Structure Targets TensorValues Tensors Thresholds Values Watch WatchedModule Watcher Written
    """.split()
)


def test_a_class_has_a_name_of_its_own() -> None:
    rooms: dict[str, set[str]] = {}
    package = ROOT / "src" / "msprobe"
    for file in package.rglob("*.py"):
        for name in re.findall(r"^class ([A-Za-z]\w*)", file.read_text("utf-8"), re.MULTILINE):
            rooms.setdefault(name, set()).add(file.relative_to(package).parts[0])
    assert {name for name, places in rooms.items() if len(places) > 1} == _CLASSES_OF_ONE_NAME
