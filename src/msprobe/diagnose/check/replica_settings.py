"""Optimizers of replicas that have other settings on one rank: the copies part with the next step."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from msprobe.diagnose.check.across import Across
from msprobe.diagnose.differences.words import listed
from msprobe.diagnose.findings import Finding
from msprobe.diagnose.steps.communication import Rank
from msprobe.diagnose.steps.optimizer import IDLE_SETTINGS, value_of
from msprobe.messages import said


def check(across: Across, copies: Sequence[str]) -> Iterable[Finding]:
    """The first setting that differs between ranks for parameters that are copies of each other."""
    wanted = set(copies)
    for steps in zip(*(replica.optimizers for replica in across.replicas.values()), strict=False):
        if all(settings is steps[0][1] for _, settings in steps):
            continue  # Equal ones are one object.
        tables = [{name: own for name, own in settings.items() if name in wanted} for _, settings in steps]
        differing = _differing(tables)
        if differing:
            yield _finding(across, list(across.replicas), [name for name, _ in steps], differing)
            return


def _differing(tables: list[dict[str, dict[str, object]]]) -> dict[str, dict[str, list[object]]]:
    """Setting -> parameter -> its value on each rank, where these differ."""
    settings: dict[str, dict[str, list[object]]] = {}
    for name in tables[0]:
        if not all(name in table for table in tables):
            continue
        for key in tables[0][name]:
            values = [value_of(table[name].get(key)) for table in tables]
            if key not in IDLE_SETTINGS and any(value != values[0] for value in values):
                settings.setdefault(key, {})[name] = values
    return settings


def _finding(
    across: Across, ranks: list[Rank], steps: Sequence[str], settings: dict[str, dict[str, list[object]]]
) -> Finding:
    key, parameters = next(iter(settings.items()))
    values = next(iter(parameters.values()))
    counts = Counter(map(str, values))
    least = min(counts.values())
    odd = [place for place, value in enumerate(values) if counts[str(value)] == least][-1]
    usual = next((value for value in values if value != values[odd]), None)
    more = said("so-do", listed(list(settings)[1:])) if len(settings) > 1 else ""
    return across.finding(
        ranks[odd],
        steps[odd],
        "replica",
        said(
            "optimizer-settings-differ-on-ranks",
            ranks[odd],
            key,
            _shown(values[odd]),
            _shown(usual),
            len(parameters),
            listed(list(parameters)),
            more,
        ),
        where=f"{steps[odd]}: {key}",
        evidence={
            "setting": key,
            "by_rank": {str(rank): value for rank, value in zip(ranks, values, strict=True)},
            "parameters": list(parameters)[:50],
        },
    )


def _shown(value: object) -> str:
    return f"{value:.6g}" if isinstance(value, float) else str(value)
