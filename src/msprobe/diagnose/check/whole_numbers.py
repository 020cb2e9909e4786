"""Whole numbers cast to a type that cannot hold them: see :mod:`msprobe.diagnose.steps.whole_numbers`."""

from __future__ import annotations

from collections.abc import Iterable

from msprobe.compare.entry_names import operation
from msprobe.diagnose.check.moment import CheckedStep
from msprobe.diagnose.check.values import measured
from msprobe.diagnose.findings import Finding
from msprobe.diagnose.steps.whole_numbers import rounded_numbers


def check(moment: CheckedStep) -> Iterable[Finding]:
    """One finding for each operation that does it on a rank, with the number of its calls."""
    numbers = list(rounded_numbers(moment.timeline, moment.makers))
    for stem in dict.fromkeys(operation(rounded.event.stem) for rounded in numbers):
        alike = [rounded for rounded in numbers if operation(rounded.event.stem) == stem]
        first = alike[0]
        evidence = {"result": measured(first.result), "exact_up_to": first.limit, "calls": len(alike)}
        if first.given is not None:
            evidence["input"] = measured(first.given)
        yield moment.finding(first.event, "dtype", first.text, evidence=evidence)
