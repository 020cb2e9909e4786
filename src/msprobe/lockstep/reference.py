"""The recorded training that a candidate runs against: its calls, and what went in and came out, read when needed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from msprobe.compare.entry_names import EntryName, read_name
from msprobe.compare.number_types import epsilon_of
from msprobe.diagnose.differences.records import fingerprint
from msprobe.diagnose.steps.optimizer_calls import calls_inside_steps
from msprobe.diagnose.tolerance.units import coarsest_of_many
from msprobe.lockstep.read_once import ReadOnce
from msprobe.store.part import DumpPart


class Slot:
    """A tensor of a record: ``shape``, the name of the file of its values, empty if they were not written, and
    ``unit``, the distance of 1 to the next number of its type (0 for whole numbers); ``mark``: what distinguishes it
    from others, None if nothing does; ``requires_grad``: as it was recorded.
    """

    __slots__ = ("file", "mark", "requires_grad", "shape", "unit")

    def __init__(self, leaf: Mapping[str, Any]) -> None:
        self.unit = epsilon_of(str(leaf.get("dtype")))
        self.shape = tuple(leaf.get("shape") or ())
        self.mark = fingerprint(leaf)
        self.requires_grad = leaf.get("requires_grad") is True
        name = leaf.get("data_name")
        self.file = name if isinstance(name, str) and name != "-1" else ""


Slots = dict[str, Slot]
#: What a call in the step of an optimizer has for a parent.
OPTIMIZER = "optimizer"


class RecordedCall:
    """A call of the reference. ``inputs`` and ``outputs`` are its tensors by the paths that a live call has for them
    (``input.0``, ``kwargs.mask``, ``output.1``); ``partner``: the number of the candidate's call that answers to it.
    """

    __slots__ = ("index", "inputs", "is_recompute", "key", "name", "number", "outputs", "parent", "partner", "record")

    def __init__(
        self, name: str, key: str, number: int, record: Mapping[str, Any], parent: str | None, index: int
    ) -> None:
        #: Its place among all records of the step.
        self.index = index
        self.name = name
        self.key = key
        self.number = number
        self.parent = parent
        self.record = record
        self.partner: int | None = None
        self.is_recompute = record.get("is_recompute") is True
        self.inputs: Slots = {}
        find_slots("input", record.get("input_args"), self.inputs)
        find_slots("kwargs", record.get("input_kwargs"), self.inputs)
        self.outputs: Slots = {}
        find_slots("output", record.get("output"), self.outputs)


class RecordedStep:
    """One step of one rank of the reference."""

    def __init__(self, part: DumpPart) -> None:
        self.part = part
        self._files = ReadOnce(part)
        #: The calls, collectives among them, by name without number, in their order.
        self.calls: dict[str, list[RecordedCall]] = {}
        #: The names of module passes that something ran in.
        self.parents: set[str] = set()
        self.optimizers: dict[str, Mapping[str, Any]] = {}
        #: By the step of an optimizer, the calls outside of all modules between the backward pass and it.
        self.before_step: dict[str, list[str]] = {}
        since: list[str] = []
        self._passes: dict[str, RecordedCall] = {}
        self._makers: dict[Hashable, list[RecordedCall]] = {}
        parents = part.parents()
        #: Names of the passes that have calls of their own in a module, by the place of the module and the pass.
        self._by_place: dict[str, str] = {}
        records = list(part.records())
        inside = _inside_steps(part, [name for name, _ in records]) if not parents else frozenset()
        for index, (name, record) in enumerate(records):
            parts = read_name(name)
            if not isinstance(record, dict):
                continue
            if parts.kind == "optimizer":
                self.optimizers[name] = record
                self.before_step[name], since = since, []
            elif parts.direction != "forward":
                since = []
                continue
            elif parts.kind == "module":
                since = []
                self._passes[name] = RecordedCall(name, parts.stem, parts.number or 0, record, None, index)
                self._by_place.setdefault(_place_of(name), name)
            elif parts.kind == "api" and parts.number is not None:
                parent = OPTIMIZER if name in inside else parent_name(parents.get(name))
                if parent is None:
                    since.append(name)
                else:
                    self.parents.add(parent)
                self.calls.setdefault(parts.stem, []).append(
                    RecordedCall(name, parts.stem, parts.number, record, parent, index)
                )

    @property
    def unit(self) -> float:
        """The coarsest unit of rounding that many calls give their results in."""
        units_of_calls = (max((slot.unit for slot in call.outputs.values()), default=0.0) for call in self)
        return coarsest_of_many(Counter(filter(None, units_of_calls)))

    def __iter__(self) -> Iterator[RecordedCall]:
        return (call for calls in self.calls.values() for call in calls)

    def array(self, slot: Slot) -> Any:
        """The values of a tensor as an array of numpy; None if they were not written or cannot be read."""
        return self._files.array(slot.file) if slot.file else None

    def close(self) -> None:
        """Let go of all files."""
        self._files.forget()
        self.part.close()

    @property
    def has_passes(self) -> bool:
        """True if modules were recorded."""
        return bool(self._passes)

    def maker(self, slot: Slot, taker: RecordedCall) -> RecordedCall | None:
        """The last call before ``taker`` that returned what is in a slot; None if none did, or it cannot be
        reported.
        """
        if not self._makers:
            for call in self:
                for output in call.outputs.values():
                    self._makers.setdefault(output.mark, []).append(call)
        makers = self._makers.get(slot.mark, ()) if slot.mark is not None else ()
        return max((call for call in makers if call.index < taker.index), key=lambda call: call.index, default=None)

    def pass_outputs(self, name: str) -> Slots:
        """What the pass of a module returned; nothing where there was none of this name."""
        module_pass = self._passes.get(name)
        return {} if module_pass is None else module_pass.outputs

    def optimizer_like(self, own: str) -> str:
        """The step of an optimizer of this name, or the one of the same number that has another class."""
        number = read_name(own).number
        return (
            own
            if own in self.optimizers
            else next((name for name in self.optimizers if read_name(name).number == number), own)
        )

    def pass_like(self, own: str) -> str | None:
        """The pass of the same number of the module in the same place, whatever its class is called."""
        return own if own in self._passes else self._by_place.get(_place_of(own))

    def is_repeated(self, name: str) -> bool:
        """True for a pass of a module that repeats one for its backward pass."""
        module_pass = self._passes.get(name)
        return module_pass is not None and module_pass.is_recompute

    def module_pass(self, backward: str) -> RecordedCall | None:
        """The pass of a module whose gradients have this name; None if there was none."""
        return self._passes.get(backward.replace(".backward.", ".forward."))

    def outer(self, name: str) -> str | None:
        """The pass around a pass of a module; None if there is none."""
        return parent_name(self.part.parent(name))

    def code_of(self, call: RecordedCall) -> tuple[str, str]:
        """Function and text of the line that made the call."""
        return line_of(self.part.stack(call.name))

    def gradients_of(self, call: RecordedCall) -> tuple[Slots, Slots]:
        """The gradients that arrived at the results of a call, by place, and those that left to its arguments."""
        name = call.name.replace(".forward", ".backward")
        if name not in self.part:
            return {}, {}
        record = self.part.record(name)
        arrived = record.get("input") if isinstance(record, dict) else None
        if not isinstance(arrived, list):
            return {}, {}
        results = {
            path: Slot(leaf)
            for (path, own), leaf in zip(call.outputs.items(), arrived, strict=False)
            if _is_tensor(leaf) and tuple(leaf.get("shape") or ()) == own.shape
        }
        return results, self._leaving(call, record)

    @staticmethod
    def _leaving(call: RecordedCall, record: Mapping[str, Any]) -> Slots:
        slots: Slots = {}
        by_argument = record.get("input_grads")
        if isinstance(by_argument, dict):
            for path, leaf in by_argument.items():
                if _is_tensor(leaf):
                    slots[path] = Slot(leaf)
            return slots
        # In the order of the one node of the graph: that of the arguments.
        leaving = [leaf for leaf in record.get("output") or () if _is_tensor(leaf)]
        wanting = list(_with_gradient(call))
        if len(leaving) == len(wanting):
            for path, leaf in zip(wanting, leaving, strict=True):
                if tuple(leaf.get("shape") or ()) == call.inputs[path].shape:
                    slots[path] = Slot(leaf)
        return slots


@dataclass(frozen=True)
class _Record:
    """What is asked of a record to find out whether it was made inside the step of an optimizer."""

    name: str
    parts: EntryName

    @property
    def direction(self) -> str:
        return self.parts.direction or ""


def _inside_steps(part: DumpPart, names: Sequence[str]) -> frozenset[str]:
    """Calls inside the steps of optimizers, where the dump has no structure to show it."""
    every = [_Record(name, read_name(name)) for name in names]
    return frozenset(event.name for event in calls_inside_steps(part, every))


def _place_of(entry: str) -> str:
    """Of ``Module.a.b.Linear.forward.0``, all but the name of the class."""
    parts = read_name(entry)
    return f"{parts.path} {parts.direction} {parts.number}"


def _with_gradient(call: RecordedCall) -> Iterator[str]:
    def walk(path: str, value: Any) -> Iterator[str]:
        if _is_tensor(value):
            if value.get("requires_grad") is True:
                yield path
        elif isinstance(value, (list, dict)) and not _is_leaf(value):
            for key, item in value.items() if isinstance(value, dict) else enumerate(value):
                yield from walk(f"{path}.{key}", item)

    yield from walk("input", call.record.get("input_args"))
    yield from walk("kwargs", call.record.get("input_kwargs"))


def find_slots(path: str, value: Any, slots: Slots) -> None:
    """Put the tensors in a part of a record into ``slots``, by their paths."""
    if _is_tensor(value):
        slots[path] = Slot(value)
    elif isinstance(value, dict) and not _is_leaf(value):
        for key, item in value.items():
            find_slots(f"{path}.{key}", item, slots)
    elif isinstance(value, list):
        for number, item in enumerate(value):
            find_slots(f"{path}.{number}", item, slots)


def has_other_arguments(record: Mapping[str, Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> bool:
    """True if numbers, words or truth values among arguments are others than the recorded ones, or in other places."""
    own: dict[str, Any] = {}
    other: dict[str, Any] = {}
    for number, value in enumerate(args):
        _find_plain(f"input.{number}", value, own)
    for word, value in kwargs.items():
        _find_plain(f"kwargs.{word}", value, own)
    _find_recorded("input", record.get("input_args"), other)
    _find_recorded("kwargs", record.get("input_kwargs"), other)
    return own != other


def _find_plain(path: str, value: Any, values_by_path: dict[str, Any]) -> None:
    if (isinstance(value, (bool, int, float, str)) and not hasattr(value, "__array__")) or type(
        value
    ).__name__ == "dtype":
        values_by_path[path] = str(value)
    elif isinstance(value, slice):
        values_by_path[path] = str([value.start, value.stop, value.step])
    elif type(value) in (list, tuple):
        for number, element in enumerate(value):
            _find_plain(f"{path}.{number}", element, values_by_path)
    elif isinstance(value, dict):
        for key, element in value.items():
            _find_plain(f"{path}.{key}", element, values_by_path)


def _find_recorded(path: str, value: Any, values_by_path: dict[str, Any]) -> None:
    if isinstance(value, dict) and _is_leaf(value):
        if value["type"] in ("bool", "int", "float", "str", "slice") or value["type"].endswith("dtype"):
            values_by_path[path] = str(value.get("value"))
    elif isinstance(value, (list, dict)) and not _is_tensor(value):
        for key, element in value.items() if isinstance(value, dict) else enumerate(value):
            _find_recorded(f"{path}.{key}", element, values_by_path)


def parent_name(parent: Any) -> str | None:
    """The module pass that a record ran in, as the hierarchy file has it, or :data:`OPTIMIZER`."""
    if isinstance(parent, list):
        parent = parent[0] if parent else None
    return parent if isinstance(parent, str) and (parent.startswith("Module.") or parent == OPTIMIZER) else None


def line_of(stack: list[str] | tuple[str, ...]) -> tuple[str, str]:
    """Function and text of the innermost line of a call stack; its file and number change when code is edited."""
    if not stack:
        return "", ""
    head, _, text = stack[0].partition("\n")
    return head.rpartition(", in ")[2].strip(" ,"), text.strip()


def _is_leaf(value: Mapping[str, Any] | list[Any]) -> bool:
    return isinstance(value, dict) and isinstance(value.get("type"), str)


def _is_tensor(value: Any) -> bool:
    return isinstance(value, dict) and isinstance(value.get("dtype"), str) and isinstance(value.get("shape"), list)


class Steps(Protocol):
    """Where the recorded steps come from."""

    def step(self, step: int, rank: int | None) -> RecordedStep | None:
        """A step of a rank; None if it was not recorded."""
