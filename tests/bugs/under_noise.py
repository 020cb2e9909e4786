"""Planted bugs in a candidate that also does something harmless otherwise: other threads, kernels, precision."""

from __future__ import annotations

from dataclasses import replace

from bugs.clean import CLEAN
from bugs.patterns import PATTERNS
from bugs.planting import Pattern, draw, line_number, programs

#: Clean pairs that make everything differ a little.
NOISE = ("C06", "C06L", "K01", "P01", "Q01", "Q01U")


def under_noise(name: str) -> Pattern:
    """The pattern of a name as ``F05+C06``: the bug F05, while the candidate also does what the clean pair C06 does.
    ValueError if both change the same lines.
    """
    bug, _, noise = name.partition("+")
    pattern, clean = PATTERNS[bug], CLEAN[noise]
    if pattern.program != clean.program or max(pattern.world, clean.world) > 1:
        raise ValueError(f"{name}: the two are of different programs")
    both = replace(
        pattern,
        id=name,
        bed=(*clean.bed, *pattern.bed),
        plant=(*pattern.plant, *clean.plant),
        settings={**clean.settings, **pattern.settings},
        headers=clean.headers,
    )
    # The reference must be what both expect, and each line that the truth names must be there once.
    drawn = draw(both, 0)
    texts = programs(both, drawn)
    for answer in both.truth:
        if answer.line is not None:
            line_number(texts[0] if answer.side == "candidate" else texts[1], drawn.fill(answer.line))
    return both


def pairs_under_noise(noise: tuple[str, ...] = NOISE) -> dict[str, Pattern]:
    """All that go together, by name."""
    found = {}
    for kind in noise:
        for bug in PATTERNS:
            try:
                found[f"{bug}+{kind}"] = under_noise(f"{bug}+{kind}")
            except ValueError:
                continue
    return found
