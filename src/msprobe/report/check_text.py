"""What ``msprobe check`` found, for the terminal, in the voice of :mod:`msprobe.report.console`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from msprobe.diagnose.check import CHECKS, CheckResult
from msprobe.diagnose.findings import Finding
from msprobe.diagnose.places import ranks_in_words
from msprobe.messages import Wording, explained, joined, said, translated
from msprobe.report import phrases
from msprobe.report.blocks import Block, Field, Paragraph, groups, whereabouts, with_code
from msprobe.report.console import WIDTH, Line, finding_in_lines, section, wrapped
from msprobe.report.phrases import clean
from msprobe.statistics_table import TABLE

HEADLINES = {
    "found": "FOUND",
    "harmless": "HARMLESS",
    "clean": "NOTHING FOUND",
}
_SHOWN = 10
#: How a bad value came to other ranks.
_ON_RANKS = {
    "reached": "it reaches rank {} through {}",
    "first_bad": "on rank {} the first call to compute with it is {}",
}


def check_lines(result: CheckResult, written: Sequence[str] = (), width: int = WIDTH) -> list[Line]:
    """The whole answer: headline, first finding in full, the others in a line each, notes, what was checked."""
    return list(_result(result, written, width))


def check_text(result: CheckResult, written: Sequence[str] = (), width: int = WIDTH) -> str:
    """The same as one text."""
    return "".join(f"{line.text}\n" for line in check_lines(result, written, width))


def finding_lines(finding: Finding, width: int = WIDTH) -> list[Line]:
    """One finding in full."""
    return list(_finding(finding, width))


def check_headline(result: CheckResult) -> str:
    """One line: what came out, and where."""
    where = said("headline-at", phrases.place(result.findings[0])) if result.findings else ""
    readable = " IN WHAT COULD BE READ" if result.unread and not result.findings else ""
    return Wording("{}{}{}", Wording(HEADLINES[result.status]), readable, where)


def counts(result: CheckResult) -> list[str]:
    """What was checked, and what there was nothing to look at for."""
    return _counts(result)


def _result(result: CheckResult, written: Sequence[str], width: int) -> Iterator[Line]:
    findings = result.findings
    yield Line(translated(check_headline(result)), "bad" if result.exit_code else "good")
    yield Line(f"  {translated('dump')}  {clean(result.dump)}", "dim")
    yield from section("Not read", result.unread, width)
    if findings:
        yield Line("")
        yield from _finding(findings[0], width)
    if len(findings) > 1:
        yield Line("")
        yield Line(translated("Further findings; later ones may follow from earlier ones"), "heading")
        for number, finding in enumerate(findings[1 : 1 + _SHOWN], 2):
            harmless = translated(" (harmless)") if finding.harmless else ""
            head = f"{number}. {clean(finding.evidence.get('check'))}{harmless}, {translated(phrases.place(finding))}: "
            yield from wrapped(f"{head}{translated(clean(finding.message))}", "  ", width)
        if len(findings) > 1 + _SHOWN:
            more = result.summary.get("findings", len(findings)) - 1 - _SHOWN
            yield Line(f"  {translated(said('more-findings', more))}", "dim")
    yield from section("Notes", result.notes, width)
    yield from section("Checked", _counts(result), width)
    yield from section("Open", written, width)


def check_blocks(finding: Finding) -> list[list[Block]]:
    """A finding of a check without its message, as :func:`msprobe.report.blocks.finding_blocks` has those of others."""
    name = str(finding.evidence.get("check"))
    says = explained(f"check:{name}", "meaning")
    evidence = finding.evidence
    # How a NaN is born, and that it is one, the message says in words.
    shown = ("birth", "value") if "birth" in evidence else ()
    lines = [line for key, value in evidence.items() if key not in shown for line in _evidence(key, value)]
    if finding.alternatives:
        lines.append(said("look-also-at", phrases.listed(finding.alternatives)))
    advice = explained(f"check-cause:{finding.evidence.get('cause')}", "advice") or explained(f"check:{name}", "advice")
    check = Field("check", Wording("{}: {}", clean(name), says) + with_code(finding))
    return groups([check, *whereabouts(finding)], [Paragraph(line) for line in lines], advice)


def _finding(finding: Finding, width: int) -> Iterator[Line]:
    yield from finding_in_lines(finding.message, check_blocks(finding), width)


def _evidence(key: str, value: Any) -> Iterator[str]:
    if key == "certain" and isinstance(value, bool):
        yield (
            "seen in the values that were recorded" if value else "seen in the number of zeros; values would be a proof"
        )
        return
    if key in ("check", "cause", "source", "side") or value is None or (hasattr(value, "__len__") and not len(value)):
        return
    if hasattr(value, "tolist"):
        value = value.tolist()
    label = phrases.labelled(key)
    if key in _ON_RANKS and isinstance(value, dict):
        ranks: dict[Any, list[int | str]] = {}
        for rank, name in value.items():
            ranks.setdefault(name, []).append(int(rank) if rank.isdigit() else rank)
        for name, ranks_of_value in list(ranks.items())[: phrases.SHOWN]:
            yield Wording(_ON_RANKS[key], clean(ranks_in_words(ranks_of_value)), clean(name))
    elif isinstance(value, dict) and "dtype" in value:
        yield Wording("{}: {}", label, _tensor(value))
    elif isinstance(value, dict):
        for inner, item in list(value.items())[: phrases.SHOWN]:
            text = _tensor(item) if isinstance(item, dict) and "dtype" in item else phrases.number(item)
            yield Wording(
                "{} {}: {}", said("word-rank") if key in ("by_rank", "results") else label, clean(inner), text
            )
    elif (
        isinstance(value, (list, tuple))
        and value
        and all(isinstance(element, dict) and "dtype" in element for element in value)
    ):
        for number, element in enumerate(value[: phrases.SHOWN]):
            yield Wording("{} {}: {}", _single(label), number, _tensor(element))
    else:
        yield Wording("{}: {}", label, phrases.listed(value))


def _single(label: str) -> str:
    """One of many: ``probabilities`` -> ``probability``."""
    return Wording(f"{label.removesuffix('ies')}y" if label.endswith("ies") else label.removesuffix("s"))


def _tensor(leaf: dict[str, Any]) -> str:
    head = f"{clean(leaf.get('dtype')).removeprefix('torch.')}{clean(leaf.get('shape', ''))}"
    there = [statistic for statistic in TABLE if leaf.get(statistic.key) is not None]
    parts = [f"{statistic.word} {phrases.number(leaf[statistic.key])}" for statistic in there]
    parts += [
        f"{leaf[key]} {word}" for key, word in (("nan", "NaN"), ("inf", "infinite"), ("zero", "zeros")) if leaf.get(key)
    ]
    return f"{head} {', '.join(parts)}".rstrip()


def _counts(result: CheckResult) -> list[str]:
    summary = result.summary
    if not summary:
        return []
    steps, records = summary.get("steps", 0), summary.get("records", 0)
    names = summary.get("checks", [])
    blind: dict[str, str] = summary.get("blind") or {}
    every = len(names) == len(CHECKS)
    if blind:
        which = said("some-checks", len(names) - len(blind), len(names))
    else:
        which = said("all-checks", len(names)) if every else said("the-checks", phrases.listed(names, 20))
    lacking: dict[str, list[str]] = {}
    for name, why in blind.items():
        lacking.setdefault(why, []).append(name)
    printed: list[str] = [said("steps-and-records", steps, "" if steps == 1 else "s", records, which)]
    if lacking:
        shown = joined(
            "; ", [Wording("{}: {}", clean(why), ", ".join(map(clean, names))) for why, names in lacking.items()]
        )
        printed.append(said("nothing-for-other-checks", shown))
    return printed
