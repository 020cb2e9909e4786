"""What was compared, and what came of it, in numbers."""

from __future__ import annotations

from msprobe.diagnose.findings import Verdict
from msprobe.messages import Wording, joined, said
from msprobe.report.phrases import short

#: How a pair of calls may have been judged, as the summary counts them.
_STATES = ("same", "rounding", "explained", "unexplained")


def counts(verdict: Verdict) -> list[str]:
    """What was compared, and what came of it, in sentences."""
    summary = verdict.summary
    if not summary:
        return []
    done, common = summary.get("steps_compared", 0), summary.get("steps_in_common", 0)
    steps = _counted(common, "step") if done == common else said("some-of-steps", done, common)
    pairs, blind = summary.get("pairs", 0), summary.get("not_judged", 0)
    compared = joined(", ", (steps, _counted(summary.get("ranks", 0), "rank"), _counted(pairs, "pair")))
    judged = [said(f"pairs-{state}", summary[state]) for state in _STATES if summary.get(state)]
    lines: list[str] = [Wording("{}: {}", compared, joined(", ", judged)) if judged else compared]
    if verdict.status == "diverged" and summary.get("unexplained", 0) > len(verdict.findings):
        lines.append(said("calls-without-finding"))
    if blind:
        lines.append(said("calls-not-judged", blind, pairs))
    alone = [
        said("count-only-in", summary[f"{side}_only"], side)
        for side in ("candidate", "reference")
        if summary.get(f"{side}_only")
    ]
    if alone:
        lines.append(said("pairs-of-calls-counted", joined(", ", alone)))
    if verdict.status == "diverged" and done < common:
        lines.append(said("later-steps-only-follow"))
    effects = [said(f"effect-on-{name}") for name in summary.get("effect_on", ("loss", "gradients", "weights"))]
    reached = summary.get("largest_effect")
    # Of a step that was interrupted, or of a few calls, neither may have been recorded.
    if (
        effects
        and verdict.status in ("harmless", "agree")
        and isinstance(reached, float)
        and (reached or verdict.findings)
    ):
        tolerance = summary.get("rounding_tolerance", 0.0)
        what = joined(", ", effects)
        if not reached:
            lines.append(said("effect-none", what))
        elif summary.get("calls_explain_effect") and reached > tolerance:
            lines.append(said("effect-explained-by-calls", what, short(reached)))
        else:
            lines.append(said("effect-at-most", what, short(reached), short(tolerance)))
    return lines


def _counted(count: int, what: str) -> str:
    return said(f"one-{what}") if count == 1 else said(f"so-many-{what}s", count)
