"""YAML files that people write by hand: lists and maps of names, and where each of them stands in the text.

Read to texts, lists and objects only: ``on``, ``1`` and ``1e5`` stay the texts they are, since they stand for
names here; an empty value, ``~`` and ``null`` are None. Where numbers are numbers, values are read as YAML means them
(``typed``); what stands before a colon is a text always. The result is a :class:`Source`, so that a mistake in a
YAML file is told as one in ``config.json`` is: with file, line and field.
"""

from __future__ import annotations

import os
from typing import Any, NoReturn

import yaml

from msprobe.config.jsonc import Document, DuplicateKey, FieldPath, Position
from msprobe.config.mistakes import Source
from msprobe.errors import InvalidInputError, PathError
from msprobe.paths import StrPath, check_readable_file

SUFFIXES = (".yaml", ".yml")
MOST_BYTES = 256 << 20
MOST_DEPTH = 50
# An alias repeats what it names; a few of them within each other make a small file endless.
MOST_VALUES = 3_000_000

_NULLS = ("", "~", "null", "Null", "NULL")
_PLAIN_TAGS = "tag:yaml.org,2002:"
_Loader: type[Any] = getattr(yaml, "CBaseLoader", yaml.BaseLoader)
_TypedLoader: type[Any] = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def read_yaml(path: StrPath, what: str = "YAML file") -> Source:
    """Read a ``.yaml`` file; ``what`` names it in messages (``data mapping``).

    Raises PathError if it cannot be read, InvalidInputError with its line if it is not YAML.
    """
    try:
        file = check_readable_file(path, SUFFIXES, MOST_BYTES, follow_symlink=True)
        data = file.read_bytes()
    except PathError as problem:
        raise PathError(f"{what}: {problem.message}") from problem
    except OSError as problem:
        raise PathError(f'{what}: file "{path}" cannot be read: {problem.strerror}.') from problem
    return parse_yaml(data, os.path.basename(os.fspath(path)))


def parse_yaml(data: str | bytes, name: str = "YAML", typed: bool = False) -> Source:
    """Parse a text, or bytes in UTF-8 or UTF-16. ``name`` stands before the line in messages."""
    loader = None
    try:
        loader = (_TypedLoader if typed else _Loader)(data)
        node = loader.get_single_node()
        document = _Reader(name, loader if typed else None).document(node)
    except yaml.MarkedYAMLError as problem:
        mark = problem.problem_mark or problem.context_mark
        where = name if mark is None else f"{name}:{mark.line + 1}:{mark.column + 1}"
        told = " ".join(str(problem.problem or problem.context or "it cannot be read").split())
        raise InvalidInputError(f"{where}: broken YAML: {told}.") from problem
    except yaml.YAMLError as problem:
        raise InvalidInputError(f"{name}: broken YAML: {' '.join(str(problem).split())[:200]}.") from problem
    except (UnicodeDecodeError, ValueError) as problem:
        raise InvalidInputError(f"{name}: not UTF-8 text; save the file as UTF-8.") from problem
    except RecursionError as problem:
        raise InvalidInputError(f"{name}: more than {MOST_DEPTH} levels within each other.") from problem
    finally:
        if loader is not None:
            loader.dispose()
    return Source(name, document, {})


class _Reader:
    """Turns YAML nodes to values and notes their places."""

    def __init__(self, name: str, typed: Any = None) -> None:
        self._name = name
        # The loader that makes numbers of what looks like one; None: all values are texts.
        self._typed = typed
        self._positions: dict[FieldPath, Position] = {}
        self._duplicates: list[DuplicateKey] = []
        self._values = 0

    def document(self, node: Any) -> Document:
        value = None if node is None else self._value(node, ())
        return Document(value, self._positions, tuple(self._duplicates))

    def _value(self, node: Any, path: FieldPath) -> Any:
        self._values += 1
        if len(path) > MOST_DEPTH:
            self._refuse(node, f"more than {MOST_DEPTH} levels within each other")
        if self._values > MOST_VALUES:
            self._refuse(node, f"more than {MOST_VALUES} values; do not let aliases repeat each other")
        if not str(node.tag).startswith(_PLAIN_TAGS) or str(node.tag)[len(_PLAIN_TAGS) :].startswith("python/"):
            self._refuse(node, f"the tag {node.tag} is not allowed; write plain texts, lists and objects")
        self._positions.setdefault(path, _position(node))
        if isinstance(node, yaml.MappingNode):
            return self._object(node, path)
        if isinstance(node, yaml.SequenceNode):
            return [self._value(item, (*path, number)) for number, item in enumerate(node.value)]
        if self._typed is not None:
            return self._typed_value(node)
        text = str(node.value)
        return None if not node.style and text in _NULLS else text  # no style: written without quotes

    def _typed_value(self, node: Any) -> Any:
        try:
            return self._typed.construct_object(node)
        except ValueError as problem:
            self._refuse(node, f"{str(node.value)[:40]!r} is no value of its kind ({problem})")

    def _object(self, node: Any, path: FieldPath) -> dict[str, Any]:
        found: dict[str, Any] = {}
        if self._typed is not None and len(path) < MOST_DEPTH:
            self._typed.flatten_mapping(node)  # <<: *defaults
        for key_node, value_node in node.value:
            if not isinstance(key_node, yaml.ScalarNode):
                self._refuse(key_node, "a name stands before the colon, not a list or an object")
            key = str(key_node.value)
            inner = (*path, key)
            if key in found:
                self._duplicates.append(DuplicateKey(inner, self._positions[inner], _position(key_node)))
                for old in [known for known in self._positions if known[: len(inner)] == inner]:
                    del self._positions[old]
            self._positions[inner] = _position(key_node)
            found[key] = self._value(value_node, inner)
        return found

    def _refuse(self, node: Any, text: str) -> NoReturn:
        place = _position(node)
        raise InvalidInputError(f"{self._name}:{place.line}:{place.column}: {text}.")


def _position(node: Any) -> Position:
    return Position(node.start_mark.line + 1, node.start_mark.column + 1)
