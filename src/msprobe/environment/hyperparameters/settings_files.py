"""Files of settings as nested dicts: YAML, JSON, TOML, INI, and Python files of plain assignments (not run)."""

from __future__ import annotations

import ast
import configparser
import json
import operator
from collections.abc import Callable
from typing import Any

import yaml

from msprobe.environment.checkpoint.contents import small_file
from msprobe.errors import InvalidInputError

_MOST_PYTHON_BYTES = 1 << 20
_MOST_POWER = 64
_ARITHMETIC: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
}


class _Loader(yaml.SafeLoader):
    """Plain data; what has a tag of its own is read as if it had none."""


def _untagged(loader: _Loader, node: yaml.Node) -> Any:
    if isinstance(node, yaml.MappingNode):
        return loader.construct_mapping(node, deep=True)
    if isinstance(node, yaml.SequenceNode):
        return loader.construct_sequence(node, deep=True)
    return str(node.value)


_Loader.add_constructor(None, _untagged)


def read_yaml(path: str) -> dict[Any, Any]:
    """The mappings of all documents of the file."""
    found: dict[Any, Any] = {}
    try:
        for document in yaml.load_all(_text(path), _Loader):
            if document is not None:
                found.update(_mapping(path, document))
    except (yaml.YAMLError, RecursionError, ValueError, TypeError) as problem:
        raise InvalidInputError(f'"{path}" is no readable YAML file: {_one_line(problem)}.') from problem
    return found


def read_json(path: str) -> dict[Any, Any]:
    """The object of the file; of a ``trainer_state.json`` without what was logged."""
    try:
        found = _mapping(path, json.loads(_text(path)))
    except (ValueError, RecursionError) as problem:
        raise InvalidInputError(f'"{path}" is no readable JSON file: {_one_line(problem)}.') from problem
    if "log_history" in found:
        if isinstance(found.get("args"), dict):
            return dict(found["args"])
        result = ("log_history", "stateful_callbacks", "total_flos", "best_metric", "best_model_checkpoint", "epoch")
        return {key: value for key, value in found.items() if key not in (*result, "global_step", "best_global_step")}
    return found


def read_toml(path: str) -> dict[Any, Any]:
    """The tables of the file. Raises InvalidInputError where this Python reads no TOML, too."""
    try:
        import tomllib
    except ImportError:
        raise InvalidInputError(
            f'"{path}": TOML is read with Python 3.11 or newer; write the settings as YAML or JSON.'
        ) from None
    try:
        return dict(tomllib.loads(_text(path)))
    except (tomllib.TOMLDecodeError, RecursionError) as problem:
        raise InvalidInputError(f'"{path}" is no readable TOML file: {_one_line(problem)}.') from problem


def read_ini(path: str) -> dict[Any, Any]:
    """The sections of the file; a file without sections is one of its own."""
    text = _text(path)
    parser = configparser.ConfigParser(interpolation=None, strict=False, default_section="")
    parser.optionxform = str  # type: ignore[assignment,method-assign]
    try:
        try:
            parser.read_string(text)
        except configparser.MissingSectionHeaderError:
            parser.read_string(f"[ ]\n{text}")
    except configparser.Error as problem:
        raise InvalidInputError(f'"{path}" is no readable INI file: {_one_line(problem)}.') from problem
    found: dict[Any, Any] = {}
    for section in parser.sections():
        values = dict(parser.items(section))
        found.update(values if section == " " else {section: values})
    return found


def read_python(path: str) -> dict[Any, Any]:
    """What a Python file assigns at its top, and in classes there: literals, arithmetic of numbers, ``dict(...)``."""
    text = _text(path)
    if len(text) > _MOST_PYTHON_BYTES:
        raise InvalidInputError(f'"{path}" has more than {_MOST_PYTHON_BYTES} bytes; this is no file of settings.')
    try:
        return _assigned(ast.parse(text).body, {})
    except (SyntaxError, ValueError, RecursionError, MemoryError) as problem:
        raise InvalidInputError(f'"{path}" is no readable Python file: {_one_line(problem)}.') from problem


def _assigned(body: list[ast.stmt], outer: dict[str, Any]) -> dict[Any, Any]:
    found: dict[Any, Any] = {}
    for statement in body:
        if isinstance(statement, ast.ClassDef):
            found[statement.name] = _assigned(statement.body, {**outer, **found})
            continue
        targets = statement.targets if isinstance(statement, ast.Assign) else [getattr(statement, "target", None)]
        value = statement.value if isinstance(statement, (ast.Assign, ast.AnnAssign)) else None
        names = [target.id for target in targets if isinstance(target, ast.Name) and not target.id.startswith("_")]
        if value is None or not names:
            continue
        try:
            found.update(dict.fromkeys(names, _literal(value, {**outer, **found})))
        except _NotPlainError:
            for name in names:  # what was assigned before no longer holds
                found.pop(name, None)
    return {name: value for name, value in found.items() if value != {} or not isinstance(value, dict)}


class _NotPlainError(Exception):
    pass


def _literal(node: ast.expr, known: dict[str, Any]) -> Any:
    if isinstance(node, ast.Constant) and node.value is not ...:
        return node.value
    if isinstance(node, ast.Name) and node.id in known:
        return known[node.id]
    if isinstance(node, (ast.List, ast.Tuple, ast.Set)):
        return [_literal(one, known) for one in node.elts]
    if isinstance(node, ast.Dict) and all(node.keys):
        pairs = zip(node.keys, node.values, strict=True)
        return {str(_literal(key, known)): _literal(value, known) for key, value in pairs if key is not None}
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "dict" and not node.args:
        return {word.arg: _literal(word.value, known) for word in node.keywords if word.arg}
    if isinstance(node, (ast.UnaryOp, ast.BinOp)):
        return _computed(node, known)
    raise _NotPlainError


def _computed(node: ast.UnaryOp | ast.BinOp, known: dict[str, Any]) -> Any:
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
    if not isinstance(value, (int, float)):
        raise _NotPlainError
    return value


def _text(path: str) -> str:
    return small_file(path).decode("utf-8-sig", "replace")


def _mapping(path: str, found: Any) -> dict[Any, Any]:
    if not isinstance(found, dict):
        raise InvalidInputError(f'"{path}" must hold names and values, found a {type(found).__name__}.')
    return found


def _one_line(problem: BaseException) -> str:
    mark = getattr(problem, "problem_mark", None)
    if mark is not None:
        return f"line {mark.line + 1}, column {mark.column + 1}: {getattr(problem, 'problem', '')}"
    return " ".join(str(problem).split())[:200] or type(problem).__name__
