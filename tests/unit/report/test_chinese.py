"""Everything that a finding, a headline or a note says has a Chinese text, made of the same values."""

from __future__ import annotations

import ast
import pickle
import re
import string
from pathlib import Path
from typing import get_args, get_type_hints

import pytest

import msprobe
from msprobe.diagnose import evidence
from msprobe.diagnose.check import CHECKS
from msprobe.diagnose.findings import _BY_CAUSE, KINDS, Verdict
from msprobe.diagnose.wording import Wording, joined, said_in, with_first
from msprobe.report import advice, check_text, phrases
from msprobe.report.chinese import PHRASES, in_both
from msprobe.report.counts import counts

SOURCE = Path(msprobe.__file__).parent
_LETTERS = re.compile(r"[A-Za-z]{2,}")


def templates() -> dict[str, str]:
    """The wordings of the program, and the file of each; those of punctuation and values alone excepted."""
    found = {}
    for file in sorted(SOURCE.rglob("*.py")):
        text = file.read_text("utf-8")
        for node in ast.walk(ast.parse(text)) if "Wording" in text else ():
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "Wording":
                first = node.args[0]
                if isinstance(first, ast.Constant) and _LETTERS.search(re.sub(r"\{[^}]*\}", "", first.value)):
                    found[first.value] = str(file.relative_to(SOURCE))
    return found


def values_of(template: str) -> dict[int, str]:
    """Which values a template takes, and how each is written."""
    found: dict[int, str] = {}
    for _, name, spec, conversion in string.Formatter().parse(template):
        if name is not None:
            found[int(name) if name else len(found)] = f"{conversion}:{spec}"
    return found


def test_every_wording_has_a_chinese_one() -> None:
    found = templates()
    assert len(found) > 250
    assert {template: file for template, file in found.items() if template not in PHRASES} == {}


def test_a_chinese_text_takes_values_of_the_english_one_and_writes_numbers_alike() -> None:
    for english, chinese in PHRASES.items():
        if "{mesh" in english:
            continue  # what to write into a file: no template
        taken, given = values_of(chinese), values_of(english)
        assert taken.items() <= given.items(), english


@pytest.mark.parametrize(
    "texts",
    [
        pytest.param(KINDS.values(), id="kinds"),
        pytest.param(_BY_CAUSE.values(), id="kinds-by-cause"),
        pytest.param([*advice.ADVICE.values(), *advice.BY_CAUSE.values(), advice.BY_STATISTICS], id="advice"),
        pytest.param([*phrases.HEADLINES.values(), *check_text.HEADLINES.values()], id="headlines"),
        pytest.param([check.text for check in CHECKS], id="checks"),
        pytest.param([*check_text.ADVICE.values(), *check_text.BY_CAUSE.values()], id="advice-of-checks"),
        pytest.param([*phrases._DIRECTIONS.values(), *phrases._PHASES.values()], id="places"),
        pytest.param(phrases._LISTS.values(), id="lists"),
    ],
)
def test_every_kind_has_a_chinese_text(texts: list[str]) -> None:
    assert [text for text in texts if text not in PHRASES] == []


def test_every_cause_has_advice_in_chinese_or_that_of_its_kind() -> None:
    for cause in get_args(evidence.Cause):
        text = advice.BY_CAUSE.get(cause)
        assert text is None or in_both(text) != text, cause


def test_every_fact_has_a_chinese_label() -> None:
    """Each key that a fact brings is a list, a field of its own words, or a label."""
    keys = {*evidence.Effect(1.0, 1.0).json(), *evidence.NoEffect(1, 0.0).json(), *evidence.EffectLater(1).json()}
    keys |= {*evidence.OneSide().json(), *evidence.Movement(0.1, 2.0).json(), *evidence.Result(1.0, 1.0).json()}
    keys |= {*evidence.Setting(1, 2, "lr").json(), *evidence.Because("tie").json(), *evidence.OtherArguments(()).json()}
    keys |= {what for kind in (evidence.Named, evidence.Listed) for what in _names_of(kind)}
    told = phrases._TOLD
    assert {key for key in keys - told if key.replace("_", " ") not in PHRASES} == set()


def _names_of(kind: type) -> tuple[str, ...]:
    return get_args(get_type_hints(kind)["what"])


def test_a_wording_is_its_english_text_to_everybody_and_keeps_what_it_was_made_of() -> None:
    inner = Wording("{} of {}", "output.0", "Torch.add.1.forward")
    text = "first: " + Wording("{} differs", inner) + joined("; ", [" a", inner])
    assert text == "first: output.0 of Torch.add.1.forward differs a; output.0 of Torch.add.1.forward"
    table = {"{} of {}": "{1} 的 {0}", "{} differs": "{0} 不同", "first: ": "首先："}
    expected = "首先：Torch.add.1.forward 的 output.0 不同 a; Torch.add.1.forward 的 output.0"
    assert said_in(table, text) == expected
    assert said_in(table, pickle.loads(pickle.dumps(text))) == expected
    assert said_in(table, phrases.clean(Wording("{} differs", "a\x1b"))) == "a_ 不同"
    named = with_first(inner, "Torch.add.1.forward", "Torch.add.1.forward (in f)")
    assert named == inner.replace("Torch.add.1.forward", "Torch.add.1.forward (in f)", 1)


def test_a_name_that_is_a_word_stays_a_name() -> None:
    assert in_both(Wording("{} of {}", "input", "module")) == {"en": "input of module", "zh": "module 的 input"}


def test_what_was_compared_is_said_without_a_word_of_english() -> None:
    summary = {"steps_compared": 1, "steps_in_common": 3, "ranks": 1, "pairs": 9}
    summary |= {"same": 4, "rounding": 2, "victim": 2, "guilty": 1}
    (line, *_) = counts(Verdict("diverged", "candidate", "reference", summary=summary))
    assert line.endswith("4 the same, 2 within rounding, 2 explained by their inputs, 1 unexplained")
    said = in_both(line)
    assert isinstance(said, dict)
    assert set(_LETTERS.findall(said["zh"])) <= {"step", "rank"}
