"""The planted bugs are what they say: the programs can be edited, and the dumps part where the truth says."""

from __future__ import annotations

import ast
import dataclasses
from collections.abc import Iterator
from pathlib import Path

import pytest

from bugs import look, truth
from bugs.clean import CLEAN
from bugs.layouts import LAYOUTS
from bugs.patterns import PATTERNS
from bugs.planting import Answer, Edit, Pattern, draw, edited, line_number, programs
from bugs.record import MODES, record
from bugs.under_noise import pairs_under_noise, under_noise

EVERY = {**PATTERNS, **CLEAN}
#: Of each class some, for every run of the tests; all of them take minutes.
SOME = ("F05", "B01", "O03", "X24", "T19", "V09", "R08", "C05", "K01", "Z04")


def faults_of_programs(pattern: Pattern, number: int) -> Iterator[str]:
    """What is wrong with the two programs of a draw: they parse, differ by what is planted, and have the lines that the
    truth names.
    """
    drawn = draw(pattern, number)
    candidate, reference = programs(pattern, drawn)
    for program in (candidate, reference):
        ast.parse(program)
    if (candidate != reference) != bool(pattern.plant):
        yield "equal programs" if pattern.plant else "different programs"
    for answer in pattern.truth:
        if answer.line is not None:
            line_number(candidate if answer.side == "candidate" else reference, drawn.fill(answer.line))


def test_pairs_of_programs_differ_by_what_is_planted() -> None:
    found = []
    for name, pattern in {**EVERY, **LAYOUTS}.items():
        for number in range(3):
            try:
                found += [f"{name}:{number}: {fault}" for fault in faults_of_programs(pattern, number)]
            except (SyntaxError, ValueError) as problem:  # no program, or no such line
                found.append(f"{name}:{number}: {problem}")
    assert found == []


def test_a_pair_that_is_not_what_it_says_is_found() -> None:
    planted = PATTERNS["F05"]
    nothing = dataclasses.replace(planted, plant=tuple(Edit(edit.old, edit.old) for edit in planted.plant), truth=())
    assert list(faults_of_programs(nothing, 0)) == ["equal programs"]
    elsewhere = dataclasses.replace(planted, truth=(Answer(frozenset({"argument"}), line="stands nowhere"),))
    with pytest.raises(ValueError, match="stands nowhere"):
        list(faults_of_programs(elsewhere, 0))


def test_draws_differ() -> None:
    same, other = [], []
    for name, pattern in PATTERNS.items():
        drawn = [draw(pattern, number) for number in range(8)]
        same += [name] * (len({tuple(sorted((*one.settings.items(), *one.words.items()))) for one in drawn}) <= 4)
        other += [name] * (drawn[3] != draw(pattern, 3))
    assert (same, other) == ([], [])


@pytest.mark.parametrize("name", SOME)
def test_recorded_pairs_part_where_the_truth_says(name: str, tmp_path: Path) -> None:
    pair = record(EVERY[name], draw(EVERY[name], 0), "digest", tmp_path / "pair")
    assert look.verified(pair) == []


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "number"), [(name, number) for name, one in EVERY.items() for number in range(1 if one.large else 3)]
)
def test_every_pair_parts_where_the_truth_says(name: str, number: int, tmp_path: Path) -> None:
    pair = record(EVERY[name], draw(EVERY[name], number), "digest", tmp_path / "pair")
    assert look.verified(pair) == []


@pytest.mark.parametrize("mode", MODES)
def test_each_mode_records_what_it_says(mode: str, tmp_path: Path) -> None:
    pair = record(PATTERNS["F05"], draw(PATTERNS["F05"], 0), mode, tmp_path / "pair")
    folder = pair.dump("candidate") / "step0" / "rank"
    text = (folder / "dump.json").read_text()
    assert ('"data_name"' in text) == (mode == "tensor")
    assert text.count("xxh3:") > 1000 or mode == "statistics"
    assert (folder / "dump_tensor_data").is_dir() == (mode == "tensor")


def test_an_edit_without_a_place_is_an_error() -> None:
    drawn = draw(PATTERNS["F05"], 0)
    with pytest.raises(ValueError, match=" 2 times, not 1"):
        edited("a b a", (Edit("a", "c"),), drawn)
    with pytest.raises(ValueError, match="@unknown"):
        edited("a", (Edit("a", "@unknown"),), drawn)


class TestAnswers:
    """What counts as right."""

    resolved = truth.Resolved(frozenset({"argument"}), frozenset({(0, "", "Tensor.__mul__.3.forward")}), 0, None)
    right = {"kind": "argument", "entry": "Tensor.__mul__.3.forward", "step": 0, "rank": "rank"}

    def test_the_call_is_right_with_and_without_its_argument(self) -> None:
        assert self.resolved.accepts(self.right)
        assert self.resolved.accepts({**self.right, "entry": "Tensor.__mul__.3.forward.input.1"})

    @pytest.mark.parametrize(
        "change",
        [
            {"kind": "computation"},
            {"entry": "Tensor.__mul__.30.forward"},
            {"entry": "Tensor.__mul__.3.backward"},
            {"entry": None},
            {"step": 1},
        ],
    )
    def test_another_kind_or_place_is_wrong(self, change: dict[str, object]) -> None:
        assert not self.resolved.accepts({**self.right, **change})

    def test_another_rank_is_wrong(self) -> None:
        on_rank_1 = truth.Resolved(frozenset({"collective"}), frozenset({(0, "1", "a.0.forward")}), 0, None)
        finding = {"kind": "collective", "entry": "a.0.forward", "step": 0}
        assert on_rank_1.accepts({**finding, "rank": 1})
        assert not on_rank_1.accepts({**finding, "rank": 0})

    def test_a_parameter_must_be_named(self) -> None:
        named = truth.Resolved(frozenset({"initial_weights"}), frozenset(), 0, "blocks.1.q.weight")
        finding = {"kind": "initial_weights", "step": 0}
        assert named.accepts({**finding, "where": "parameter blocks.1.q.weight"})
        assert named.accepts({**finding, "where": "weight", "module": "blocks.1.q"})
        assert named.accepts({**finding, "where": "weight", "entry": "Module.blocks.1.q.Linear.forward.0"})
        assert not named.accepts({**finding, "where": "bias", "module": "blocks.1.q"})
        assert not named.accepts({**finding, "where": "parameter blocks.1.q.weights2"})

    def test_an_answer_that_names_nothing_is_an_error(self, tmp_path: Path) -> None:
        pair = record(PATTERNS["F05"], draw(PATTERNS["F05"], 0), "statistics", tmp_path / "pair")
        with pytest.raises(ValueError, match="no recorded call"):
            truth.resolve_one(pair, Answer(frozenset({"argument"}), api="nothing_like_it"))


@pytest.mark.parametrize("name", ["F05+C06L", "B01+K01", "O03+P01"])
def test_a_bug_behind_harmless_noise_is_named_first(name: str, tmp_path: Path) -> None:
    from msprobe.diagnose import compare_runs

    pattern = under_noise(name)
    pair = record(pattern, draw(pattern, 0), "statistics", tmp_path / "pair")
    verdict = compare_runs(pair.dump("candidate"), pair.dump("reference")).to_json()
    assert verdict["status"] == "diverged"
    assert truth.is_right(verdict["findings"][0], truth.resolve(pair)), verdict["findings"][0]


def test_noise_and_bugs_go_together_where_they_change_other_lines() -> None:
    assert len(pairs_under_noise()) > 300
    with pytest.raises(ValueError, match="different programs"):
        under_noise("D01+C06")
