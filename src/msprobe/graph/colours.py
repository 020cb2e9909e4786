"""The colours of graph files: which stands for which range of the index, and what the columns mean.

Ranges and colours are those of mindstudio-probe 8.1.1 and 26.2.0. Where its viewer filters ``low <= index < high``, an
index of exactly 1 would never be listed; so what we write stays below 1, unless the published values are asked for.
"""

from __future__ import annotations

import json
from typing import Any

from msprobe.compare.measures_tensor import TENSOR_MEASURES
from msprobe.graph.modes import Mode
from msprobe.graph.value_texts import Form
from msprobe.messages import said, translated
from msprobe.statistics_table import DIFFERENCES

BELOW_ONE = 0.999999
_FIVE = ("#FFFCF3", "#FFEDBE", "#FFDC7F", "#FFC62E", "#FF704D")
_GREY = "#C7C7C7"
_BOUNDS = {"summary": (0, 0.2, 0.4, 0.6, 0.8, 1), "all": (0, 0.05, 0.1, 0.15, 0.2, 1)}
_MEANING = {"summary": "summary-colour-means", "all": "all-colour-means"}
_LEVELS = (("#FFFCF3", (0, 0.3), "pass"), ("#FFDC7F", (0.3, 0.6), "warning"), ("#FF704D", (0.6, 1), "error"))
#: Column -> the piece that says what it means.
_TIPS = {
    "Max diff": "tip-max",
    "Min diff": "tip-min",
    "Mean diff": "tip-mean",
    "L2norm diff": "tip-norm",
    "md5": "tip-md5",
    "Cosine": "tip-cosine",
    "EucDist": "tip-euclidean",
    "MaxAbsErr": "tip-max-absolute",
    "MaxRelativeErr": "tip-max-relative",
    "One Thousandth Err Ratio": "tip-thousandth",
    "Five Thousandths Err Ratio": "tip-five-thousandths",
}


def colours_of(mode: Mode, form: Form, published: bool = False) -> dict[str, Any]:
    """Colour -> range of the index and what it means. ``published``: the ranges of 8.1.1 for digests, word for word."""
    unmatched = {"value": [], "description": translated(said("no-partner-on-other-side"))}
    if form == "26.2":
        if mode == "structure":
            return {_GREY: {**unmatched, "accuracy_level": "unmatched node"}}
        colours: dict[str, Any] = {
            colour: {
                "value": list(bounds),
                "description": translated(said("rated-by-rules", word)),
                "accuracy_level": word,
            }
            for colour, bounds, word in _LEVELS
            if mode != "md5" or word != "warning"
        }
        return {**colours, _GREY: {**unmatched, "accuracy_level": "unmatched node"}}
    if mode == "structure":
        return {_GREY: unmatched}
    if mode == "md5":
        same, different = ([1, 1], [0, 0]) if published else ([0.5, 1], [0, 0.5])
        return {
            "#FFFCF3": {"value": same, "description": translated(said("all-digests-agree"))},
            "#FF704D": {"value": different, "description": translated(said("a-digest-differs"))},
            _GREY: unmatched,
        }
    bounds = _BOUNDS[mode]
    ranges = zip(_FIVE, bounds, bounds[1:], strict=False)
    five = {
        colour: {"value": [low, high], "description": translated(said(_MEANING[mode]))} for colour, low, high in ranges
    }
    return {**five, _GREY: unmatched}


def tool_tip_of(mode: Mode) -> str:
    """Column -> what it means, as JSON text."""
    columns = {"summary": DIFFERENCES, "md5": ("md5",)}.get(mode, TENSOR_MEASURES)
    return json.dumps({name: translated(said(_TIPS[name])) for name in columns})


def shown_index(index: float | int | None, published: bool) -> float | int | None:
    """The index as it is written: below 1, so that the viewer's filters find it."""
    return BELOW_ONE if index is not None and index >= 1 and not published else index
