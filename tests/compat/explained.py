"""The only places where our dump may differ from the published package's, each with its reason.

A rule that no longer meets a difference is not an error: the list is what we allow, not what must happen.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from agreement import Difference
from dumps import Setting


@dataclass(frozen=True)
class MissingEntry:
    """An entry of the reference that ours need not contain."""

    reason: str
    applies: Callable[[Setting, str, dict[str, Any]], bool]


@dataclass(frozen=True)
class OtherValue:
    """A value inside an entry that may differ."""

    reason: str
    applies: Callable[[Setting, str, Difference], bool]


def _full_recompute(setting: Setting, entry: dict[str, Any]) -> bool:
    return (
        setting.tool == "8.1.1" and setting.program == "checkpoint_non_reentrant" and entry.get("is_recompute") is True
    )


MISSING_ENTRIES = (
    MissingEntry(
        "its own module hooks call Tensor.view_as on every input and output; the programs never do",
        lambda setting, name, entry: setting.level != "L1" and name.startswith("Tensor.view_as."),
    ),
    MissingEntry(
        "8.1.1 replaces checkpoint by a version that recomputes to the end: it sees, and counts, calls that "
        "do not happen without it",
        lambda setting, name, entry: _full_recompute(setting, entry),
    ),
)

OTHER_VALUES = (
    OtherValue(
        "a dtype or device given by position is written as {} there: the information is lost",
        lambda setting, name, difference: difference.reference == {},
    ),
    OtherValue(
        "8.1.1 keeps 0-dim tensors by reference: a counter shows the value it has at the end of the step",
        lambda setting, name, difference: (
            setting.tool == "8.1.1"
            and name.startswith("Tensor.add_.")
            and re.fullmatch(r"\.input_args\.0\.(Max|Min|Mean|Norm)", difference.path) is not None
        ),
    ),
    OtherValue(
        "26.2.0 gives what has accumulated in param.grad, ours (as 8.1.1) the gradient of each backward pass",
        lambda setting, name, difference: (
            setting.tool == "26.2.0" and setting.program == "accumulate" and ".parameters_grad." in name
        ),
    ),
    OtherValue(
        "26.2.0 writes null for the outputs of modules that an early-stopped recomputation left",
        lambda setting, name, difference: (
            setting.tool == "26.2.0"
            and setting.program == "checkpoint_non_reentrant"
            and ".forward" in name
            and difference.path.startswith(".output")
            and difference.reference in (None, [None])
        ),
    ),
)


@dataclass(frozen=True)
class OtherParent:
    """An entry that may stand below another parent in construct.json."""

    reason: str
    applies: Callable[[Setting, str, object, object], bool]


OTHER_PARENTS = (
    OtherParent(
        "where the inputs of a module need no gradient, its own hooks fire before the gradients of its "
        "weights: the reference then puts the calls inside it at the root",
        lambda setting, name, reference, ours: (
            name.endswith(".backward")
            and reference is None
            and re.fullmatch(r"Module\..+\.backward\.\d+", str(ours)) is not None
        ),
    ),
    OtherParent(
        "a module recomputed during backward is a root of ours; there it stands below the module whose "
        "backward happened to ask for it",
        lambda setting, name, reference, ours: (
            setting.program == "checkpoint_non_reentrant"
            and re.fullmatch(r"Module\..+\.forward\.\d+", name) is not None
            and re.fullmatch(r"Module\..+\.backward\.\d+", str(reference)) is not None
            and ours is None
        ),
    ),
)


def may_be_missing(setting: Setting, name: str, entry: dict[str, Any]) -> bool:
    return any(rule.applies(setting, name, entry) for rule in MISSING_ENTRIES)


def may_have_other_parent(setting: Setting, name: str, reference: object, ours: object) -> bool:
    return any(rule.applies(setting, name, reference, ours) for rule in OTHER_PARENTS)


def may_differ(setting: Setting, name: str, difference: Difference) -> bool:
    return any(rule.applies(setting, name, difference) for rule in OTHER_VALUES)
