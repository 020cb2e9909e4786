"""Records in memory, for notebooks and tests: ``with debugger.recording(model, into=memory)``."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from msprobe.capture import native
from msprobe.capture.sinks import StepFacts

Tree = dict[str, Any]


@dataclass(frozen=True)
class Record:
    """One record: what dump.json, stack.json and construct.json of a dump folder would say of it.

    ``data`` is what ``json.load`` would give of the record: statistics are numbers (``Max``, ``Min``, ``Mean``,
    ``Norm``). ``stack``: the frames of the call, innermost first; empty where it has none. ``parent``: the record that
    it ran in; None at the top, or where the level has no hierarchy.
    """

    name: str
    data: Any
    stack: tuple[str, ...]
    parent: Any

    @property
    def arguments(self) -> list[Any]:
        """What went in by position; of a backward record the gradients of the results."""
        arguments = self.data.get("input_args", self.data.get("input"))
        return list(arguments) if arguments is not None else []

    @property
    def keywords(self) -> Tree:
        """What went in by keyword."""
        return dict(self.data.get("input_kwargs") or {})

    @property
    def results(self) -> list[Any]:
        """What came out."""
        return list(self.data.get("output") or [])

    @property
    def order(self) -> int | None:
        """Its place in the order of execution; None for gradients of parameters."""
        order = self.data.get("msprobe", {}).get("order")
        return int(order) if order is not None else None


@dataclass(frozen=True)
class TensorValues:
    """A whole tensor: ``dtype`` is torch's name without ``torch.``, ``data`` the elements in C order, little-endian."""

    dtype: str
    shape: tuple[int, ...]
    data: bytes

    def array(self) -> np.ndarray[Any, Any]:
        """The values; of types that numpy does not have (bfloat16, float8), the bits as unsigned integers."""
        try:
            dtype = np.dtype("bool" if self.dtype == "bool" else self.dtype)
        except TypeError:
            count = int(np.prod(self.shape, dtype=np.int64))
            dtype = np.dtype(f"uint{8 * len(self.data) // max(count, 1)}") if count else np.dtype("uint8")
        return np.frombuffer(self.data, dtype=dtype).reshape(self.shape)


class MemoryStep(Mapping[str, Record]):
    """The records of one step of one rank, by name, in the order in which a dump would have them."""

    failed = False

    def __init__(self, facts: StepFacts) -> None:
        self.facts = facts
        #: True when the step is over, and the program had not ended in it.
        self.is_complete = False
        #: What could not be recorded.
        self.errors: list[str] = []
        #: Whole tensors by the name of the file that a folder would have; only of the task tensor.
        self.tensors: dict[str, TensorValues] = {}
        #: The hierarchy: child -> what it ran in.
        self.parents: dict[str, Any] = {}
        self._lock = threading.RLock()
        self._texts: dict[str, bytes | None] = {}
        self._stacks: dict[int, tuple[str, ...]] = {}
        self._stack_of: dict[str, int] = {}

    # ------------------------------------------------------------ what is in it

    def __getitem__(self, name: str) -> Record:
        text = self._texts.get(name)
        if text is None:
            raise KeyError(name)
        stack = self._stacks.get(self._stack_of.get(name, -1), ())
        return Record(name, json.loads(text), stack, self.parents.get(name))

    def __iter__(self) -> Iterator[str]:
        return iter([name for name, text in self._texts.items() if text is not None])

    def __bool__(self) -> bool:
        # A step is one, also without a record.
        return True

    def __len__(self) -> int:
        return sum(text is not None for text in self._texts.values())

    # ------------------------------------------------------------ what comes

    @property
    def count(self) -> int:
        """How many records there are."""
        return len(self)

    def put_call(self, name: str, tree: object, stack_id: int | None, parent: Any, rows: Any = None) -> None:
        text = native.encode(tree, 0)
        with self._lock:
            self._texts[name] = text
            if stack_id is not None and self.facts.with_stacks:
                self._stack_of[name] = stack_id
            if parent is not False and self.facts.with_construct:
                self.parents[name] = parent

    def define_stack(self, stack_id: int, frames: Sequence[str]) -> None:
        self._stacks.setdefault(stack_id, tuple(frames))

    def put_parent(self, child: str, parent: Any) -> None:
        if self.facts.with_construct:
            self.parents[child] = parent

    def reserve(self, name: str) -> None:
        self._texts.setdefault(name, None)

    def error(self, text: str) -> None:
        self.errors.append(text)

    def publish(self, final: bool, interrupted: bool = False) -> None:
        self.is_complete = final and not interrupted

    def give_up(self) -> None:
        self._texts.clear()
        self._stack_of.clear()
        self.parents.clear()
        self.tensors.clear()


class Memory:
    """Keeps the records of all steps that are recorded into it: ``memory[step]``, or ``memory[step, rank]``."""

    #: Nobody needs a line on where the records are.
    place: str | None = None

    def __init__(self) -> None:
        self.steps: dict[tuple[int, int | None], MemoryStep] = {}

    def __getitem__(self, key: int | tuple[int, int | None]) -> MemoryStep:
        """The records of a step; of the only rank there is where none is named. KeyError if there are none."""
        if isinstance(key, tuple):
            return self.steps[key]
        matches = [records for (step, _), records in self.steps.items() if step == key]
        if len(matches) != 1:
            raise KeyError(key)
        return matches[0]

    def __len__(self) -> int:
        return len(self.steps)

    @property
    def last(self) -> MemoryStep | None:
        """The step that was recorded last; None if there is none."""
        return next(reversed(self.steps.values()), None)

    # ------------------------------------------------------------ a sink

    def begin(self, facts: StepFacts) -> MemoryStep:
        """See :class:`msprobe.capture.sinks.Sink`. A step that is recorded again takes the place of the earlier one."""
        self.steps.pop((facts.step, facts.rank), None)
        made = self.steps[facts.step, facts.rank] = MemoryStep(facts)
        return made

    def tensors(self, step: Any) -> _MemoryTensors:
        return _MemoryTensors(step.tensors)

    def readable(self, step: Any) -> int:
        return int(step.count)


class _Room:
    __slots__ = ("data",)

    def __init__(self, nbytes: int) -> None:
        self.data = memoryview(bytearray(nbytes))


class _MemoryTensors:
    """Takes whole tensors."""

    failed = False

    def __init__(self, values: dict[str, TensorValues]) -> None:
        self._values = values

    def room(self, nbytes: int) -> _Room:
        return _Room(nbytes)

    def give_back(self, room: _Room) -> None:
        """It goes by itself."""

    def save(self, name: str, payload: Any, crc32: int | None = None, room: _Room | None = None) -> None:
        self._values[name] = TensorValues(payload.dtype_name, tuple(payload.shape), bytes(payload.data))

    def link(self, name: str, existing_name: str) -> None:
        if existing_name in self._values:
            self._values[name] = self._values[existing_name]

    def flush(self) -> None:
        """Nothing is on its way."""

    def close(self) -> None:
        """Nothing is held."""
