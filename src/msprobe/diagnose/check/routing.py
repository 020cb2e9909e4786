"""A router of a mixture of experts that sends nearly all tokens to the same experts."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable

from msprobe.compare.entry_names import operation, plain_path
from msprobe.diagnose import operators
from msprobe.diagnose.check.moment import CheckedStep
from msprobe.diagnose.check.values import measured, tensors
from msprobe.diagnose.differences.records import numbers
from msprobe.diagnose.differences.words import listed
from msprobe.diagnose.findings import Finding
from msprobe.diagnose.steps.argument_names import argument
from msprobe.diagnose.steps.tensor_info import is_floating
from msprobe.diagnose.steps.timeline import Event
from msprobe.messages import said

#: So much of all that is routed goes to as many experts as a token has.
_NEARLY_ALL = 0.95
#: Fewer tokens may all go to one expert by chance.
_FEWEST_TOKENS = 32
_ROUTER = re.compile(r"(^|[._])(router|gate|gating|switch)([._]|$)")


def check(moment: CheckedStep) -> Iterable[Finding]:
    """The call that chooses the experts, where all others than the busiest get nearly nothing."""
    for event in moment.timeline:
        experts_chosen = _chosen(event)
        if experts_chosen is None or event.parent is None:
            continue
        experts, each, tokens = experts_chosen
        rows = _rows(event.parent, experts) or _rows(event.parent.parent, experts)
        is_whole = len(rows) == experts or _is_router(moment, event)
        busiest, share = _busiest(rows, each, tokens) or (_only_one(event, each) if is_whole else None) or ([], 0)
        if share < _NEARLY_ALL:
            continue
        yield moment.finding(
            event,
            "computation",
            said(
                "experts-unused",
                event.name,
                f"{100 * share:.3g} %",
                tokens,
                listed([str(number) for number in busiest]),
                experts,
            ),
            evidence={
                "experts": experts,
                "busiest": busiest,
                "share": share,
                "tokens": tokens,
                "scores": measured(tensors(event.inputs())[0]),
            },
        )


def _chosen(event: Event) -> tuple[int, int, int] | None:
    """How many experts there are, how many each token gets, and how many tokens there are; None for another call."""
    name = operation(event.stem)
    if event.direction != "forward" or event.parts.kind != "api" or name not in operators.ROUTES:
        return None
    taken, made = tensors(event.inputs()), [leaf for leaf in tensors(event.outputs()) if not is_floating(leaf)]
    if not taken or not made or not is_floating(taken[0]):
        return None
    shape, out = taken[0].get("shape"), made[0].get("shape")
    if not isinstance(shape, list) or not isinstance(out, list) or len(shape) < 2:
        return None
    each = argument(event, 1, "k") if name == "topk" else 1
    tokens = math.prod(shape[:-1])
    if not isinstance(each, int) or each >= shape[-1] or tokens < _FEWEST_TOKENS or math.prod(out) != tokens * each:
        return None
    return shape[-1], each, tokens


def _rows(around: Event | None, experts: int) -> dict[int, int]:
    """Number of each expert that was called in a pass of a module, and how many rows it got; none where several lists
    of modules were called, or one of more modules than there are experts.
    """
    rows: dict[int, int] = {}
    lists: set[str] = set()
    for event in around.children if around is not None else ():
        name, _, number = plain_path(event.parts.path).rpartition(".")
        taken = [leaf for leaf in tensors(event.inputs()) if is_floating(leaf)] if event.is_module else []
        shape = taken[0].get("shape") if taken else None
        if number.isdigit() and isinstance(shape, list) and len(shape) > 1:
            lists.add(name)
            rows[int(number)] = rows.get(int(number), 0) + math.prod(shape[:-1])
    return rows if len(lists) == 1 and max(rows) < experts else {}


def _busiest(rows: dict[int, int], each: int, tokens: int) -> tuple[list[int], float] | None:
    """The experts that get most, and their share of all that is routed; None if rows do not show what is routed."""
    if sum(rows.values()) != tokens * each:
        return None  # each expert gets all tokens, or as many as it has room for
    first = sorted(rows, key=lambda number: -rows[number])[:each]
    return sorted(first), sum(rows[number] for number in first) / sum(rows.values())


def _only_one(event: Event, each: int) -> tuple[list[int], float] | None:
    """The expert that all tokens get, where the choice is one number."""
    statistics = numbers(next(leaf for leaf in tensors(event.outputs()) if not is_floating(leaf)))
    return (
        ([int(statistics[0])], 1.0) if each == 1 and statistics is not None and statistics[0] == statistics[1] else None
    )


def _is_router(moment: CheckedStep, event: Event) -> bool:
    """True if a choice, or what makes its scores, is in a module that is called a router."""
    makers, at = moment.makers, event
    for _ in range(4):  # a softmax, a cast, a bias may stand between
        if _ROUTER.search(plain_path(at.module or "")):
            return True
        taken = tensors(at.inputs())
        made = makers.of(taken[0], at) if taken else None
        if made is None:
            return False
        at = made
    return bool(_ROUTER.search(plain_path(at.module or "")))
