"""What was compared, and what came of it, in numbers."""

from __future__ import annotations

from msprobe.diagnose.findings import Verdict
from msprobe.messages import Wording, joined, said
from msprobe.report.phrases import short


def counts(verdict: Verdict) -> list[str]:
    """What was compared, and what came of it, in sentences."""
    summary = verdict.summary
    if not summary:
        return []
    done, common = summary.get("steps_compared", 0), summary.get("steps_in_common", 0)
    steps = _plural(common, "1 step", "{} steps") if done == common else said("some-of-steps", done, common)
    pairs = summary.get("pairs", 0)
    states = (
        ("same", "the same"),
        ("rounding", "within rounding"),
        ("explained", "explained by their inputs"),
        # One word could be a name: as a wording it is said in other languages, too.
        ("unexplained", said("unexplained")),
    )
    blind, calls = summary.get("not_judged", 0), summary.get("pairs", 0)
    counted = [Wording("{} {}", summary[key], words) for key, words in states if summary.get(key)]
    lines: list[str] = [
        Wording(
            "{}, {}, {}",
            steps,
            _plural(summary.get("ranks", 0), "1 rank", "{} ranks"),
            _plural(pairs, "1 pair of calls", "{} pairs of calls"),
        )
        + (Wording(": {}", joined(", ", counted)) if counted else "")
    ]
    told_of = len(verdict.findings)
    if verdict.status == "diverged" and summary.get("unexplained", 0) > told_of:
        lines.append(said("calls-without-finding"))
    if blind:
        lines.append(
            said(
                "calls-not-judged",
                blind,
                calls,
            )
        )
    alone = [
        said("count-only-in", summary[f"{side}_only"], side)
        for side in ("candidate", "reference")
        if summary.get(f"{side}_only")
    ]
    if alone:
        lines.append(said("pairs-of-calls-counted", joined(", ", alone)))
    if verdict.status == "diverged" and done < common:
        lines.append("later steps are not compared: they only follow")
    reached = summary.get("largest_effect")
    if verdict.status in ("harmless", "agree") and isinstance(reached, float) and (reached or verdict.findings):
        tolerance = summary.get("rounding_tolerance", 0.0)
        if not reached:
            lines.append("loss, gradients and weights are the same")
        elif summary.get("calls_explain_effect") and reached > tolerance:
            lines.append(said("effect-explained-by-calls", short(reached)))
        else:
            lines.append(said("effect-at-most", short(reached), short(tolerance)))
    return lines


def _plural(count: int, one: str, many: str) -> str:
    return Wording(one) if count == 1 else Wording(many, count)
