"""Replaced attributes go back to what they were, in whatever order those who replaced them are done."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

from support.row_by_row import for_each

from msprobe.capture.torch.patches import Patches


class Holder:
    """Has one attribute of its own and one of its base."""

    def own(self) -> str:
        return "own"


class Derived(Holder):
    pass


def marking(mark: str) -> Callable[[Any], Any]:
    def make(original: Any) -> Any:
        return lambda *args: original(*args) + mark

    return make


@for_each("order", list(itertools.permutations(range(3))))
@for_each("holder", [Holder, Derived])
def test_nothing_is_left_in_whatever_order_they_are_detached(holder: type, order: tuple[int, ...]) -> None:
    before = dict(vars(holder))
    every = [Patches() for _ in range(3)]
    for number, patches in enumerate(every):
        patches.add(holder, "own", marking(str(number)))
        patches.attach()
    assert holder().own() == "own012"  # type: ignore[attr-defined]
    for number in order:
        every[number].detach()
    assert dict(vars(holder)) == before
    every[0].attach()
    assert holder().own() == "own0"  # type: ignore[attr-defined]
    every[0].detach()
    assert dict(vars(holder)) == before


def test_what_somebody_else_has_put_there_since_stays() -> None:
    patches = Patches()
    patches.add(Derived, "own", marking("1"))
    patches.attach()
    Derived.own = lambda self: "foreign"  # type: ignore[method-assign]
    patches.detach()
    assert Derived().own() == "foreign"
    del Derived.own
