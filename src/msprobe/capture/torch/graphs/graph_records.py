"""The records of a graph of kernels that the program captures: made once, written for each replay.

While the graph is captured, calls and passes are recorded as always, with numbers and an order of their own that begin
at 0, and are held. A replay writes them with the numbers that its step has come to, as if they had run then, and with
what it put into the slots of the graph (:mod:`msprobe.capture.torch.graphs.graph_slots`). Gradients are not followed.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Sequence
from typing import Any, NamedTuple

from msprobe.capture.late_records import Check
from msprobe.capture.native import in_one_line
from msprobe.capture.session import Session
from msprobe.capture.stacks import CallStack
from msprobe.capture.torch.devices.device_statistics import LateElements
from msprobe.capture.torch.devices.late_descriptions import LateDescriptions
from msprobe.capture.torch.graphs.graph_slots import GraphSlots
from msprobe.capture.torch.tensors.statistics_info import LateInfo, SlotInfo, TensorInfo
from msprobe.capture.units import Writer
from msprobe.config.scope_patterns import entry_kind

_ROW = b'"row":'
_OPTIMIZER = "Optimizer."


class _Held(NamedTuple):
    """A record. ``order``: its place in the graph; ``last``: that of the last unit that began before its end."""

    name: str
    tree: dict[str, Any]
    stack: CallStack | None
    parent: Any
    check: Check | None
    order: int
    last: int


class GraphRecords:
    """The records of one graph. Made as its capture begins, in the thread that captures; :meth:`end` as it ends."""

    def __init__(self, session: Session, writers: Sequence[Writer], slots: GraphSlots, late: LateDescriptions) -> None:
        self.slots = slots
        self._session = session
        self._late = late
        self._thread = threading.get_ident()
        self._records: list[_Held] = []
        # The numbers that were given in the graph, and the places in its order; before its end those of the step.
        self._counters: dict[str, int] = {}
        self._orders = 0
        self._replays = 0
        running = session.thread.modules
        self._passes = len(running)
        self._outside = {session.thread.region, *(unit.entry for unit in running)}
        # Filters are asked when the names are known. What is not watched has no backward record.
        self._writers = [(writer, writer.filter, writer.backward) for writer in writers]
        for writer in writers:
            writer.filter, writer.backward = None, False
        self._exchange()
        session.holder = self

    @property
    def is_here(self) -> bool:
        """Whether this is the thread that captures."""
        return threading.get_ident() == self._thread

    def _exchange(self) -> None:
        session = self._session
        with session.lock:
            session.counters, self._counters = self._counters, session.counters
            session.order, self._orders = self._orders, session.order

    def take(self, name: str, tree: Any, stack: CallStack | None, parent: Any, check: Check | None) -> bool:
        session = self._session
        if not self.is_here or not isinstance(tree, dict) or self._key_of(name, session.counters) is None:
            return False
        order = tree.get("msprobe", {}).get("order", session.order)
        self._records.append(_Held(name, tree, stack, parent, check, order, session.order))
        return True

    def end(self) -> None:
        """The graph is captured: what is recorded is of the program again."""
        session = self._session
        session.holder = None
        self._exchange()
        for writer, names_filter, backward in self._writers:
            writer.filter, writer.backward = names_filter, backward
        # Of passes that go on nobody in the graph saw the end.
        del session.thread.modules[self._passes :]

    def drop(self) -> None:
        """Its numbers will not come."""
        self._records.clear()

    @property
    def is_empty(self) -> bool:
        """Whether nothing was recorded in the graph."""
        return not self._records

    # ---------------------------------------------------------------- replays

    def write(self) -> None:
        """The graph was launched: write its records, whose numbers come later. Call on the stream of the replay."""
        session = self._session
        replay, self._replays = self._replays, self._replays + 1
        with session.lock:
            counters, order = session.counters, session.order
            first = {key: counters.get(key, 0) for key in self._counters}
            for key, count in self._counters.items():
                counters[key] = first[key] + count
            session.order = order + self._orders
        outside = session.parent() if session.with_construct else False
        named = [(held, self._renamed(held.name, first)) for held in self._records]
        wanted = self._wanted(named)
        infos = _Infos()
        written: list[tuple[_Held, str, Any]] = []
        for held, name in named:
            if name in wanted:
                tree = infos.tree_of(held.tree)
                tree["msprobe"] = {**tree.get("msprobe", {}), "order": order + held.order, "replay": replay}
                written.append((held, name, tree))
        chunk, elements = self.slots.send_replay(infos.elements)
        for info, index in zip(infos.infos, infos.places, strict=True):
            info.elements = elements[index]
        if infos.infos:
            session.guard(self._late.add_sent, chunk, self.slots.bytes, infos.infos)
        for held, name, tree in written:
            parent = outside if held.parent in self._outside else held.parent
            if isinstance(parent, str) and parent is not outside:
                parent = self._renamed(parent, first)
            if held.parent is False:
                parent = False
            if held.check is None:
                session.put(name, tree, held.stack, parent)
            else:
                session.put_checked(name, tree, held.check, held.stack, parent)

    @staticmethod
    def _key_of(name: str, counters: dict[str, int]) -> str | None:
        """By what an entry is numbered, if it was numbered in the graph."""
        end = len(name)
        while end > 0:
            if name[:end] in counters:
                return name[:end]
            end = name.rfind(".", 0, end)
        return None

    def _renamed(self, name: str, first: dict[str, int]) -> str:
        """An entry of the graph, with the number that it has in this step."""
        key = self._key_of(name, first)
        if key is None:
            return name
        words = name[len(key) + 1 :].split(".")
        for place, word in enumerate(words):
            if word.isdigit():
                words[place] = str(int(word) + first[key])
                break
        return ".".join((key, *words))

    def _wanted(self, named: list[tuple[_Held, str]]) -> set[str]:
        """The entries that the filters want, asked in the order in which the units began and ended."""
        flt = self._session.filter
        if flt is None:
            return {name for _, name in named}
        settings = self._session.settings
        wanted: set[str] = set()
        running: list[tuple[int, str]] = []
        for held, name in sorted(named, key=lambda item: item[0].order):
            while running and running[-1][0] < held.order:
                flt.leave_module(running.pop()[1])
            if entry_kind(name) == "module":
                is_wanted = flt.enter_module(name)
                running.append((held.last, name))
            else:
                is_asked = name.startswith(_OPTIMIZER) and settings.optimizer is True
                is_wanted = is_asked or flt.wants_call(name)
            if is_wanted:
                wanted.add(name)
        while running:
            flt.leave_module(running.pop()[1])
        return wanted


class _Infos:
    """The descriptions of one replay. ``infos``: those whose numbers come, ``places``: of which of ``elements``."""

    def __init__(self) -> None:
        self.infos: list[LateInfo] = []
        self.places: list[int] = []
        self.elements: list[LateElements] = []
        self._known: dict[int, LateInfo] = {}
        self._place_of: dict[int, int] = {}

    def tree_of(self, tree: Any) -> Any:
        """The same tree, with the descriptions of this replay."""
        if isinstance(tree, dict):
            return {key: self.tree_of(value) for key, value in tree.items()}
        if isinstance(tree, (list, tuple)):
            return [self.tree_of(value) for value in tree]
        if isinstance(tree, SlotInfo):
            return self._for_replay(tree)
        if isinstance(tree, TensorInfo):
            return _without_row(tree)
        return tree

    def _for_replay(self, slot: SlotInfo) -> LateInfo:
        info = self._known.get(id(slot))
        if info is None:
            info = self._known[id(slot)] = slot.for_replay(slot.elements)
            place = self._place_of.get(id(slot.elements))
            if place is None:
                place = self._place_of[id(slot.elements)] = len(self.elements)
                self.elements.append(slot.elements)
            self.infos.append(info)
            self.places.append(place)
        return info


def _without_row(info: TensorInfo) -> TensorInfo:
    """A description of a tensor that is in no graph, as those of the CPU: rows are those of one step."""
    if info.late or _ROW not in info.text:
        return info
    statistics = json.loads(info.text)
    statistics.pop("row", None)
    text = in_one_line(statistics)
    return TensorInfo(text, len(text) - 1, info.nonfinite)
