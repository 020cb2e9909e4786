"""What to do about a finding: by its cause where that is known, else by its kind."""

from __future__ import annotations

from msprobe.diagnose.findings import Finding
from msprobe.messages import explained, said
from msprobe.report.phrases import no_effect_in_words


def advice_on(finding: Finding) -> str:
    """What to do about a finding; empty for kinds that this version does not know."""
    if finding.harmless and finding.kind != "choice":
        effect = no_effect_in_words(finding) or "no effect measured"
        return said("harmless-advice", effect)
    cause = finding.evidence.get("cause")
    if cause is None and "inputs_agree_by" in finding.evidence:
        return explained("advice:by_statistics", "advice")
    return explained(f"cause:{cause}", "advice") or explained(f"kind:{finding.kind}", "advice")
