"""One step of one rank in order of execution: forward, recomputation, backward, gradients, optimizer.

The order is that in which calls ended, as the dump has it, so what ran inside a call comes before it. Gradients of
parameters stand in a dump beside the forward pass; here they come after the last backward call of their module.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Collection, Iterable, Iterator
from functools import lru_cache
from typing import Any, Literal

from msprobe.compare.entry_names import EntryName, plain_path, read_name
from msprobe.diagnose.steps.optimizer_calls import calls_inside_steps
from msprobe.diagnose.steps.overwritten import overwritten, without_overwritten
from msprobe.diagnose.steps.tensor_info import Known, RecordedTensor, describe_tensors, described
from msprobe.diagnose.steps.tensor_info import is_tensor as is_tensor
from msprobe.diagnose.steps.unwritten import mark_unwritten
from msprobe.store.part import DumpPart

Slot = tuple[str, Any]
Direction = Literal["forward", "recompute", "backward", "gradient", "optimizer", "none"]

#: Nobody changes a list of slots.
_NO_SLOTS: list[Slot] = []
_PLAIN_KEYS = ("input_args", "input_kwargs", "attributes")


class Event:
    """One record of a timeline.

    ``index`` is its place in the timeline, ``place`` that in the dump, of which a timeline may hold a part; ``parent``
    the module pass it ran in; ``key`` what it has in common with the same call in another run.
    """

    __slots__ = (
        *(
            "children",
            "direction",
            "index",
            "is_module",
            "key",
            "layer",
            "name",
            "parent",
            "parts",
            "place",
            "record",
            "stem",
        ),
        *("_is_api", "_inputs", "_outputs", "_parameters", "_forward", "_backward"),
    )

    def __init__(self, name: str, parts: EntryName, record: Any, direction: Direction) -> None:
        self.name = name
        self.parts = parts
        self.record: dict[str, Any] = record if isinstance(record, dict) else {"output": [record]}
        self.direction: Direction = direction
        self.parent: Event | None = None
        self.children: list[Event] = []
        self.index = 0
        self.place = 0
        #: True for the pass of a module.
        self.is_module = parts.kind == "module"
        self._is_api = parts.kind == "api"
        #: True for the pass of a module that stands for one call: what it computes is known, what is inside it is not.
        self.layer = False
        self.key = f"{parts.kind}:{plain_path(parts.path)}" if parts.path else parts.stem
        #: The name without number and direction.
        self.stem = parts.stem
        # Calls of one name in both directions, once they were asked for: see Timeline.forward_of.
        self._forward: Event | Literal[False] | None = False
        self._backward: Event | Literal[False] | None = False
        # Asked for many times; whoever gets a list does not change it.
        self._inputs: list[Slot] | None = None
        self._outputs: list[Slot] | None = None
        self._parameters: list[Slot] | None = None

    def __repr__(self) -> str:
        return f"Event({self.name})"

    @property
    def is_call(self) -> bool:
        """True for a call of an API, and for the pass of a module that stands for one."""
        return self.layer or self._is_api

    @property
    def is_collective(self) -> bool:
        """True for a call that exchanges data between ranks."""
        return self.parts.owner == "Distributed"

    @property
    def order(self) -> int | None:
        """Its place in the order of execution as the recorder counted it; None in dumps of others."""
        order = self._noted.get("order")
        return order if isinstance(order, int) else None

    @property
    def source(self) -> str | None:
        """File and line of the user's code that made the call, where the recorder noted it."""
        source = self._noted.get("source")
        return source if isinstance(source, str) else None

    def held(self, slot: str) -> str | None:
        """What the model itself calls the tensor in a slot (``buffers.running_mean``), where the recorder noted it."""
        held = self._noted.get("held")
        name = held.get(slot) if isinstance(held, dict) else None
        return name if isinstance(name, str) else None

    @property
    def _noted(self) -> dict[str, Any]:
        """What our recorder notes beside what was recorded."""
        noted = self.record.get("msprobe")
        return noted if isinstance(noted, dict) else {}

    def around(self) -> Iterator[Event]:
        """The passes of modules that it ran in, the innermost first."""
        outer = self.parent
        while outer is not None:
            yield outer
            outer = outer.parent

    def inside(self) -> Iterator[Event]:
        """What ran in it, each module before what ran in that."""
        for child in self.children:
            yield child
            yield from child.inside()

    @property
    def module(self) -> str | None:
        """Path of the innermost module it ran in, or of the module that it is a pass of."""
        if self.parts.kind in ("module", "parameters"):
            return self.parts.path
        return self.parent.parts.path if self.parent is not None else None

    def inputs(self) -> list[Slot]:
        """Slot and value of all that went in: arguments, or the gradients that arrived."""
        if self._inputs is None:
            self._inputs = self._read_inputs()
        return self._inputs

    def parameters(self) -> list[Slot]:
        """The module's parameters and buffers, as they were in the pass."""
        if self._parameters is None:
            self._parameters = self._read_parameters()
        return self._parameters

    def outputs(self) -> list[Slot]:
        """Slot and value of all that came out: results, or the gradients that left."""
        if self._outputs is None:
            self._outputs = self._read_outputs()
        return self._outputs

    def own_gradients(self) -> list[dict[str, Any]]:
        """What a backward call itself gave, where that is recorded beside the gradients of its arguments."""
        if self.direction != "backward" or "input_grads" not in self.record:
            return []
        slots: list[Slot] = []
        flatten("output", self.record.get("output"), slots)
        return [leaf for _, leaf in slots if is_tensor(leaf)]

    def call(self, path: str, outputs: list[Slot] | None = None, parameters: list[Slot] | None = None) -> None:
        """Give it another module's path, and other names to what comes out, or to its parameters and buffers. ``name``
        and ``stem``, by which the dump knows it, stay.
        """
        self.parts = self.parts._replace(path=path)
        self._outputs = self._outputs if outputs is None else outputs
        self._parameters = self._parameters if parameters is None else parameters

    def arrange(self, inputs: list[Slot] | None = None, outputs: list[Slot] | None = None) -> None:
        """Take these for the inputs and results."""
        self._inputs = self._inputs if inputs is None else inputs
        self._outputs = self._outputs if outputs is None else outputs

    def overwritten(self) -> list[Any]:
        """What stood in the arguments that it only writes over."""
        return overwritten(self.stem, self._recorded_inputs()) if self.parts.kind == "api" else []

    def _read_inputs(self) -> list[Slot]:
        slots = self._recorded_inputs()
        if self.direction != "backward" and self.parts.kind != "module":
            slots = without_overwritten(self.stem, slots)
        return slots

    def _recorded_inputs(self) -> list[Slot]:
        slots: list[Slot] = []
        record = self.record
        if self.parts.kind in ("parameters", "saved"):
            return slots
        if self.direction == "backward":
            flatten("input", record.get("input"), slots)
        else:
            for key in _PLAIN_KEYS:
                flatten("input", record.get(key), slots)
        return slots

    def _read_parameters(self) -> list[Slot]:
        if not self.is_module:
            return _NO_SLOTS
        slots: list[Slot] = []
        flatten("parameters", self.record.get("parameters"), slots)
        flatten("buffers", self.record.get("buffers"), slots)
        return slots

    def _read_outputs(self) -> list[Slot]:
        slots: list[Slot] = []
        record = self.record
        if self.parts.kind in ("parameters", "saved"):
            for key, value in record.items():
                if key != "msprobe":
                    flatten(key, value, slots)
        elif self.direction == "backward":
            # By argument where that is known; else in the order of the autograd node.
            if "input_grads" in record:
                flatten("", record["input_grads"], slots)
            else:
                flatten("output", record.get("output"), slots)
            flatten("kwargs", record.get("kwargs_grads"), slots)
        else:
            flatten("output", record.get("output"), slots)
        return slots


class Timeline:
    """The events of one part, in order, and the tree of module passes.

    Tensors that are described alike are one object in all records, unless ``one_by_one``. ``only``: read these records
    and leave out the others. ``known``: tensors of the timeline of the other side, which are then one object, too.
    """

    def __init__(
        self,
        part: DumpPart,
        one_by_one: bool = False,
        only: Collection[str] | None = None,
        known: Known | None = None,
    ) -> None:
        self.part = part
        self.step = part.step
        self.rank = part.rank
        self.by_name: dict[str, Event] = {}
        self.events = self._read(part, None if one_by_one else {} if known is None else known, only)
        self._optimizers: list[Event] | None = None
        self._first_backward: int | None = None
        self.roots: list[Event] = []
        self.unfinished: list[Event] = []
        self._link(part)
        mark_unwritten(self.events, part.header.get("level"))

    def __len__(self) -> int:
        return len(self.events)

    def __iter__(self) -> Iterator[Event]:
        return iter(self.events)

    def _read(self, part: DumpPart, known: Known | None, only: Collection[str] | None) -> list[Event]:
        events: list[Event] = []
        gradients: dict[str, list[Event]] = {}
        last_backward: dict[str, int] = {}
        end = 0
        parents = part.parents()
        in_other_words = part.header.get("framework") in ("mindspore", "mindtorch")
        for name, record in part.records(only) if only is not None else part.records():
            if in_other_words:
                _use_words_of_torch(record)
            if known is not None:
                describe_tensors(record, known)
            parts = read_name(name)
            event = Event(name, parts, record, _direction(parts, record))
            self.by_name[name] = event
            if parts.kind == "parameters":
                gradients.setdefault(parts.stem, []).append(event)
                continue
            events.append(event)
            if event.direction == "backward":
                end = len(events)
                above = name if parts.kind == "module" else _parent_name(parents.get(name))
                if above is not None:
                    last_backward[read_name(above).stem] = end
        if not end:
            # Interrupted before it, or not recorded: gradients come behind the forward pass all the same.
            steps = (place for place, event in enumerate(events) if event.parts.kind == "optimizer")
            end = next(steps, len(events))
        after: dict[int, list[Event]] = {}
        for stem, events_of_stem in gradients.items():
            after.setdefault(last_backward.get(stem, end), []).extend(events_of_stem)
        if after:
            merged: list[Event] = []
            for index, event in enumerate(events):
                merged += after.get(index, ())
                merged.append(event)
            merged += after.get(len(events), ())
            events = merged
        places = {name: place for place, name in enumerate(part.names()) if name in only} if only is not None else {}
        for index, event in enumerate(events):
            event.index = index
            event.place = places.get(event.name, index)
        return events

    def _link(self, part: DumpPart) -> None:
        parents = part.parents()
        unfinished = {} if part.complete else self._begun(parents)
        for event in self.events:
            above = _parent_name(parents.get(event.name))
            if above == "optimizer" and event.direction == "forward":
                event.direction = "optimizer"
            parent = (self.by_name.get(above) or unfinished.get(above)) if above is not None else None
            if parent is event:
                parent = None
            event.parent = parent
            (self.roots if parent is None else parent.children).append(event)
        self.unfinished = list(unfinished.values())
        # Level L1, or a dump that lost its construct.json.
        if not any(parents.values()):
            for event in calls_inside_steps(part, self.events):
                event.direction = "optimizer"

    def _begun(self, parents: dict[str, Any]) -> dict[str, Event]:
        """The module passes that an interruption left without a record; the calls inside show them.

        They are no events, as nothing else is known of them, and stand nowhere in the tree.
        """
        names = {_parent_name(parents.get(event.name)) for event in self.events}
        begun: dict[str, Event] = {}
        for name in sorted(name for name in names if name is not None and name not in self.by_name):
            parts = read_name(name)
            if parts.kind == "module":
                begun[name] = Event(name, parts, {}, _direction(parts, {}))
        return begun

    @property
    def optimizers(self) -> list[Event]:
        """The steps that optimizers took, in order."""
        if self._optimizers is None:
            self._optimizers = [event for event in self.events if event.parts.kind == "optimizer"]
        return self._optimizers

    def optimizer_after(self, event: Event) -> Event | None:
        """The step of an optimizer that an event is in or comes before; None behind the last."""
        place = bisect_left(self.optimizers, event.index, key=lambda step: step.index)
        return self.optimizers[place] if place < len(self.optimizers) else None

    @property
    def first_backward(self) -> int:
        """The index of the first backward call; behind all events if there is none."""
        if self._first_backward is None:
            indexes = (event.index for event in self.events if event.direction == "backward")
            self._first_backward = next(indexes, len(self.events))
        return self._first_backward

    def close(self) -> None:
        """Let go of the events. They know each other, so they would stay until Python searches for such circles."""
        for event in self.events:
            event.parent = None
            event.children.clear()
            event._forward = event._backward = None
        self.events, self.roots, self.unfinished, self.by_name = [], [], [], {}
        self._optimizers = None

    @property
    def is_flat(self) -> bool:
        """True if it is not known what ran inside what: no construct.json, or a level without modules."""
        return not any(event.children for event in self.events)

    def flatten(self) -> None:
        """Take all calls for roots; in which module they ran stays known."""
        self.roots = list(self.events)
        for event in self.events:
            event.children = []

    def leave_out(self, events: set[Event]) -> None:
        """Take events and their backward calls out."""
        gone = events | {back for event in events if (back := self.backward_of(event)) is not None}
        if not gone:
            return
        self.events = [event for event in self.events if event not in gone]
        self.roots = [event for event in self.roots if event not in gone]
        for event in gone:
            self.by_name.pop(event.name, None)
        for parent in {event.parent for event in gone} - gone:
            if parent is not None:
                parent.children = [child for child in parent.children if child not in gone]
        self._optimizers = self._first_backward = None
        for index, event in enumerate(self.events):
            event.index = index
            event._forward = event._backward = False

    def forward_of(self, event: Event) -> Event | None:
        """The forward call of a backward call."""
        forward = event._forward
        if forward is False:
            forward = event._forward = self._in_direction(event, "forward")
        return forward

    def take_out(self, event: Event, module: Event, behind: bool = True) -> None:
        """Let a call that ran in the pass of a module follow that pass (or come before it) in the module around it."""
        if event.parent is not None:
            event.parent.children = [child for child in event.parent.children if child is not event]
        event.parent = module.parent
        for row in (self.roots if module.parent is None else module.parent.children, self.events):
            if event in row:
                row.remove(event)
            row.insert(row.index(module) + int(behind), event)
        for index, later in enumerate(self.events):
            later.index = index

    def backward_of(self, event: Event) -> Event | None:
        """The backward call of a forward call."""
        backward = event._backward
        if backward is False:
            backward = event._backward = self._in_direction(event, "backward")
        return backward

    def _in_direction(self, event: Event, direction: str) -> Event | None:
        parts = event.parts
        if parts.kind == "module":
            return self.by_name.get(f"{parts.stem}.{direction}.{parts.number}")
        return self.by_name.get(f"{parts.stem}.{parts.number}.{direction}")


def _use_words_of_torch(value: Any) -> None:
    """Name the element types of MindSpore's tensors (``Float32``) as PyTorch does: they are the same types."""
    if isinstance(value, dict):
        dtype = value.get("dtype")
        if isinstance(dtype, str) and dtype[:1].isupper():
            value["dtype"] = f"torch.{dtype.lower()}"
            return
        value = value.values()
    elif not isinstance(value, list):
        return
    for item in value:
        _use_words_of_torch(item)


def _parent_name(parent: Any) -> str | None:
    if isinstance(parent, list):
        parent = parent[0] if parent else None
    return parent if isinstance(parent, str) else None


def _direction(parts: EntryName, record: Any) -> Direction:
    if parts.kind == "parameters":
        return "gradient"
    if parts.kind == "optimizer":
        return "optimizer"
    if parts.direction == "backward":
        return "backward"
    if isinstance(record, dict) and record.get("is_recompute") is True:
        return "recompute"
    return "forward"


def flatten(slot: str, value: Any, slots: list[Slot]) -> None:
    """Append slot and value of each leaf: an object with a ``type``, None, or a plain value. What describes a tensor
    becomes a :class:`RecordedTensor` in its record.
    """
    pairs: Iterable[tuple[str, Any, Any]]
    if isinstance(value, dict):
        if isinstance(value.get("type"), str):
            slots.append((slot, value))
            return
        pairs = [(_inner(slot, key), key, item) for key, item in value.items()]
    elif isinstance(value, list):
        pairs = [(_inner(slot, number), number, item) for number, item in enumerate(value)]
    else:
        if slot and (value is not None or slot.count(".")):
            slots.append((slot, value))
        return
    for inner, key, item in pairs:
        if type(item) is RecordedTensor:
            slots.append((inner, item))
        elif type(item) is dict and type(item.get("type")) is str:  # what most lists hold
            if type(item.get("dtype")) is str:
                item = value[key] = described(item)
            slots.append((inner, item))
        else:
            flatten(inner, item, slots)


@lru_cache(1 << 14)  # so that a name which a million slots have is there once
def _inner(slot: str, key: str | int) -> str:
    return f"{slot}.{key}" if slot else str(key)
