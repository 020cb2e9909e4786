"""All calls of a step as one picture: a bar for each, as high as the difference and coloured by what was judged."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from html import escape

from msprobe.diagnose.verdict.calls import Call, CallStatus
from msprobe.report.phrases import clean, short

#: What each status means, in the order of the legend.
WORDS: dict[CallStatus, str] = {
    "same": "the same",
    "rounding": "within rounding",
    "victim": "explained by their inputs",
    "guilty": "unexplained",
    "candidate_only": "only in the candidate",
    "reference_only": "only in the reference",
}
_WEIGHT: dict[CallStatus, int] = {
    "same": 0, "rounding": 1, "victim": 2, "candidate_only": 3, "reference_only": 3, "guilty": 4,
}  # fmt: skip
# As many bars as a screen can tell apart; with more calls, a bar stands for several.
_MOST_BARS = 480
_WIDTH, _HEIGHT = 1000.0, 100.0
_LEAST = -8.0
_PHASES = {"forward": "forward", "optimizer": "optimizer", "none": "other"}
_SHORTEST_PHASE = 0.02


@dataclass(frozen=True)
class _Bar:
    """Some neighbouring calls as one bar."""

    status: CallStatus
    left: float
    first: Call
    count: int


def strip(calls: Sequence[Call], origin: int | None) -> str:
    """The picture with its scale, phases and legend; ``origin`` is the index of the call that is marked."""
    if not calls:
        return ""
    bars = _bars(calls)
    label = f'aria-label="{len(calls)} calls in order of execution"'
    return "\n".join(
        (
            '<div class="strip">',
            *_scale(),
            _mark(origin, len(calls)),
            f'<svg viewBox="0 0 {_WIDTH:g} {_HEIGHT:g}" preserveAspectRatio="none" role="img" {label}>',
            *(_grid(power) for power in (-6, -4, -2)),
            *_rects(bars),
            _mark_line(origin, len(calls)),
            "</svg></div>",
            _phases(calls),
            legend(calls),
        )
    )


def legend(calls: Sequence[Call]) -> str:
    """The colours, what they mean, and how many calls have them."""
    counts = Counter(call.status for call in calls)
    items = "".join(
        f'<li><i class="{status}"></i>{counts[status]} {escape(words)}</li>'
        for status, words in WORDS.items()
        if counts[status]
    )
    return f'<ul class="legend">{items}</ul>'


def _bars(calls: Sequence[Call]) -> list[_Bar]:
    size = math.ceil(len(calls) / _MOST_BARS)
    found = []
    for start in range(0, len(calls), size):
        some = calls[start : start + size]
        worst = max(some, key=lambda call: _WEIGHT[call.status])
        found.append(_Bar(worst.status, max(call.left for call in some), worst, len(some)))
    return found


def _height(bar: _Bar) -> float:
    """From a sliver for nothing to the whole height for 1 and more, by the logarithm of the difference."""
    if bar.status in ("candidate_only", "reference_only"):
        return 30.0
    if bar.left <= 0.0:
        return 4.0 if bar.status == "same" else 8.0
    power = 0.0 if math.isinf(bar.left) else math.log10(bar.left)
    return max(8.0, _HEIGHT * (1 - min(max(power, _LEAST), 0.0) / _LEAST))


def _rects(bars: Sequence[_Bar]) -> Iterator[str]:
    width = _WIDTH / len(bars)
    for number, bar in enumerate(bars):
        height = _height(bar)
        told = f"{clean(bar.first.name)}: {WORDS[bar.status]}"
        if bar.left:
            told += f" ({short(bar.left)})"
        if bar.count > 1:
            told += f"; {bar.count} calls in this bar"
        yield (
            f'<rect class="{bar.status}" x="{number * width:.2f}" y="{_HEIGHT - height:.1f}" '
            f'width="{max(width * 0.9, 0.6):.2f}" height="{height:.1f}"><title>{escape(told)}</title></rect>'
        )


def _level(power: float) -> float:
    return _HEIGHT * power / _LEAST


def _scale() -> Iterator[str]:
    for power, text in ((0, "1"), (-2, "0.01"), (-4, "1e-4"), (-6, "1e-6"), (-8, "0")):
        yield f'<span class="scale" style="top:{_level(power):g}%">{text}</span>'


def _grid(power: float) -> str:
    return f'<line class="grid" x1="0" x2="{_WIDTH:g}" y1="{_level(power):g}" y2="{_level(power):g}"/>'


def _mark(origin: int | None, count: int) -> str:
    if origin is None:
        return ""
    share = 100 * (origin + 0.5) / count
    side, text = ("left", "&#9660; here") if share < 80 else ("right", "here &#9660;")
    return f'<span class="origin {side}" style="left:{share:.2f}%">{text}</span>'


def _mark_line(origin: int | None, count: int) -> str:
    if origin is None:
        return ""
    x = _WIDTH * (origin + 0.5) / count
    return f'<line class="here" x1="{x:.2f}" x2="{x:.2f}" y1="0" y2="{_HEIGHT:g}"/>'


def _phases(calls: Sequence[Call]) -> str:
    """What the parts of the picture are, in their widths; gradients and recomputation belong to the backward pass."""
    runs: list[tuple[str, int]] = []
    for call in calls:
        word = _PHASES.get(call.direction, "backward")
        if runs and runs[-1][0] == word:
            runs[-1] = (word, runs[-1][1] + 1)
        else:
            runs.append((word, 1))
    merged: list[tuple[str, int]] = []
    for word, count in runs:
        if merged and (merged[-1][0] == word or count < _SHORTEST_PHASE * len(calls)):
            merged[-1] = (merged[-1][0], merged[-1][1] + count)
        else:
            merged.append((word, count))
    last = max((place for place, (word, _) in enumerate(merged) if word == "backward"), default=len(merged))
    named = [
        ("after it" if word == "forward" and place > last else word, count)
        for place, (word, count) in enumerate(merged)
    ]
    spans = "".join(f'<span class="phase" style="flex:{count} 1 0">{escape(word)}</span>' for word, count in named)
    return f'<div class="phases">{spans}</div>'
