"""What a verdict says, in words that no medium depends on: headlines, places, evidence, what to do next.

All texts here come out clean: names from files of others cannot drive a terminal (:func:`clean`).
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from msprobe.diagnose.findings import Finding, Status, Verdict
from msprobe.diagnose.places import ranks_in_words
from msprobe.diagnose.verdict.conclusion import MOST_FINDINGS
from msprobe.foreign.letters import printable
from msprobe.foreign.plain_numbers import is_number
from msprobe.messages import Wording, joined, said, translated
from msprobe.statistics_table import TABLE

HEADLINES: dict[Status, str] = {
    "diverged": "DIVERGED",
    "harmless": "HARMLESS",
    "agree": "AGREE",
    "incomparable": "CANNOT BE COMPARED",
}
_DIRECTIONS = {
    "forward": "forward pass",
    "recompute": "recomputation",
    "backward": "backward pass",
    "gradient": "gradients of parameters",
    "optimizer": "optimizer step",
}
_PHASES = {
    "forward": "forward pass",
    "after backward": "after the backward pass",
    "after optimizer": "after the optimizer step",
}
# Names of one process are no news.
_NO_RANK = ("rank", "")
_MOST_SETTINGS = 6
_STATISTICS = (*((statistic.key, statistic.word) for statistic in TABLE), ("nan", "NaN"), ("inf", "infinite"))
_LISTS = {
    "candidate_alone": "only the candidate calls",
    "reference_alone": "only the reference calls",
    "candidate_takes": "the candidate takes it from",
    "reference_takes": "the reference takes it from",
    "calls": "calls",
    "parameters": "parameters",
    "missing": "missing in the candidate",
    "extra": "only in the candidate",
    "made_by": "made by",
    "seen_in": "seen in",
    "called_in": "called in",
}
#: So many names of a list are reported in a line.
SHOWN = 6
_DIGITS = re.compile(r"\d+")
_SAID_ELSEWHERE = frozenset(_LISTS).union(
    """
    arguments candidate reference relative_difference difference explained inputs_differ_by inputs_agree_by source side
    slot field parameter cause phase lower_bound no_effect_in_steps effect_within_rounding calls_together
    """.split()
)


@dataclass(frozen=True)
class EvidenceRow:
    """One line of evidence: what the candidate has, and what the reference has."""

    label: str
    candidate: str
    reference: str


def clean(text: object) -> str:
    """Text from files of others in one line: what would drive a terminal, or turn the direction of writing, is ``_``.

    >>> clean("a\\x1b[2Jb\\nc")
    'a_[2Jb c'
    """
    if isinstance(text, Wording):
        return text.with_values(clean)
    return printable(str(text))


def headline(verdict: Verdict) -> str:
    """One line: what came out, and where."""
    word = Wording(HEADLINES[verdict.status])
    if verdict.status == "diverged" and verdict.findings:
        first = leading(verdict)[0]
        return said("named-at", word, place(first)) + (said("in-module", clean(first.module)) if first.module else "")
    if verdict.status == "harmless":
        effect = next(
            (words for finding in verdict.findings if (words := no_effect_in_words(finding))), "no effect measured"
        )
        return said("they-differ", word, _share(verdict.summary), effect)
    if verdict.status == "agree":
        summary = verdict.summary
        exact = not any(
            summary.get(key) for key in ("rounding", "explained", "unexplained", "candidate_only", "reference_only")
        )
        word += _share(summary)
        if summary.get("interrupted"):
            return said("agree-as-far", word, _as_far(summary))
        if summary.get("values_recorded") is False:
            return said("agree-in-structure", word)
        what = Wording("recorded" if tensors_not_compared(summary) is None else "compared")
        return Wording("{}: {}", word, said("nothing-differs", what) if exact else "no difference beyond rounding")
    return Wording("{}: {}", word, clean(verdict.reason)) if verdict.reason else word


def _steps(count: int) -> str:
    return "1 step" if count == 1 else said("count-of-steps", count)


def no_effect_in_words(finding: Finding) -> str:
    """That a difference has had no effect so far: ``no effect measured in 3 steps``; empty if it has, or may have."""
    steps = finding.evidence.get("no_effect_in_steps")
    beyond = " beyond rounding" if finding.evidence.get("effect_within_rounding") else ""
    return said("no-effect-measured-in", beyond, _steps(steps)) if isinstance(steps, int) else ""


def _share(summary: dict[str, Any]) -> str:
    """Of what a verdict is, where that is not all that was recorded: `` in the 3 of 16 steps that both have``."""
    if summary.get("unread") or summary.get("unread_files"):
        return said("share-read")
    shares: list[str] = []
    left_out = summary.get("not_compared")
    if isinstance(left_out, dict):
        common, lacking, of = summary["steps_in_common"], left_out["steps"], left_out["of_parts"]
        # Single ranks are missing, or whole steps.
        parts = said("some-ranks-of-steps", of - left_out["parts"], of)
        steps = said("some-of-steps", common - lacking, common)
        shares.append(said("share-comparable", steps if lacking else parts))
    if summary.get("steps_of_one_side"):
        common = summary["steps_in_common"]
        shares.append(said("share-of-steps", common, common + summary["steps_of_one_side"]))
    if summary.get("ranks_of_one_side"):
        ranks = summary["ranks"]
        shares.append(said("share-of-ranks", ranks, ranks + summary["ranks_of_one_side"]))
    elif summary.get("parts_of_one_side"):
        shares.append(said("share-of-ranks-in-steps"))
    little = summary.get("little_in_common")
    if isinstance(little, dict):
        shares.append(said("calls-that-match", little["pairs"], little["of"]))
    elif summary.get("levels_differ") and not shares:
        shares.append(said("share-of-calls"))
    lacking = tensors_not_compared(summary)
    if lacking is not None:
        done, of = lacking
        shares.append(said("some-of-tensors", done, of))
    return said("inside", joined(", ", shares)) if shares else ""


def tensors_not_compared(summary: dict[str, Any]) -> tuple[int, int] | None:
    """Between layouts: how many tensors were compared, of how many; None if that is all of them."""
    layouts = summary.get("layouts")
    tensors = layouts.get("tensors", {}) if isinstance(layouts, dict) else {}
    left = sum(tensors.get(key, 0) for key in ("without_numbers", "not_comparable"))
    return (sum(tensors.values()) - left, sum(tensors.values())) if left else None


def settings_apart(verdict: Verdict) -> list[str]:
    """What decides how exactly is computed, where it differs: what weighs in sentences, then each setting as
    ``torch: 2.9, in the reference 2.11``.
    """
    precision = verdict.summary.get("precision")
    sentences = [clean(text) for text in verdict.summary.get("precision_in_words", ())]
    if not isinstance(precision, dict):
        return sentences
    texts = [
        said("setting-in-reference", clean(name), _set(setting["candidate"]), _set(setting["reference"]))
        for name, setting in precision.items()
    ]
    more = len(texts) - _MOST_SETTINGS
    return [*sentences, *texts[:_MOST_SETTINGS], *([said("and-more-in-verdict-json", more)] if more > 0 else [])]


def _set(value: object) -> str:
    return "not there" if value is None else clean(value)


def _as_far(summary: dict[str, Any]) -> str:
    """How many records of interrupted dumps could be compared: ``58 of 436 records; the candidate was interrupted``."""
    sides = [side for side in ("candidate", "reference") if side in summary["interrupted"]]
    pairs = summary.get("pairs", 0)
    # What the other side recorded is what there might have been.
    others = [f"{other}_only" for other in ("candidate", "reference") if other not in sides] or [
        "candidate_only",
        "reference_only",
    ]
    whole = pairs + max(summary.get(other, 0) for other in others)
    return said("records-compared-as", pairs, whole, joined(" and ", [f"the {side}" for side in sides])) + (
        "was interrupted" if len(sides) == 1 else "were interrupted"
    )


def further_notes(verdict: Verdict) -> list[str]:
    """The notes that no finding, nor the headline, has said already."""
    said = [headline(verdict), *(clean(finding.message) for finding in verdict.findings)]
    return [note for note in verdict.notes if not any(clean(note) in text for text in said)]


def leading(verdict: Verdict) -> list[Finding]:
    """The findings, those that the status rests on first: harmless ones go behind where they part."""
    if verdict.status != "diverged":
        return list(verdict.findings)
    return sorted(verdict.findings, key=lambda finding: finding.harmless)


def place(finding: Finding) -> str:
    """Step, rank and part of the step: ``step 0, rank 1, backward pass``."""
    parts: list[str] = []
    if finding.step is not None:
        parts.append(said("step", finding.step))
    if finding.rank is not None and str(finding.rank) not in _NO_RANK:
        parts.append(said("rank", finding.rank) if isinstance(finding.rank, int) else clean(finding.rank))
    # What is called like a forward call outside of all modules may as well be work on gradients, after backward.
    phase = finding.evidence.get("phase")
    if isinstance(phase, str) and phase in _PHASES:
        parts.append(_PHASES[phase])
    elif finding.direction in _DIRECTIONS and (finding.module or finding.direction != "forward"):
        parts.append(_DIRECTIONS[finding.direction])
    return joined(", ", parts) or "an unknown place"


def whereabouts(finding: Finding) -> list[tuple[str, str]]:
    """Label and text of what leads to the place: the call, its module, its place in the order of execution."""
    lines = [("where", clean(finding.where))]
    if finding.entry and not finding.where.startswith(finding.entry):
        lines.append(("call", clean(finding.entry)))
    if finding.evidence.get("side") == "reference":
        lines[-1] = (lines[-1][0], said("call-of-reference", lines[-1][1]))
    if finding.module and clean(finding.module) != lines[0][1]:
        lines.append(("module", clean(finding.module)))
    if finding.order is not None:
        lines.append(("order", said("record-of-step", finding.order)))
    return lines


def evidence_rows(finding: Finding) -> list[EvidenceRow]:
    """What was measured, side by side."""
    evidence = finding.evidence
    rows: list[EvidenceRow] = []
    arguments = evidence.get("arguments")
    for argument in arguments if isinstance(arguments, (list, tuple)) else ():
        if isinstance(argument, dict):
            name, slot = argument.get("name"), argument.get("slot", "")
            sides = (clean(argument.get(key, "")) for key in ("candidate", "reference"))
            rows.append(EvidenceRow(clean(Wording("{} ({})", slot, name) if name else slot), *sides))
    left, right = evidence.get("candidate"), evidence.get("reference")
    if isinstance(left, dict) or isinstance(right, dict):
        ours, other = (side if isinstance(side, dict) else {} for side in (left, right))
        rows += _tensor_rows(ours, other)
        if not ours or not other:
            plain_side = left if not ours else right
            absent = "-" if plain_side is None else clean(plain_side)
            rows = [
                EvidenceRow(row.label, row.candidate if ours else absent, row.reference if other else absent)
                for row in rows[:1]
            ] + [
                EvidenceRow(row.label, row.candidate if ours else "", row.reference if other else "")
                for row in rows[1:]
            ]
    elif left is not None or right is not None:
        rows.append(EvidenceRow(clean(evidence.get("field") or evidence.get("slot") or "value"), *_two(left, right)))
    return rows


def _tensor_rows(left: dict[str, Any], right: dict[str, Any]) -> list[EvidenceRow]:
    rows = []
    for key in ("dtype", "shape"):
        if key in left or key in right:
            values = (clean(side[key]).removeprefix("torch.") if key in side else "-" for side in (left, right))
            rows.append(EvidenceRow(key, *values))
    for key, label in _STATISTICS:
        ours, other = left.get(key), right.get(key)
        if ours is None and other is None:
            continue
        if key in ("nan", "inf"):
            ours, other = ours or 0, other or 0
        rows.append(EvidenceRow(label, *_two(ours, other)))
    return rows


def _two(left: Any, right: Any) -> tuple[str, str]:
    """Two values with as many digits as it takes to see that they differ."""
    if not (is_number(left) and is_number(right)):
        return number(left), number(right)
    for digits in (6, 9, 12, 17):
        ours, other = number(left, digits), number(right, digits)
        if ours != other or left == right:
            return ours, other
    return repr(left), repr(right)


def number(value: Any, digits: int = 6) -> str:
    """A value for the eye."""
    if value is None:
        return "-"
    if isinstance(value, float):
        if math.isnan(value):
            return "NaN"
        if math.isinf(value):
            return "Infinity" if value > 0 else "-Infinity"
        return f"{value:.{digits}g}"
    return clean(value)


def evidence_lines(finding: Finding) -> list[str]:
    """What was measured and has no two sides, in sentences; names that the message has already are left out."""
    evidence = finding.evidence
    lines = _size_of_difference(evidence)
    for key, words in _LISTS.items():
        value = evidence.get(key)
        if value and not _all_in(value, finding.message):
            lines.append(Wording("{}: {}", Wording(words), listed(value)))
    lines += [
        Wording("{}: {}", labelled(key), listed(value))
        for key, value in evidence.items()
        if key not in _SAID_ELSEWHERE and value not in (None, [], "")
    ]
    if finding.alternatives:
        lines.append(said("look-also-at", listed(finding.alternatives)))
    return lines


def labelled(key: str) -> str:
    """A key of the evidence as a label. It may come from a file of somebody else."""
    label = clean(key).replace("_", " ")
    return Wording("{}", label) if "{" in label or "}" in label else Wording(label)


def _all_in(value: Any, message: str) -> bool:
    """True if the message names all of a list, or as many of a longer one as a line would."""
    names = value[:SHOWN] if isinstance(value, (list, tuple)) else [value]
    return all(str(name) in message for name in names) and (len(names) < SHOWN or " more" in message)


def _size_of_difference(evidence: dict[str, Any]) -> list[str]:
    result = evidence.get("difference")
    size = result if result is not None else evidence.get("relative_difference")
    if not isinstance(size, (int, float)) or _has_whole_numbers(evidence):
        return []
    explained, arrived = evidence.get("explained"), evidence.get("inputs_differ_by")
    if not math.isfinite(size) and not ("candidate" in evidence or "reference" in evidence):
        return []  # nothing was measured: it is led back from a call that comes later
    if not math.isfinite(size):
        return ["the difference cannot be measured: NaN or infinities at different places, or different shapes"]
    if size == 0.0:
        return ["all statistics are equal, but the values differ"] if explained is None else []
    text = said("result-differs-by", short(size)) if result is not None else ""
    text = text or said("relative-difference-at-least", "at least " if evidence.get("lower_bound") else "", short(size))
    if isinstance(explained, (int, float)) and "calls_together" in evidence:
        text += said("calls-together-explain", evidence["calls_together"], short(explained))
    elif isinstance(explained, (int, float)):
        with_inputs = isinstance(arrived, (int, float)) and bool(arrived)
        text += said("inputs-explain" if with_inputs else "rounding-explains", short(explained))
        if 0 < explained < size:
            text += said("times-the-limit", _times(size / explained))
    lines = [text]
    if isinstance(arrived, (int, float)) and "arguments" not in evidence:
        same = "all statistics of its inputs are" if "inputs_agree_by" in evidence else "its inputs are"
        lines.append(said("count-the-same", same) if not arrived else said("its-inputs-differ-by", short(arrived)))
    return lines


def _has_whole_numbers(evidence: dict[str, Any]) -> bool:
    # Whole numbers have no rounding; their difference is 1 by definition.
    left = evidence.get("candidate")
    return isinstance(left, dict) and any(word in str(left.get("dtype")).lower() for word in ("int", "bool"))


def short(value: float) -> str:
    """A relative difference: two digits are enough."""
    return f"{value:.2g}" if value < 0.95 or value >= 1 else f"{value:.4g}"


def _times(ratio: float) -> str:
    return (
        said("times-precise", ratio)
        if ratio < 10
        else said("times-in-thousands", ratio)
        if ratio < 1e6
        else said("times-scientific", ratio)
    )


def brief(finding: Finding, width: int) -> str:
    """A finding in one line of at most ``width`` characters."""
    message = translated(clean(finding.message))
    if len(message) > width:
        message = f"{translated(clean(finding.where))} {translated(clean(finding.relation))}".rstrip()
    return message if len(message) <= width else f"{message[: max(width - 3, 0)]}..."


@dataclass(frozen=True)
class Alike:
    """Findings that differ by nothing but their rank and numbers in their place: the first, how many there are, and the
    ranks that they are on; ``is_cut``: there may be more of them, as findings are no more than ``MOST_FINDINGS``.
    """

    first: Finding
    count: int = 1
    ranks: tuple[int, ...] = ()
    is_cut: bool = False

    @property
    def on_ranks(self) -> str:
        """How many ranks they are on, and which; empty where it is one."""
        if len(self.ranks) < 2:
            return ""
        words = "{} ranks or more: {}" if self.is_cut else "{} ranks: {}"
        return Wording(words, len(self.ranks), ranks_in_words(self.ranks))


def alike(findings: Sequence[Finding]) -> list[Alike]:
    """Findings that differ by nothing but their rank and numbers in their place, as one."""
    groups: dict[tuple[object, ...], list[Finding]] = {}
    for finding in findings:
        where = _DIGITS.sub("#", finding.where)
        rank = isinstance(finding.rank, int) or finding.rank
        key = (finding.kind, finding.harmless, finding.direction, finding.step, rank, where)
        groups.setdefault(key, []).append(finding)
    rows = []
    for group in groups.values():
        ranks = {finding.rank for finding in group if isinstance(finding.rank, int)}.union(
            *(finding.ranks for finding in group)
        )
        count = sum(max(len(finding.ranks), 1) for finding in group)
        # The first finding of all may stand by itself.
        is_cut = len(findings) + 1 >= MOST_FINDINGS and not any(finding.ranks for finding in group)
        rows.append(Alike(group[0], count, tuple(sorted(ranks)), is_cut))
    return rows


def grouped(findings: Sequence[Finding]) -> list[Alike]:
    """All findings of a verdict as they are shown: the first by itself, what is alike among the others once."""
    return [Alike(finding, max(len(finding.ranks), 1), finding.ranks) for finding in findings[:1]] + alike(findings[1:])


def listed(value: Any, most: int = SHOWN) -> str:
    """Some names, and how many more there are."""
    if isinstance(value, dict):
        value = [Wording("{} {}", key, item) for key, item in value.items()]
    if not isinstance(value, (list, tuple)):
        return number(value) if isinstance(value, float) else clean(value)
    shown = joined(", ", [clean(item) for item in value[:most]])
    return shown + (said("and-more", len(value) - most) if len(value) > most else "")


def kinds_in_words(findings: Sequence[Finding]) -> str:
    """How many of which kind: ``45 argument, 1 computation``."""
    return ", ".join(f"{count} {clean(kind)}" for kind, count in Counter(f.kind for f in findings).most_common())
