"""What findings of single steps say together: in which step a difference is first there, and that it had no effect."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import replace

from msprobe.diagnose.evidence import NamedFact, OtherArguments
from msprobe.diagnose.findings import Finding, FindingKind
from msprobe.messages import said

#: What is done otherwise, in every step: each is the same difference again.
_SETTINGS: frozenset[FindingKind] = frozenset(("argument", "dtype", "structure", "optimizer"))


def findings_over_steps(findings: Sequence[Finding], steps: int, effect: float) -> list[Finding]:
    """The findings of a run of which ``steps`` steps were compared: a setting that differs from an earlier step on than
    its effect is reported where it is first there, and of what is harmless, in how many steps no effect was measured.
    ``effect``: how far loss, gradients and weights are apart, which may be by rounding.
    """
    measured = NamedFact("no_effect_in_steps", steps), NamedFact("effect_within_rounding", effect)
    begun = _begin_where_first_there(list(findings))
    return [finding.with_facts(finding.message, *measured) if _is_idle(finding) else finding for finding in begun]


def _begin_where_first_there(findings: list[Finding]) -> list[Finding]:
    place = next((number for number, finding in enumerate(findings) if not finding.harmless), None)
    if place is None or findings[place].kind not in _SETTINGS:
        return findings
    shown = findings[place]
    same = [number for number, finding in enumerate(findings[:place]) if _setting(finding) == _setting(shown)]
    if not same or findings[same[0]].step == shown.step:
        return findings
    first = findings.pop(same[0])
    text = said("effect-in-later-step", first.message, shown.step)
    return [replace(first.with_facts(text, NamedFact("effect_in_step", shown.step)), harmless=False), *findings]


def _setting(finding: Finding) -> Hashable:
    """What shows that a finding of another step is of the same difference."""
    return finding.kind, finding.where, finding.module, finding.rank, str(finding.fact(OtherArguments))


def _is_idle(finding: Finding) -> bool:
    return finding.harmless and finding.kind != "step_count"
