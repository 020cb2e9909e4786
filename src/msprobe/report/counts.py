"""What was compared, and what came of it, in numbers."""

from __future__ import annotations

from msprobe.diagnose.findings import Verdict
from msprobe.report.phrases import short


def counts(verdict: Verdict) -> list[str]:
    """What was compared, and what came of it, in sentences."""
    summary = verdict.summary
    if not summary:
        return []
    done, common = summary.get("steps_compared", 0), summary.get("steps_in_common", 0)
    steps = _plural(common, "step") if done == common else f"{done} of {_plural(common, 'step')}"
    pairs = summary.get("pairs", 0)
    states = (
        ("same", "the same"),
        ("rounding", "within rounding"),
        ("victim", "explained by their inputs"),
        ("guilty", "unexplained"),
    )
    told = [f"{summary[key]} {words}" for key, words in states if summary.get(key)]
    lines = [
        f"{steps}, {_plural(summary.get('ranks', 0), 'rank')}, {_plural(pairs, 'pair')} of calls"
        + (f": {', '.join(told)}" if told else "")
    ]
    told_of = len(verdict.findings)
    if verdict.status == "diverged" and summary.get("guilty", 0) > told_of:
        lines.append(
            "findings tell where a difference begins: what else is unexplained are the modules "
            "around it, and calls that follow"
        )
    alone = [
        f"{summary[f'{side}_only']} only in the {side}"
        for side in ("candidate", "reference")
        if summary.get(f"{side}_only")
    ]
    if alone:
        lines.append(f"calls {', '.join(alone)}")
    if verdict.status == "diverged" and done < common:
        lines.append("later steps are not compared: they only follow")
    reached = summary.get("largest_effect")
    if verdict.status in ("harmless", "agree") and isinstance(reached, float) and (reached or verdict.findings):
        allowed = short(summary.get("rounding_tolerance", 0.0))
        lines.append(
            f"loss, gradients and weights differ by at most {short(reached)} (relative); rounding may do {allowed}"
            if reached
            else "loss, gradients and weights are the same"
        )
    return lines


def _plural(count: int, word: str) -> str:
    return f"{count} {word}" if count == 1 else f"{count} {word}s"
