"""Pickles read as data: a stack machine of our own, in which nothing is imported, called or set.

What a pickle calls by name becomes a :class:`Name`; an object of it an :class:`Opaque` that keeps name, arguments
and state.
A table of rebuilders (``torch_rebuild``) makes tensors' descriptions of those it knows. Sizes, numbers of
instructions and of containers have limits, and nothing larger than the file is allocated for what the file claims.
A pickle may say one thing many times in two bytes each (its memo): whatever is copied, hashed or looked through is
counted, and may come to some multiple of the bytes that were read. So may what is returned when all of it is written
out, as whoever walks through it does where one object stands in many places.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from msprobe.foreign.budget import factor
from msprobe.messages import said

_MOST_INSTRUCTIONS = 30_000_000  # times the factor of the user, as are the next
_MOST_CONTAINERS = 8_000_000
_MOST_INTEGER_BYTES = 1024
_MOST_KEY_DEPTH = 4
#: Items and bytes that may be copied, hashed and looked through for each byte of the pickle, and at least.
_MOST_FOR_A_BYTE = 16
_FREE = 1 << 16
#: The same of all values and letters of the result, when it is written out.
_MOST_UNFOLDED_FOR_A_BYTE = 32
_FREE_UNFOLDED = 1 << 20
# The hash of a whole number is the number itself below this; above, many numbers have one hash.
_LARGEST_KEY = (1 << 61) - 1
# -1 and -2 have one hash, so of n numbers there are 2**n tuples that have one.
_MOST_NEGATIVE_KEYS = 10_000


class PickleError(ValueError):
    """The bytes are no pickle that can be read as data."""


@dataclass(frozen=True)
class Name:
    """A name of the file, ``module.name``: looked up nowhere."""

    module: str
    name: str

    @property
    def full(self) -> str:
        """The dotted name."""
        return f"{self.module}.{self.name}"


@dataclass(eq=False)
class Opaque:
    """An object of a class that is not known here: its name, what it was called with, and its state."""

    name: Name
    arguments: Any = field(default=(), repr=False)
    state: Any = field(default=None, repr=False)
    #: What was put into it as into a dict.
    items: dict[Any, Any] = field(default_factory=dict, repr=False)
    #: What was put into it as into a list.
    elements: list[Any] = field(default_factory=list, repr=False)


Rebuild = Callable[..., Any]
_MARK = object()


def read_pickle(
    data: memoryview,
    rebuild: Mapping[str, Rebuild],
    persistent: Callable[[Any], Any] | None = None,
    start: int = 0,
) -> tuple[Any, int]:
    """The object of the pickle that begins at ``start``, and where it ends.

    ``rebuild``: full name -> what makes a value of the arguments (or an Opaque: their ``state`` comes later through
    its method ``with_state``). ``persistent`` is asked for what the pickle leaves to its file. Raises PickleError.
    """
    machine = _Machine(data, rebuild, persistent, start)
    try:
        tree = machine.run()
        most = _FREE_UNFOLDED + _MOST_UNFOLDED_FOR_A_BYTE * (machine.position - start)
        if machine.is_shared or machine.letters_again > most:
            _check_unfolded(tree, most)
        return tree, machine.position
    except PickleError:
        raise
    except (IndexError, struct.error, TypeError, KeyError, ValueError, OverflowError, RecursionError) as problem:
        raise PickleError(said("pickle-broken", machine.position)) from problem


class _Machine:
    """One run of one pickle."""

    def __init__(
        self,
        data: memoryview,
        rebuild: Mapping[str, Rebuild],
        persistent: Callable[[Any], Any] | None,
        start: int,
    ) -> None:
        self.data = data
        self.start = self.position = start
        self.spent = 0
        self.negative_keys = 0
        #: Whether a container stands in several places, and how many letters of texts do.
        self.is_shared = False
        self.letters_again = 0
        self.stack: list[Any] = []
        self.memo: dict[int, Any] = {}
        self.rebuild = rebuild
        self.persistent = persistent
        self.containers = 0
        self.many = factor()

    def run(self) -> Any:
        data, size, operations = self.data, len(self.data), _OPERATIONS
        for _ in range(int(_MOST_INSTRUCTIONS * self.many)):
            if self.position >= size:
                raise PickleError(said("pickle-ends-early"))
            code = data[self.position]
            self.position += 1
            if code == 0x2E:  # STOP
                return self.stack.pop()
            operation = operations.get(code)
            if operation is None:
                raise PickleError(said("pickle-instruction", code))
            operation(self)
        raise PickleError(said("pickle-instructions", _MOST_INSTRUCTIONS))

    def spend(self, count: int) -> None:
        """Count items and bytes that are copied, hashed or looked through beyond reading the pickle."""
        self.spent += count
        if self.spent > _FREE + _MOST_FOR_A_BYTE * (self.position - self.start):
            raise PickleError(said("pickle-repeats"))

    def take(self, count: int) -> memoryview:
        end = self.position + count
        if count < 0 or end > len(self.data):
            raise PickleError(said("pickle-ends-early"))
        piece = self.data[self.position : end]
        self.position = end
        return piece

    def number(self, form: struct.Struct) -> int:
        value: int = form.unpack(self.take(form.size))[0]
        return value

    def line(self) -> bytes:
        end = self.position
        while self.data[end] != 0x0A:
            end += 1
            if end - self.position > 1 << 16:
                raise PickleError(said("pickle-endless-line"))
        text = bytes(self.data[self.position : end])
        self.position = end + 1
        return text

    def contain(self, value: Any) -> None:
        self.containers += 1
        if self.containers > _MOST_CONTAINERS * self.many:
            raise PickleError(said("pickle-containers", _MOST_CONTAINERS))
        self.stack.append(value)

    def to_mark(self) -> list[Any]:
        stack = self.stack
        place = len(stack) - 1
        while stack[place] is not _MARK:
            place -= 1
            if place < 0:
                raise PickleError(said("pickle-without-mark"))
        items = stack[place + 1 :]
        del stack[place:]
        return items

    # ---- what instructions do ----

    def integer(self, length: int) -> None:
        if length > _MOST_INTEGER_BYTES:
            raise PickleError(said("pickle-integer", length))
        self.stack.append(int.from_bytes(self.take(length), "little", signed=True))

    def text(self, length: int) -> None:
        self.stack.append(str(self.take(length), "utf-8", "surrogatepass"))

    def octets(self, length: int) -> None:
        self.stack.append(bytes(self.take(length)))

    def name(self) -> None:
        module, name = self.line(), self.line()
        self.stack.append(Name(module.decode(), name.decode()))

    def stack_name(self) -> None:
        name, module = self.stack.pop(), self.stack.pop()
        if not isinstance(name, str) or not isinstance(module, str):
            raise PickleError(said("pickle-name-no-text"))
        self.stack.append(Name(module, name))

    def make(self, name: Any, arguments: Any) -> None:
        if not isinstance(name, Name) or not isinstance(arguments, tuple):
            raise PickleError(said("pickle-calls-no-name"))
        self.contain(self.made(name, arguments))

    def made(self, name: Name, arguments: tuple[Any, ...]) -> Any:
        if name.full in _OF_TYPE:
            # The function, the type that it is for, the arguments, the state.
            if len(arguments) < 3 or not isinstance(arguments[0], Name) or not isinstance(arguments[2], tuple):
                raise PickleError(said("pickle-type-undescribed"))
            if arguments[0].full in _OF_TYPE:
                raise PickleError(said("pickle-type-in-type"))
            return self.made(arguments[0], arguments[2])
        rebuild = self.rebuild.get(name.full)
        if rebuild is None:
            return Opaque(name, arguments)
        cost = len(arguments)
        for argument in arguments:
            if type(argument) in _SIZED:
                cost += len(argument)
        self.spend(cost)
        return rebuild(*arguments)

    def build(self) -> None:
        state = self.stack.pop()
        target = self.stack[-1]
        if isinstance(target, Opaque):
            target.state = state
        elif hasattr(target, "with_state"):
            for container in (state, *(state if isinstance(state, tuple) else ())):
                if type(container) in _SIZED:
                    self.spend(len(container))
            target.with_state(state)

    def put_items(self, items: list[Any]) -> None:
        target = self.stack[-1]
        if isinstance(target, Opaque):
            target = target.items
        if not isinstance(target, dict) or len(items) % 2:
            raise PickleError(said("pickle-pairs-no-dict"))
        for place in range(0, len(items), 2):
            key = items[place]
            target[key if type(key) is str else self.key(key)] = items[place + 1]

    def append(self, items: list[Any]) -> None:
        target = self.stack[-1]
        if isinstance(target, Opaque):
            target = target.elements
        if not isinstance(target, list):
            raise PickleError(said("pickle-appends-no-list"))
        target.extend(items)

    def key(self, value: Any, depth: int = 0) -> Any:
        """The value, if it can be a key without more ado: hashing a tuple goes through all of it, each time."""
        if isinstance(value, tuple):
            if depth >= _MOST_KEY_DEPTH:
                raise PickleError(said("pickle-keys-too-deep"))
            self.spend(len(value))
            for item in value:
                self.key(item, depth + 1)
        elif isinstance(value, int):
            if not -_LARGEST_KEY < value < _LARGEST_KEY:
                raise PickleError(said("pickle-key-too-long"))
            self.negative_keys += depth > 0 and value < 0
            if self.negative_keys > _MOST_NEGATIVE_KEYS:
                raise PickleError(said("pickle-negative-keys", _MOST_NEGATIVE_KEYS))
        elif not isinstance(value, (str, float, bytes, Name, Opaque, type(None))):
            raise PickleError(said("pickle-key-of-kind", type(value).__name__))
        return value

    def add(self) -> None:
        items = self.to_mark()
        target = self.stack[-1]
        if not isinstance(target, set):
            raise PickleError(said("pickle-adds-no-set"))
        target.update(map(self.key, items))

    def pairs(self) -> None:
        items = self.to_mark()
        self.contain({})
        self.put_items(items)

    def instance(self) -> None:
        items = self.to_mark()
        self.make(items[0], tuple(items[1:]))

    def named_instance(self) -> None:
        self.name()
        name = self.stack.pop()
        self.make(name, tuple(self.to_mark()))

    def with_keywords(self) -> None:
        keywords, arguments, name = self.stack.pop(), self.stack.pop(), self.stack.pop()
        self.make(name, arguments)
        if isinstance(self.stack[-1], Opaque) and isinstance(keywords, dict):
            self.stack[-1].state = keywords

    def left(self) -> None:
        if self.persistent is None:
            raise PickleError(said("pickle-points-outside"))
        self.stack.append(self.persistent(self.stack.pop()))

    def recall(self, index: int) -> None:
        value = self.memo[index]
        kind = type(value)
        if kind is str:
            self.letters_again += len(value)
        elif kind in _SHARED:
            self.is_shared = True
        self.stack.append(value)

    def again(self) -> None:
        self.is_shared = True
        self.stack.append(self.stack[-1])

    def keep(self, index: int) -> None:
        self.memo[index] = self.stack[-1]

    def last(self, count: int) -> None:
        if count > len(self.stack):
            raise PickleError(said("pickle-stack-empty"))
        items = tuple(self.stack[len(self.stack) - count :]) if count else ()
        if count:
            del self.stack[-count:]
        if any(item is _MARK for item in items):
            raise PickleError(said("pickle-mark-as-value"))
        self.contain(items)

    def plain_integer(self) -> None:
        text = self.line()
        if text in (b"00", b"01"):
            self.stack.append(text == b"01")
        else:
            self.stack.append(int(text[:_MOST_INTEGER_BYTES].rstrip(b"L")))

    def swap_two(self, function: Callable[[Any, Any], None]) -> None:
        second, first = self.stack.pop(), self.stack.pop()
        function(first, second)


_OF_TYPE = frozenset({"torch._tensor._rebuild_from_type_v2", "torch._tensor._rebuild_from_type"})
_U1, _U2, _I4, _U4, _U8 = (struct.Struct(form) for form in ("<B", "<H", "<i", "<I", "<Q"))
_FLOAT = struct.Struct(">d")


_SIZED = frozenset((str, bytes, tuple, list, dict, set, frozenset))


def _check_unfolded(root: Any, most: int) -> None:
    """Raise PickleError if the tree has more values and letters than ``most`` when it is written out."""
    sizes: dict[int, int] = {}
    todo: list[tuple[Any, bool]] = [(root, False)]
    while todo:
        node, is_ready = todo.pop()
        if not isinstance(node, _CONTAINERS):
            continue
        inner = _inner(node)
        if is_ready:
            size = 1
            for inner_value in inner:
                size += len(inner_value) if isinstance(inner_value, (str, bytes)) else sizes.get(id(inner_value), 1)
            sizes[id(node)] = min(size, most + 1)
        elif id(node) not in sizes:
            sizes[id(node)] = 1  # until it is known; for what holds itself, it counts once
            todo.append((node, True))
            todo.extend((inner_value, False) for inner_value in inner if isinstance(inner_value, _CONTAINERS))
    if sizes.get(id(root), 1) > most:
        raise PickleError(said("pickle-repeats"))


def _inner(node: Any) -> Iterable[Any]:
    if isinstance(node, Opaque):
        return (node.arguments, node.state, node.items, node.elements)
    return (*node.keys(), *node.values()) if isinstance(node, dict) else node


_CONTAINERS = (dict, list, tuple, set, frozenset, Opaque)
_SHARED = frozenset((*_CONTAINERS, bytes))


def _pop(machine: _Machine) -> None:
    machine.stack.pop()


_OPERATIONS: dict[int, Callable[[_Machine], Any]] = {
    ord(code): operation
    for code, operation in {
        "(": lambda m: m.stack.append(_MARK),
        "0": _pop,
        "1": lambda m: m.to_mark(),
        "2": lambda m: m.again(),
        "N": lambda m: m.stack.append(None),
        "\x88": lambda m: m.stack.append(True),
        "\x89": lambda m: m.stack.append(False),
        "I": lambda m: m.plain_integer(),
        "L": lambda m: m.plain_integer(),
        "J": lambda m: m.stack.append(m.number(_I4)),
        "K": lambda m: m.stack.append(m.number(_U1)),
        "M": lambda m: m.stack.append(m.number(_U2)),
        "\x8a": lambda m: m.integer(m.number(_U1)),
        "\x8b": lambda m: m.integer(m.number(_I4)),
        "F": lambda m: m.stack.append(float(m.line())),
        "G": lambda m: m.stack.append(_FLOAT.unpack(m.take(8))[0]),
        "X": lambda m: m.text(m.number(_U4)),
        "\x8c": lambda m: m.text(m.number(_U1)),
        "\x8d": lambda m: m.text(m.number(_U8)),
        "B": lambda m: m.octets(m.number(_U4)),
        "C": lambda m: m.octets(m.number(_U1)),
        "\x8e": lambda m: m.octets(m.number(_U8)),
        "\x96": lambda m: m.octets(m.number(_U8)),
        "T": lambda m: m.octets(m.number(_I4)),
        "U": lambda m: m.octets(m.number(_U1)),
        "V": lambda m: m.stack.append(m.line().decode("raw-unicode-escape")),
        "]": lambda m: m.contain([]),
        "}": lambda m: m.contain({}),
        ")": lambda m: m.stack.append(()),
        "\x8f": lambda m: m.contain(set()),
        "\x91": lambda m: m.contain(frozenset(map(m.key, m.to_mark()))),
        "l": lambda m: m.contain(m.to_mark()),
        "d": lambda m: m.pairs(),
        "t": lambda m: m.contain(tuple(m.to_mark())),
        "\x85": lambda m: m.last(1),
        "\x86": lambda m: m.last(2),
        "\x87": lambda m: m.last(3),
        "a": lambda m: m.append([m.stack.pop()]),
        "e": lambda m: m.append(m.to_mark()),
        "s": lambda m: m.swap_two(lambda key, value: m.put_items([key, value])),
        "u": lambda m: m.put_items(m.to_mark()),
        "\x90": lambda m: m.add(),
        "c": lambda m: m.name(),
        "\x93": lambda m: m.stack_name(),
        "R": lambda m: m.swap_two(m.make),
        "\x81": lambda m: m.swap_two(m.make),
        "\x92": lambda m: m.with_keywords(),
        "o": lambda m: m.instance(),
        "i": lambda m: m.named_instance(),
        "b": lambda m: m.build(),
        "Q": lambda m: m.left(),
        "g": lambda m: m.recall(int(m.line())),
        "h": lambda m: m.recall(m.number(_U1)),
        "j": lambda m: m.recall(m.number(_U4)),
        "p": lambda m: m.keep(int(m.line())),
        "q": lambda m: m.keep(m.number(_U1)),
        "r": lambda m: m.keep(m.number(_U4)),
        "\x94": lambda m: m.keep(len(m.memo)),
        "\x80": lambda m: m.take(1),
        "\x95": lambda m: m.take(8),
    }.items()
}
