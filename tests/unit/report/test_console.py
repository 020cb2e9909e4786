from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.coded_texts import mentions
from support.row_by_row import for_each
from unit.report.verdicts import STACK, finding, leaf, verdict

from msprobe.diagnose.findings import KINDS, Verdict
from msprobe.diagnose.verdict.conclusion import MOST_FINDINGS
from msprobe.messages import TOPICS, explained, in_language, said
from msprobe.report import phrases
from msprobe.report.console import code_lines, finding_lines, print_lines, verdict_lines, verdict_text

DIVERGED = f"{said('named-at', 'DIVERGED', '{}')}{said('in-module', 'blocks.2')}\n"


def words(text: str) -> str:
    """The text without its line breaks."""
    return " ".join(text.split())


def test_the_first_line_says_what_came_out_and_where() -> None:
    assert verdict_text(verdict(finding())).startswith(DIVERGED.format("step 3, rank 0, forward pass"))
    assert verdict_text(verdict(finding(rank="rank"))).startswith(DIVERGED.format("step 3, forward pass"))


@pytest.mark.parametrize(
    ("status", "first"),
    [
        ("agree", "AGREE: no difference beyond rounding"),
        ("harmless", said("they-differ", "", "HARMLESS", "no effect measured")),
        ("incomparable", f"CANNOT BE COMPARED: {said('no-step-in-common')}"),
    ],
)
def test_each_outcome_has_its_word(status: str, first: str) -> None:
    reason = said("no-step-in-common")
    text = verdict_text(verdict(status=status, notes=("no news", reason), reason=reason))
    assert text.splitlines()[0] == first


def test_findings_have_the_numbers_by_which_other_commands_take_them() -> None:
    several = [
        finding(harmless=True),
        finding(where="first"),
        finding(where="call 1"),
        finding(where="call 2"),
        finding(where="last"),
    ]
    text = verdict_text(verdict(*several))
    assert "  finding 2 of verdict.json\n" in text
    further = [line.split()[0] for line in text.partition("Further findings")[2].splitlines() if ". " in line[:6]]
    assert further == ["3.", "5.", "1."]
    assert "(2 alike)" in text
    assert "of verdict.json" not in verdict_text(verdict(*several[1:]))


def test_a_line_without_room_for_the_message_says_where_and_how_far() -> None:
    message = (
        "a.forward (in clip_grad_norm_): output.0 differs (relative difference 3e-05); " + "its inputs agree, " * 9
    )
    long = finding(message=message, where="a.forward, output.0", relation="by 3e-05")
    assert phrases.brief(long, 100) == "a.forward, output.0 by 3e-05"
    assert phrases.brief(long, 1000) == message
    assert phrases.brief(finding(message=message, where="a.forward"), 100) == "a.forward"


def test_nothing_is_called_rounding_where_nothing_differs() -> None:
    found = Verdict("agree", "a", "b", summary={"pairs": 7, "same": 7, "steps_in_common": 1, "steps_compared": 1})
    assert verdict_text(found).startswith(f"AGREE: {said('nothing-differs', 'recorded')}\n")


def test_the_first_line_between_layouts_says_how_many_tensors_were_compared() -> None:
    tensors = {"reassembled": 0, "invariants": 5, "whole": 250, "without_numbers": 5, "not_comparable": 370}
    summary = {"pairs": 7, "same": 7, "layouts": {"tensors": tensors}}
    found = verdict_text(Verdict("agree", "a", "b", summary=summary))
    assert found.startswith(f"AGREE in 255 of 630 tensors: {said('nothing-differs', 'compared')}\n")
    tensors |= {"without_numbers": 0, "not_comparable": 0}
    assert verdict_text(Verdict("agree", "a", "b", summary=summary)).startswith("AGREE: ")


def test_a_finding_says_where_and_shows_both_sides() -> None:
    text = verdict_text(verdict(finding()))
    assert "source     /home/me/train.py:97 in forward" in text
    assert "scores = scores * self.scale" in text
    assert "called by  /home/me/train.py:131 in step" in text
    assert "site-packages" not in text, "frames of libraries are not the user's"
    assert said("record-of-step", "609") in text
    size = said("result-differs-by", "0.004") + said("rounding-explains", "8e-06")
    assert size + said("times-the-limit", "500 times") in words(text)
    assert said("count-the-same", "its inputs are") in text


def test_digits_are_as_many_as_distinguish_the_sides() -> None:
    (row,) = [line.text for line in finding_lines(finding()) if line.text.strip().startswith("max")]
    assert row.split() == ["max", "1.5000001", "1.5"]


def test_arguments_stand_side_by_side() -> None:
    arguments = [{"slot": "input.1", "candidate": "0.33", "reference": "0.35"}]
    text = "\n".join(line.text for line in finding_lines(finding(kind="argument", evidence={"arguments": arguments})))
    assert [line.split() for line in text.splitlines() if "input.1" in line] == [["input.1", "0.33", "0.35"]]


def test_what_is_too_long_for_a_column_gets_a_line_of_its_own() -> None:
    long = "x" * 60
    arguments = [{"slot": "input.1", "candidate": long, "reference": "0.35"}]
    text = "\n".join(line.text for line in finding_lines(finding(evidence={"arguments": arguments})))
    assert f"candidate  {long}" in text
    assert "reference  0.35" in text


def test_a_difference_without_size_is_said_in_words() -> None:
    evidence = {"difference": math.inf, "candidate": leaf(Max="NaN", nan=3), "reference": leaf()}
    text = "\n".join(line.text for line in finding_lines(finding(kind="overflow", evidence=evidence)))
    assert "inf" not in text.replace("infinities", "").replace("infinity", "").replace("info", "")
    assert [line.split() for line in text.splitlines() if line.strip().startswith("NaN")] == [["NaN", "3", "0"]]


def test_of_many_findings_the_first_is_in_full_and_five_in_a_line() -> None:
    many = [finding(where=f"{'abcdefghij'[i % 10]}{'klmnopqrst'[i // 10]}, output.0") for i in range(100)]
    lines = verdict_text(verdict(*many)).splitlines()
    assert sum(line.startswith("DIVERGED") for line in lines) == 1
    numbered = [line for line in lines if line[:5].strip() in {f"{number}." for number in range(200)}]
    assert [line.split(".")[0].strip() for line in numbered] == ["2", "3", "4", "5", "6"]
    assert "  and 94 more: 94 computation" in lines
    assert len(lines) < 60


def test_a_finding_on_many_ranks_is_one_line_with_its_ranks() -> None:
    many = [finding(where="Distributed.all_reduce.0.forward, output.0", rank=rank) for rank in (0, *range(8, 60))]
    text = verdict_text(verdict(finding(rank=7), *many))
    assert "[53 ranks: 0, 8-59]" in text
    assert "and 1 more" not in text
    assert "alike" not in text


def test_a_finding_on_more_ranks_than_findings_are_kept_says_so() -> None:
    many = [finding(where="Distributed.all_reduce.0.forward, output.0", rank=rank) for rank in range(MOST_FINDINGS)]
    (line,) = (line for line in verdict_text(verdict(*many)).splitlines() if "1-99]" in line)
    assert f"[{MOST_FINDINGS - 1} " in line
    assert "ranks: 1-99]" not in line


def test_findings_that_differ_in_numbers_alone_are_one_line() -> None:
    many = [finding(where=f"Tensor.mul.{number}.forward, output.0") for number in range(50)]
    text = verdict_text(verdict(finding(), *many))
    assert "(50 alike)" in text
    assert "  3. " not in text


def test_further_findings_of_other_steps_have_their_number() -> None:
    text = verdict_text(verdict(finding(), finding(step=3, where="a, output.0"), finding(step=4, where="b, output.0")))
    lines = [line for line in text.splitlines() if line.startswith(("  2. ", "  3. "))]
    assert [line.rpartition(" [")[2] for line in lines] == ["step 3]", "step 4]"]
    text = verdict_text(verdict(finding(), finding(where="a, output.0"), finding(where="b, output.0")))
    assert "[step" not in text


def test_agreement_says_how_far_it_is_apart() -> None:
    summary = {"pairs": 7, "explained": 7, "steps_in_common": 1, "steps_compared": 1}
    found = Verdict("agree", "a", "b", summary={**summary, "largest_effect": 0.0069, "rounding_tolerance": 0.125})
    text = said("effect-at-most", "loss, gradients, weights", "0.0069", "0.12")
    assert text in words(verdict_text(found))
    nothing = Verdict("agree", "a", "b", summary={**summary, "largest_effect": 0.0, "rounding_tolerance": 0.125})
    assert not mentions(words(verdict_text(nothing)), "effect-at-most")


def test_more_that_is_apart_than_findings_is_explained() -> None:
    summary = {"pairs": 7, "unexplained": 4, "steps_in_common": 1, "steps_compared": 1}
    text = words(verdict_text(Verdict("diverged", "a", "b", findings=(finding(),), summary=summary)))
    assert "4 unexplained" in text
    assert said("calls-without-finding") in text
    one = {**summary, "unexplained": 1}
    assert said("calls-without-finding") not in words(
        verdict_text(Verdict("diverged", "a", "b", findings=(finding(),), summary=one))
    )


def test_weights_known_by_statistics_are_apart_by_that_at_least() -> None:
    evidence = {"relative_difference": 0.0079, "lower_bound": True, "candidate": leaf(), "reference": leaf()}
    text = verdict_text(verdict(finding(kind="initial_weights", evidence=evidence)))
    assert said("relative-difference", "at least 0.0079") in text
    assert "lower bound" not in text


def test_what_was_not_measured_has_no_size() -> None:
    evidence = {"relative_difference": math.inf, "reference_alone": ["Tensor.transpose.0.forward"]}
    assert "has no size" not in verdict_text(verdict(finding(kind="structure", evidence=evidence)))


def test_harmless_findings_go_behind_those_that_matter() -> None:
    text = verdict_text(verdict(finding(harmless=True, message="first but harmless"), finding(message="what matters")))
    assert words(text).index("what matters") < words(text).index("first but harmless")
    assert "(harmless)" in text


def test_no_findings_and_no_summary_are_a_verdict_too() -> None:
    for status in phrases.HEADLINES:
        assert verdict_text(Verdict(status, "a", "b")).startswith(phrases.HEADLINES[status])


def test_lines_fit_the_width() -> None:
    for width in (60, 80, 110):
        for line in verdict_lines(verdict(finding(), finding(kind="gradient", where="x")), (), width):
            assert len(line.text) <= width, line.text


def test_a_long_line_of_source_is_broken_and_not_cut() -> None:
    code = "scores = " + " + ".join(f"part_{number}" for number in range(20)) + " + last"
    stack = (f"File /home/me/train.py, line 97, in forward, \n {code}",)
    text = verdict_text(verdict(finding(stack=stack)), width=80)
    assert code in " ".join(text.split())
    assert max(map(len, text.splitlines())) <= 80


def test_only_frames_of_the_user_are_callers() -> None:
    library = "File /venv/lib/python3.11/site-packages/torch/nn/modules/module.py, line 18, in inner, \n call()"
    ours = "File /opt/msprobe/cli/run.py, line 5, in execute, \n run()"
    text = verdict_text(verdict(finding(stack=(STACK[0], library, ours))))
    assert "called by" not in text
    alone = verdict_text(verdict(finding(stack=(library, ours), evidence={})))
    assert "site-packages/torch/nn/modules/module.py:18 in inner" in " ".join(alone.split())  # better than nothing
    assert "called by" not in alone


def test_a_folder_of_the_user_may_have_our_name() -> None:
    stack = (
        "File /home/me/msprobe/train.py, line 3, in step, \n go()",
        "File /home/me/msprobe/main.py, line 9, in a, \n b",
    )
    text = verdict_text(verdict(finding(stack=stack, evidence={})))
    assert "source     /home/me/msprobe/train.py:3 in step" in text
    assert "called by  /home/me/msprobe/main.py:9 in a" in text


def test_files_to_open_are_named() -> None:
    assert verdict_text(verdict(finding()), ["out/verdict.json"]).endswith("\nOpen\n  out/verdict.json\n")


def test_every_kind_has_advice() -> None:
    assert all(explained(f"kind:{kind}", "advice") for kind in KINDS)


@for_each("cause", [name[6:] for name in TOPICS if name.startswith("cause:")])
def test_a_known_cause_has_advice_of_its_own(cause: str) -> None:
    text = " ".join(verdict_text(verdict(finding(evidence={"cause": cause}))).split())
    assert f"to do {explained(f'cause:{cause}', 'advice')}" in text
    assert "cause:" not in text


@pytest.mark.parametrize("cause", ["of another version", 3, ["clipping"], None])
def test_an_unknown_cause_gets_the_advice_of_its_kind(cause: Any) -> None:
    text = " ".join(verdict_text(verdict(finding(evidence={"cause": cause}))).split())
    assert f"to do {explained('kind:computation', 'advice')}" in text


EVIL = "a\x1b]0;owned\x07b\x9b31m\u202ec\r\nd"


@for_each("place", ["message", "where", "module", "evidence", "stack", "alternatives", "note", "path"])
def test_names_from_files_cannot_drive_the_terminal(place: str) -> None:
    more: dict[str, Any] = {place: EVIL}
    if place == "evidence":
        more = {"evidence": {EVIL: EVIL, "candidate": {"dtype": EVIL}, "reference": EVIL, "parameters": [EVIL] * 9}}
    elif place == "stack":
        more = {"stack": (EVIL, f"File {EVIL}, line 3, in {EVIL}, \n {EVIL}"), "evidence": {"source": f"{EVIL}:3"}}
    elif place == "alternatives":
        more = {"alternatives": (EVIL,)}
    shown = verdict(
        finding(**(more if place not in ("note", "path") else {})), notes=(EVIL,) if place == "note" else ()
    )
    if place == "path":
        shown = Verdict("diverged", EVIL, EVIL, shown.findings)
    text = verdict_text(shown, [EVIL] if place == "path" else [])
    assert all(letter.isprintable() for letter in text.replace("\n", "")), ascii(text)


@given(st.text(), st.text(), st.dictionaries(st.text(), st.one_of(st.none(), st.floats(), st.text(), st.integers())))
def test_any_finding_can_be_reported(message: str, where: str, evidence: dict[str, Any]) -> None:
    text = verdict_text(verdict(finding(message=message, where=where, evidence=evidence, stack=(message, where))))
    assert all(letter.isprintable() or letter == "\n" for letter in text)


def test_lines_are_as_wide_as_the_user_says(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    code = "x = " + " + ".join(["something"] * 12)
    monkeypatch.setenv("COLUMNS", "200")
    print_lines(lambda width: code_lines(code, width))
    assert capsys.readouterr().out.split("\n")[0].strip() == code
    monkeypatch.delenv("COLUMNS")
    print_lines(lambda width: code_lines(code, width))
    assert max(map(len, capsys.readouterr().out.split("\n"))) <= 80


def test_the_whole_answer_is_in_chinese_where_that_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MSPROBE_LANG", "zh")
    message = said("argument-differs", "Tensor.__mul__.1.forward", "input.1", "0.125", "0.25")
    notes = (said("interrupted-in-step", "candidate", 3),)
    text = verdict_text(verdict(finding(message=message), notes=notes))
    for english in (message, notes[0], said("record-of-step", 609), explained("kind:computation", "advice"), "Notes"):
        chinese = in_language(english, "zh")
        assert "".join(chinese.split()) in "".join(text.split())
        assert english not in words(text)
