"""Which entries are wanted, against an oracle that sees the whole order of execution at once."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

from hypothesis import given
from hypothesis import strategies as st

from msprobe.capture.filters import EntryFilter
from msprobe.config.scope_patterns import compile_list
from msprobe.config.settings import Settings

Kind = Literal["call", "enter", "leave"]


@dataclass(frozen=True)
class Event:
    kind: Kind
    name: str


# ---------------------------------------------------------------- the oracle


def spans(events: list[Event]) -> dict[int, int]:
    """Where each module that is entered is left."""
    open_: list[int] = []
    found: dict[int, int] = {}
    for place, event in enumerate(events):
        if event.kind == "enter":
            open_.append(place)
        elif event.kind == "leave":
            found[open_.pop()] = place
    return found


def wanted(events: list[Event], scope: tuple[str, ...], items: tuple[str, ...], whole_modules: bool) -> list[str]:
    """The entries that are recorded: those in the interval and on the list."""
    interval = range(len(events))
    if scope:
        first, last = scope
        begins = [i for i, e in enumerate(events) if e.kind != "leave" and e.name == first]
        if not begins:
            return []
        ends = [i for i, e in enumerate(events) if i >= begins[0] and e.kind != "enter" and e.name == last]
        interval = range(begins[0], ends[0] + 1 if ends else len(events))
    patterns = compile_list(items)
    chosen = set(range(len(events)))
    if items:
        chosen = {i for i, e in enumerate(events) if any(p.matches(e.name) for p in patterns)}
        if whole_modules:
            for begin, end in spans(events).items():
                if any(p.matches(events[begin].name) for p in patterns):
                    chosen |= set(range(begin, end + 1))
    return [e.name for i, e in enumerate(events) if e.kind != "leave" and i in interval and i in chosen]


# ---------------------------------------------------------------- orders of execution


@st.composite
def executions(draw: st.DrawFn) -> list[Event]:
    """A forward pass of nested modules and calls, and the same passes backward in reverse."""
    counts: dict[str, int] = {}

    def numbered(key: str) -> int:
        counts[key] = counts.get(key, 0) + 1
        return counts[key] - 1

    def block(depth: int, path: str) -> list[tuple[Kind, str, int]]:
        found: list[tuple[Kind, str, int]] = []
        for _ in range(draw(st.integers(0, 3))):
            if depth < 3 and draw(st.booleans()):
                name = f"{path}.{draw(st.sampled_from(['a', 'b', 'ab']))}"
                number = numbered(name)
                found += [("enter", name, number), *block(depth + 1, name), ("leave", name, number)]
            else:
                name = draw(st.sampled_from(["Functional.relu", "Torch.add", "Tensor.view"]))
                found.append(("call", name, numbered(name)))
        return found

    forward = block(0, "Module.root")
    turned: dict[Kind, Kind] = {"call": "call", "enter": "leave", "leave": "enter"}
    backward = [(turned[kind], name, number) for kind, name, number in reversed(forward)]
    if draw(st.booleans()):
        backward = []

    def event(kind: Kind, name: str, number: int, direction: str) -> Event:
        text = f"{name}.{number}.{direction}" if kind == "call" else f"{name}.Kind.{direction}.{number}"
        return Event(kind, text)

    return [event(*e, "forward") for e in forward] + [event(*e, "backward") for e in backward]


def run(flt: EntryFilter, events: list[Event]) -> list[str]:
    """What the filter lets through, asked in the order of execution."""
    found = []
    for event in events:
        if event.kind == "leave":
            flt.leave_module(event.name)
        else:
            asked = flt.wants_call if event.kind == "call" else flt.enter_module
            if asked(event.name):
                found.append(event.name)
    return found


ITEMS = ["relu", "Module.root.a", "add.1", "backward", ".b.Kind.forward.0", "name-regex(^Tensor)", "nothing"]


@given(executions(), st.data())
def test_the_filter_wants_what_the_oracle_wants(events: list[Event], data: st.DataObject) -> None:
    names = [event.name for event in events]
    scope: tuple[str, ...] = ()
    if names and data.draw(st.booleans()):
        calls = [event.name for event in events if event.kind == "call"]
        modules = [event.name for event in events if event.kind == "enter"]
        ends = data.draw(st.sampled_from([kind for kind in (calls, modules) if kind]))
        scope = (data.draw(st.sampled_from(ends)), data.draw(st.sampled_from([*ends, "Torch.never.0.forward"])))
    items = tuple(data.draw(st.lists(st.sampled_from(ITEMS), unique=True, max_size=3)))
    whole = data.draw(st.booleans())
    flt = EntryFilter(scope, compile_list(items), whole)
    expected = wanted(events, scope, items, whole)
    assert run(flt, events) == expected
    # The next step is filtered like the first.
    flt.begin_step()
    assert run(flt, events) == expected


@given(executions(), st.data())
def test_what_may_not_be_wanted_is_never_wanted(events: list[Event], data: st.DataObject) -> None:
    calls = [event.name for event in events if event.kind == "call"]
    scope = tuple(data.draw(st.lists(st.sampled_from(calls), min_size=2, max_size=2))) if len(calls) > 1 else ()
    items = tuple(data.draw(st.lists(st.sampled_from(ITEMS), unique=True, max_size=2)))
    whole = data.draw(st.booleans())
    flt = EntryFilter(scope, compile_list(items), whole)
    expected = set(wanted(events, scope, items, whole))
    for place, event in enumerate(events):
        refused = {e.name for e in events[place:] if e.kind == "call" and not flt.may_want(e.name)}
        assert not refused & {e.name for e in events[place:]} & expected
        run(flt, [event])


# ---------------------------------------------------------------- in words


def filter_of(scope: tuple[str, ...] = (), items: tuple[str, ...] = (), level: str = "L1") -> EntryFilter:
    found = EntryFilter.of(replace(Settings(), scope=scope, api_list=items, level=level))  # type: ignore[arg-type]
    assert found is not None
    return found


def test_no_filter_is_none() -> None:
    assert EntryFilter.of(Settings()) is None


def test_both_ends_belong_to_the_interval() -> None:
    flt = filter_of(scope=("Torch.add.0.forward", "Torch.add.2.forward"))
    assert [flt.wants_call(f"Torch.add.{n}.forward") for n in (0, 1, 2, 3)] == [True, True, True, False]


def test_one_entry_may_be_the_whole_interval() -> None:
    flt = filter_of(scope=("Torch.add.1.forward", "Torch.add.1.forward"))
    assert [flt.wants_call(f"Torch.add.{n}.forward") for n in (0, 1, 2)] == [False, True, False]


def test_an_end_that_never_comes_leaves_the_interval_open() -> None:
    flt = filter_of(scope=("Torch.add.1.forward", "Torch.never.0.forward"))
    assert [flt.wants_call(f"Torch.add.{n}.forward") for n in (0, 1, 2, 3)] == [False, True, True, True]


def test_a_list_item_takes_the_inside_of_modules_at_mix_only() -> None:
    for level, inside in (("L0", False), ("L1", False), ("mix", True)):
        flt = filter_of(items=("blk2",), level=level)
        assert flt.enter_module("Module.blk2.Sequential.forward.0")
        assert flt.wants_call("Torch.add.0.forward") is inside
        flt.leave_module("Module.blk2.Sequential.forward.0")
        assert not flt.wants_call("Torch.add.1.forward")


def test_case_counts() -> None:
    assert not filter_of(items=("Relu",)).wants_call("Functional.relu.0.forward")


def test_what_matched_nothing_is_reported() -> None:
    flt = filter_of(("Torch.add.0.forward", "Torch.add.9.forward"), ("add", "gelu", "name-regex(x$)"))
    for number in range(3):
        flt.wants_call(f"Torch.add.{number}.forward")
    assert flt.unmatched() == [
        'list item "gelu"',
        'list item "name-regex(x$)"',
        'scope end "Torch.add.9.forward"',
    ]
    assert filter_of(("A.b.0.forward", "A.b.1.forward")).unmatched() == ['scope start "A.b.0.forward"']


def test_what_was_met_in_any_step_is_not_said() -> None:
    flt = filter_of(("Torch.add.0.forward", "Torch.add.1.forward"), ("add",))
    for _ in range(2):
        for number in range(2):
            flt.wants_call(f"Torch.add.{number}.forward")
        flt.begin_step()
    assert flt.unmatched() == []
