"""The types of what the server of the page answers, for TypeScript: made of :mod:`msprobe.view.protocol`.

``python tests/protocol_types.py`` writes ``web/source/data/protocol.ts``; a test holds that it is what it would write.
"""

from __future__ import annotations

import ast
import importlib.util
from collections.abc import Iterator
from pathlib import Path

FILE = Path(__file__).parents[1] / "web" / "source" / "data" / "protocol.ts"
_MADE = "// Written by `python tests/protocol_types.py`; change src/msprobe/view/protocol.py, and run it again.\n"
_NAMES = {"str": "string", "int": "number", "float": "number", "bool": "boolean"}


def protocol_types() -> str:
    """The whole file. ValueError for what is written in Python in a form that is not known here."""
    return "\n".join([_MADE, *_of_module("msprobe.view.protocol")])


def _of_module(module: str, wanted: set[str] | None = None) -> Iterator[str]:
    """All declarations of a module, behind those that it imports; or those that are wanted, and their parts."""
    spec = importlib.util.find_spec(module)
    assert spec is not None
    assert spec.origin is not None
    text = Path(spec.origin).read_text("utf-8")
    tree = ast.parse(text)
    for node in tree.body:
        if wanted is None and isinstance(node, ast.ImportFrom) and str(node.module).startswith("msprobe."):
            yield from _of_module(str(node.module), {alias.name for alias in node.names})
    declared = {_name_of(node): node for node in tree.body if isinstance(node, ast.ClassDef | ast.Assign)}
    needed: set[str] = set()
    todo = set(declared) if wanted is None else wanted
    while todo:
        needed |= todo
        parts = {part.id for name in todo for part in ast.walk(declared[name]) if isinstance(part, ast.Name)}
        todo = (parts & declared.keys()) - needed
    lines = text.splitlines()
    for name, node in declared.items():
        if name in needed:
            yield "\n".join(_declared(name, node, lines)) + "\n"


def _name_of(node: ast.ClassDef | ast.Assign) -> str:
    return node.name if isinstance(node, ast.ClassDef) else ast.unparse(node.targets[0])


def _declared(name: str, node: ast.ClassDef | ast.Assign, lines: list[str]) -> Iterator[str]:
    if isinstance(node, ast.Assign):
        yield from _comment(_above(node, lines), "")
        is_number = isinstance(node.value, ast.Constant)
        kind, value = ("const", ast.unparse(node.value)) if is_number else ("type", _type(node.value))
        yield f"export {kind} {name} = {value};"
        return
    yield from _comment(" ".join((ast.get_docstring(node) or "").split()), "")
    bases = [base for base in map(ast.unparse, node.bases) if base != "TypedDict"]
    yield f"export interface {name} {''.join(f'extends {base} ' for base in bases)}{{"
    for field in node.body:
        if isinstance(field, ast.AnnAssign):
            yield from _comment(_above(field, lines), "  ")
            yield f"  {ast.unparse(field.target)}: {_type(field.annotation)};"
    yield "}"


def _above(node: ast.stmt, lines: list[str]) -> str:
    """The comment right above a line."""
    last = first = node.lineno - 1
    while first and lines[first - 1].lstrip().startswith("#:"):
        first -= 1
    return " ".join(line.strip().removeprefix("#:").strip() for line in lines[first:last])


def _comment(text: str, indent: str) -> Iterator[str]:
    if text:
        yield f"{indent}/** {text.replace('``', '`')} */"


def _type(node: ast.expr) -> str:
    """A type as TypeScript writes it."""
    if isinstance(node, ast.Name):
        return _NAMES.get(node.id, node.id)
    if isinstance(node, ast.Constant) and node.value is None:
        return "null"
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.BitOr):
        return f"{_type(node.left)} | {_type(node.right)}"
    if isinstance(node, ast.Subscript):
        parts = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
        kind = ast.unparse(node.value)
        if kind == "Literal":
            return " | ".join(ast.unparse(part).replace("'", '"') for part in parts)
        types = [_type(part) for part in parts]
        if kind == "list":
            return f"({types[0]})[]" if " | " in types[0] else f"{types[0]}[]"
        if kind == "tuple":
            return f"[{', '.join(types)}]"
        if kind == "dict":
            # Of keys that are words of a list, not all need be there.
            return f"Record<string, {types[1]}>" if types[0] == "string" else f"Partial<Record<{types[0]}, {types[1]}>>"
    raise ValueError(f"no TypeScript for {ast.unparse(node)}")


if __name__ == "__main__":
    FILE.write_text(protocol_types(), "utf-8")
