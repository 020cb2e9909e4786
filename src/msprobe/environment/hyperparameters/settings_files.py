"""Files of settings as nested dicts: YAML, JSON, TOML, INI, and Python files of plain assignments (not run)."""

from __future__ import annotations

import ast
import json
import operator
import re
from collections import ChainMap
from collections.abc import Callable, MutableMapping
from typing import Any

from msprobe.environment.checkpoint.contents import small_file
from msprobe.errors import InvalidInputError, in_one_line
from msprobe.foreign import yaml_text
from msprobe.foreign.budget import SETTINGS
from msprobe.messages import said

_MOST_PYTHON_BYTES = 1 << 20
_MOST_POWER = 64
#: Classes within each other.
_MOST_CLASSES = 20
#: Bits of a number of the most digits that a setting may have.
_MOST_BITS = int(SETTINGS.digits * 3.33)
_MOST_DOTS = 64
_DOT_OF_A_NAME = re.compile(r"[\w\"']\.(?=[\w\"'])")
_RUN_OF_A_NAME = re.compile(r"[\w.\"'-]+")
_ARITHMETIC: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
}


def read_yaml(path: str) -> dict[Any, Any]:
    """The mappings of all documents of the file; what has a tag of its own is read as if it had none."""
    documents: dict[Any, Any] = {}
    for document in yaml_text.load_all(_text(path), path, ignores_tags=True):
        if document is not None:
            documents.update(_mapping(path, document))
    return documents


def read_json(path: str) -> dict[Any, Any]:
    """The object of the file; of a ``trainer_state.json`` without what was logged."""
    try:
        settings = _mapping(path, json.loads(_text(path)))
    except (ValueError, RecursionError) as problem:
        raise InvalidInputError(said("settings-json-unreadable", path, in_one_line(problem))) from problem
    if "log_history" in settings:
        if isinstance(settings.get("args"), dict):
            return dict(settings["args"])
        result = ("log_history", "stateful_callbacks", "total_flos", "best_metric", "best_model_checkpoint", "epoch")
        return {
            key: value for key, value in settings.items() if key not in (*result, "global_step", "best_global_step")
        }
    return settings


def read_toml(path: str) -> dict[Any, Any]:
    """The tables of the file. Raises InvalidInputError where this Python reads no TOML, too."""
    try:
        import tomllib
    except ImportError:
        raise InvalidInputError(said("toml-needs-newer-python", path)) from None
    text = _text(path)
    # A name with many dots costs the square of their number.
    for run in _RUN_OF_A_NAME.finditer(text.replace(" ", "").replace("\t", "")):
        if run[0].count(".") > _MOST_DOTS and len(_DOT_OF_A_NAME.findall(run[0])) > _MOST_DOTS:
            raise InvalidInputError(said("settings-name-too-deep", path, _MOST_DOTS))
    try:
        return dict(tomllib.loads(text))
    except (ValueError, RecursionError) as problem:  # a number of thousands of digits is a ValueError
        raise InvalidInputError(said("toml-unreadable", path, in_one_line(problem))) from problem


def read_ini(path: str) -> dict[Any, Any]:
    """The sections of the file, with texts; what stands before the first section is beside them."""
    settings: dict[Any, Any] = {}
    section = settings
    lines: list[str] = []
    name = ""

    def close() -> None:
        if name:
            section[name] = "\n".join(lines).rstrip()

    for number, line in enumerate(_text(path).splitlines(), 1):
        text = line.strip()
        if not text or text[0] in "#;":
            continue
        if line[0] in " \t" and name:  # goes on with the value before
            lines.append(text)
            continue
        close()
        name = ""
        if text[0] == "[":
            if "]" not in text:
                raise InvalidInputError(said("ini-bracket", path, number))
            section = settings.setdefault(text[1 : text.rindex("]")], {})
            continue
        ends = [place for place in (text.find("="), text.find(":")) if place > 0]
        if not ends or not isinstance(section, dict):
            raise InvalidInputError(said("ini-line", path, number, text[:60]))
        name, lines = text[: min(ends)].rstrip(), [text[min(ends) + 1 :].strip()]
    close()
    return settings


def read_python(path: str) -> dict[Any, Any]:
    """What a Python file assigns at its top, and in classes there: literals, arithmetic of numbers, ``dict(...)``."""
    text = _text(path)
    if len(text) > _MOST_PYTHON_BYTES:
        raise InvalidInputError(said("python-settings-too-large", path, _MOST_PYTHON_BYTES))
    try:
        return _assigned(ast.parse(text).body, ChainMap())
    except (SyntaxError, ValueError, RecursionError, MemoryError) as problem:
        raise InvalidInputError(said("python-settings-unreadable", path, in_one_line(problem))) from problem


def _assigned(body: list[ast.stmt], known: ChainMap[str, Any]) -> dict[Any, Any]:
    if len(known.maps) > _MOST_CLASSES:
        return {}
    assigned: dict[str, Any] = {}
    known = known.new_child(assigned)
    for statement in body:
        if isinstance(statement, ast.ClassDef):
            assigned[statement.name] = _assigned(statement.body, known)
            continue
        targets = statement.targets if isinstance(statement, ast.Assign) else [getattr(statement, "target", None)]
        value = statement.value if isinstance(statement, (ast.Assign, ast.AnnAssign)) else None
        names = [target.id for target in targets if isinstance(target, ast.Name) and not target.id.startswith("_")]
        if value is None or not names:
            continue
        try:
            assigned.update(dict.fromkeys(names, _literal(value, known)))
        except _NotPlainError:
            for name in names:  # what was assigned before no longer holds
                assigned.pop(name, None)
    return {name: value for name, value in assigned.items() if value != {} or not isinstance(value, dict)}


class _NotPlainError(Exception):
    pass


def _literal(node: ast.expr, known: MutableMapping[str, Any]) -> Any:
    if isinstance(node, ast.Constant) and node.value is not ...:
        return node.value
    if isinstance(node, ast.Name) and node.id in known:
        return known[node.id]
    if isinstance(node, (ast.List, ast.Tuple, ast.Set)):
        return [_literal(element, known) for element in node.elts]
    if isinstance(node, ast.Dict) and all(node.keys):
        pairs = zip(node.keys, node.values, strict=True)
        return {_name(_literal(key, known)): _literal(value, known) for key, value in pairs if key is not None}
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "dict" and not node.args:
        return {word.arg: _literal(word.value, known) for word in node.keywords if word.arg}
    if isinstance(node, (ast.UnaryOp, ast.BinOp)):
        return _computed(node, known)
    raise _NotPlainError


def _computed(node: ast.UnaryOp | ast.BinOp, known: MutableMapping[str, Any]) -> Any:
    if isinstance(node, ast.UnaryOp):
        value = _number(_literal(node.operand, known))
        if isinstance(node.op, ast.Not):
            return not value
        return -value if isinstance(node.op, ast.USub) else value
    left, right = (_number(_literal(side, known)) for side in (node.left, node.right))
    try:
        if isinstance(node.op, ast.Pow) and abs(left) <= 1 << 32 and abs(right) <= _MOST_POWER:
            return left**right
        return _ARITHMETIC[type(node.op)](left, right)
    except (KeyError, ArithmeticError) as problem:
        raise _NotPlainError from problem


def _number(value: Any) -> Any:
    if not isinstance(value, (int, float)) or (isinstance(value, int) and value.bit_length() > _MOST_BITS):
        raise _NotPlainError
    return value


def _name(value: Any) -> str:
    if isinstance(value, (list, dict)):  # a name may stand for a list of lists without end
        raise _NotPlainError
    return str(value)


def _text(path: str) -> str:
    return small_file(path).decode("utf-8-sig", "replace")


def _mapping(path: str, settings: Any) -> dict[Any, Any]:
    if not isinstance(settings, dict):
        raise InvalidInputError(said("settings-form", path, type(settings).__name__))
    return settings
