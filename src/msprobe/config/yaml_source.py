"""YAML files that people write by hand: lists and maps of names, and where each of them stands in the text.

Read to texts, lists and objects only: ``on``, ``1`` and ``1e5`` stay the texts they are, since they stand for
names here; an empty value, ``~`` and ``null`` are None. Where numbers are numbers, values are read as YAML means them
(``typed``); what stands before a colon is a text always. The result is a :class:`ConfigSource`, so that a mistake in a
YAML file is reported as one in ``config.json`` is: with file, line and field.
"""

from __future__ import annotations

import os
from dataclasses import replace
from typing import Any, NoReturn

from msprobe.config.jsonc import Document, DuplicateKey, FieldPath, Position, forget_fields
from msprobe.config.mistakes import ConfigSource
from msprobe.errors import InvalidInputError, PathError
from msprobe.foreign import yaml_text
from msprobe.foreign.budget import SETTINGS, Budget
from msprobe.foreign.opening import read_bounded
from msprobe.messages import Wording, said
from msprobe.paths import StrPath, check_readable_file

SUFFIXES = (".yaml", ".yml")
MOST_BYTES = 256 << 20
MOST_DEPTH = 50
# Mappings of names are as long as a model has parts.
_LIMITS = replace(SETTINGS, bytes=MOST_BYTES, items=20_000_000, seconds=600.0)

_NULLS = ("", "~", "null", "Null", "NULL")


def read_yaml(path: StrPath, what: str = "YAML file") -> ConfigSource:
    """Read a ``.yaml`` file; ``what`` names it in messages (``data mapping``).

    Raises PathError if it cannot be read, InvalidInputError with its line if it is not YAML.
    """
    try:
        file = check_readable_file(path, SUFFIXES, MOST_BYTES, follow_symlink=True)
        data = read_bounded(file, Budget(path, _LIMITS))
    except PathError as problem:
        raise PathError(Wording("{}: {}", what, problem.message)) from problem
    except OSError as problem:
        raise PathError(said("yaml-unreadable", what, path, problem.strerror)) from problem
    return parse_yaml(data, os.path.basename(os.fspath(path)))


def parse_yaml(data: str | bytes, name: str = "YAML", typed: bool = False) -> ConfigSource:
    """Parse a text, or bytes in UTF-8 or UTF-16. ``name`` stands before the line in messages."""
    try:
        nodes = yaml_text.documents(data, name, _LIMITS)
        if len(nodes) > 1:
            raise yaml_text.YamlError.at(name, said("yaml-second-document"), *nodes[1].begins)
        return ConfigSource(name, _Reader(name, typed).document(nodes[0] if nodes else None), {})
    except yaml_text.YamlError as problem:
        where = f"{name}:{problem.line}:{problem.column}" if problem.line else name
        raise InvalidInputError(f"{where}: broken YAML: {problem.problem}.") from problem


class _Reader:
    """Turns YAML nodes to values and notes their places."""

    def __init__(self, name: str, typed: bool) -> None:
        self._name = name
        # Whether numbers are made of what looks like one; otherwise all values are texts.
        self._typed = typed
        self._positions: dict[FieldPath, Position] = {}
        self._duplicates: list[DuplicateKey] = []

    def document(self, node: yaml_text.YamlNode | None) -> Document:
        value = None if node is None else self._value(node, ())
        return Document(value, self._positions, tuple(self._duplicates))

    def _value(self, node: yaml_text.YamlNode, path: FieldPath) -> Any:
        if len(path) > MOST_DEPTH:
            self._refuse(node, said("yaml-levels", MOST_DEPTH))
        if yaml_text.has_own_tag(node):
            self._refuse(node, said("yaml-tag-not-allowed", node.tag[:60]))
        self._positions.setdefault(path, _position(node))
        if node.kind == "mapping":
            return self._object(node, path)
        if node.kind == "sequence":
            return [self._value(item, (*path, number)) for number, item in enumerate(node.value)]
        if self._typed:
            return self._typed_value(node)
        text = str(node.value)
        return None if node.is_plain and text in _NULLS else text

    def _typed_value(self, node: yaml_text.YamlNode) -> Any:
        try:
            return yaml_text.scalar(node, self._name)
        except yaml_text.YamlError as problem:
            self._refuse(node, problem.problem)

    def _object(self, node: yaml_text.YamlNode, path: FieldPath) -> dict[str, Any]:
        fields: dict[str, Any] = {}
        pairs = yaml_text.merged(node) if self._typed else node.value  # <<: *defaults
        for key_node, value_node in pairs:
            if key_node.kind != "scalar":
                self._refuse(key_node, said("yaml-name-wrong"))
            key = str(key_node.value)
            inner = (*path, key)
            if key in fields:
                self._duplicates.append(DuplicateKey(inner, self._positions[inner], _position(key_node)))
                forget_fields(self._positions, inner, fields[key])
            self._positions[inner] = _position(key_node)
            fields[key] = self._value(value_node, inner)
        return fields

    def _refuse(self, node: yaml_text.YamlNode, text: str) -> NoReturn:
        place = _position(node)
        raise InvalidInputError(f"{self._name}:{place.line}:{place.column}: {text}.")


def _position(node: yaml_text.YamlNode) -> Position:
    return Position(node.line, node.column)
