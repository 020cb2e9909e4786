"""A text remembers what it is made of: it has a code and arguments, and a Chinese text of the same values."""

from __future__ import annotations

import pickle
import re
from typing import get_args, get_type_hints

import pytest

from msprobe.diagnose import evidence
from msprobe.diagnose.findings import Verdict
from msprobe.messages import Wording, arguments_of, code_of, coded, in_both, in_language, joined, said, with_first
from msprobe.messages.languages import language
from msprobe.messages.words import WORDS
from msprobe.report import phrases
from msprobe.report.counts import counts

_LETTERS = re.compile(r"[A-Za-z]{2,}")


def test_every_fact_has_a_chinese_label() -> None:
    """Each key that a fact brings is a list, a field of its own words, or a label."""
    keys = {*evidence.OneSide().json(), *evidence.ResultFact(1.0, 1.0).json()}
    keys |= {*evidence.Setting(1, 2, "lr").json(), *evidence.Because("tie").json(), *evidence.OtherArguments(()).json()}
    keys |= {what for kind in (evidence.NamedFact, evidence.Listed) for what in _names_of(kind)}
    elsewhere = phrases._SAID_ELSEWHERE
    assert {key for key in keys - elsewhere if key.replace("_", " ") not in WORDS} == set()


def _names_of(kind: type) -> tuple[str, ...]:
    return get_args(get_type_hints(kind)["what"])


def test_a_wording_is_its_english_text_to_everybody_and_keeps_what_it_was_made_of() -> None:
    inner = said("of-call", "output.0", "Torch.add.1.forward")
    text = "first: " + said("argument-is", inner, 1, 2) + joined("; ", [" a", inner])
    assert text.startswith("first: output.0 of Torch.add.1.forward is 1")
    expected = "first: Torch.add.1.forward 的 output.0 为 1，标杆侧为 2 a；Torch.add.1.forward 的 output.0"
    assert in_language(text, "zh") == expected
    assert in_language(pickle.loads(pickle.dumps(text)), "zh") == expected
    assert in_language(phrases.clean(said("made-by", "a\x1b")), "zh") == "，由 a_ 产生"
    named = with_first(inner, "Torch.add.1.forward", "Torch.add.1.forward (in f)")
    assert named == inner.replace("Torch.add.1.forward", "Torch.add.1.forward (in f)", 1)


def test_the_code_is_that_of_the_first_message_and_the_arguments_are_those_of_all() -> None:
    text = said("extra-calls", "Torch.add.1.forward") + said("so-differs", "output.0", "Torch.mul.0.forward", "")
    assert code_of(text) == ("D209", "extra-calls")
    whole = {"calls": "Torch.add.1.forward", "slot": "output.0", "call": "Torch.mul.0.forward", "how": ""}
    assert arguments_of(text) == whole
    wrapped = said("effect-in-later-step", text, 3)
    assert (code_of(wrapped)[0], arguments_of(wrapped)["step"]) == ("D209", 3)
    (found,) = coded(["no message", wrapped])
    assert (found["code"], found["text"]) == ("D209", str(wrapped))


@pytest.mark.parametrize("text", ["a text", Wording("{}: {}", "a", 1), said("made-by", "x")])
def test_what_is_no_message_has_no_code(text: str) -> None:
    assert code_of(text) == ("", "")


def test_a_message_wants_all_its_values() -> None:
    with pytest.raises(ValueError, match="shorter"):
        said("argument-differs", "Torch.add.1.forward")


def test_a_name_that_is_a_word_stays_a_name() -> None:
    assert in_both(said("of-call", "input", "module")) == {"en": "input of module", "zh": "module 的 input"}


def test_what_was_compared_is_said_without_a_word_of_english() -> None:
    summary = {"steps_compared": 1, "steps_in_common": 3, "ranks": 1, "pairs": 9}
    summary |= {"same": 4, "rounding": 2, "explained": 2, "unexplained": 1}
    (line, *_) = counts(Verdict("diverged", "candidate", "reference", summary=summary))
    found = in_both(line)
    assert isinstance(found, dict)
    assert set(_LETTERS.findall(found["zh"])) <= {"step", "rank"}


@pytest.mark.parametrize(
    ("variables", "expected"),
    [
        ({}, "en"),
        ({"LANG": "zh_CN.UTF-8"}, "zh"),
        ({"LANG": "zh_CN.UTF-8", "LC_ALL": "C"}, "en"),
        ({"MSPROBE_LANG": "en", "LANG": "zh_CN.UTF-8"}, "en"),
        ({"MSPROBE_LANG": "zh", "LANG": "en_US.UTF-8"}, "zh"),
        ({"LANG": "de_DE.UTF-8"}, "en"),
    ],
)
def test_the_language_is_that_of_the_variable_or_of_the_locale(
    monkeypatch: pytest.MonkeyPatch, variables: dict[str, str], expected: str
) -> None:
    for name in ("MSPROBE_LANG", "LC_ALL", "LC_MESSAGES", "LANG"):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert language() == expected


@pytest.mark.parametrize("name", ["candidate", "reference"])
def test_a_folder_keeps_its_name_where_it_is_also_a_word(name: str) -> None:
    assert f'"{name}"' in in_language(said("dump-missing", name), "zh")
    assert name not in in_language(said("interrupted-in-step", name, 0), "zh")
