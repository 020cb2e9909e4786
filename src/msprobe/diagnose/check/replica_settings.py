"""Optimizers of replicas that have other settings on one rank: the copies part with the next step."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from msprobe.compare.entry_names import plain_path
from msprobe.diagnose.check.moment import Moment, Rank
from msprobe.diagnose.check.values import listed
from msprobe.diagnose.findings import Finding
from msprobe.diagnose.steps.optimizer import IDLE_SETTINGS, settings_by_parameter, value_of
from msprobe.diagnose.steps.timeline import Event
from msprobe.diagnose.wording import Wording


def check(moment: Moment, copies: Sequence[str]) -> Iterable[Finding]:
    """The first setting that differs between ranks for parameters that are copies of each other."""
    steps = {rank: moment.optimizer_steps(timeline) for rank, timeline in moment.timelines.items()}
    wanted = set(copies)
    for events in zip(*steps.values(), strict=False):
        tables = [
            {plain_path(name): own for name, own in settings_by_parameter(event).items() if plain_path(name) in wanted}
            for event in events
        ]
        found = _differing(tables)
        if found:
            yield _told(moment, list(steps), events, found)
            return


def _differing(tables: list[dict[str, dict[str, object]]]) -> dict[str, dict[str, list[object]]]:
    """Setting -> parameter -> its value on each rank, where these differ."""
    found: dict[str, dict[str, list[object]]] = {}
    for name in tables[0]:
        if not all(name in table for table in tables):
            continue
        for key in tables[0][name]:
            values = [value_of(table[name].get(key)) for table in tables]
            if key not in IDLE_SETTINGS and any(value != values[0] for value in values):
                found.setdefault(key, {})[name] = values
    return found


def _told(
    moment: Moment, ranks: list[Rank], events: Sequence[Event], found: dict[str, dict[str, list[object]]]
) -> Finding:
    key, parameters = next(iter(found.items()))
    values = next(iter(parameters.values()))
    counts = Counter(map(str, values))
    least = min(counts.values())
    odd = [place for place, value in enumerate(values) if counts[str(value)] == least][-1]
    usual = next((value for value in values if value != values[odd]), None)
    more = Wording("; so do {}", listed(list(found)[1:])) if len(found) > 1 else ""
    return moment.finding(
        moment.timelines[ranks[odd]],
        events[odd],
        "replica",
        Wording(
            "the optimizer of rank {} has {} {} where that of the other ranks has "
            "{}, for "
            "{} parameters that are the same on all ranks ({}): they will part"
            "{}",
            ranks[odd],
            key,
            _shown(values[odd]),
            _shown(usual),
            len(parameters),
            listed(list(parameters)),
            more,
        ),
        where=f"{events[odd].name}: {key}",
        evidence={
            "setting": key,
            "by_rank": {str(rank): value for rank, value in zip(ranks, values, strict=True)},
            "parameters": list(parameters)[:50],
        },
    )


def _shown(value: object) -> str:
    return f"{value:.6g}" if isinstance(value, float) else str(value)
