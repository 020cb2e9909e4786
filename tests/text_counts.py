"""How many texts of each file stand outside of the catalogue, and how many sentences each test pins.

``python tests/text_counts.py`` writes ``tests/text_counts.json`` where a count has become smaller; a test holds that
none grows. What is counted: in ``src``, sentences in ``raise`` and in the log that are built on the spot and not by
:func:`msprobe.messages.said`; in ``tests``, sentences in ``assert`` and in ``match=``. A sentence has four words or
more.
"""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
COUNTS = Path(__file__).with_suffix(".json")
_SENTENCE = re.compile(r"(?:[A-Za-z'`\"]+,? ){3,}[A-Za-z'`\"]+")
_LOG = {"warning", "error", "info", "once"}


def _texts(node: ast.AST) -> Iterator[ast.AST]:
    """Literals in a node that read as sentences, each as a whole."""
    inside = {id(value) for one in ast.walk(node) if isinstance(one, ast.JoinedStr) for value in one.values}
    for one in ast.walk(node):
        if isinstance(one, ast.JoinedStr):
            whole = "".join(str(value.value) if isinstance(value, ast.Constant) else "x" for value in one.values)
        elif isinstance(one, ast.Constant) and isinstance(one.value, str) and id(one) not in inside:
            whole = one.value
        else:
            continue
        if _SENTENCE.search(whole):
            yield one


def _is_of_python(error: ast.AST) -> bool:
    """Errors with the words that Python itself has for them."""
    return isinstance(error, ast.Call) and ast.unparse(error.func) in ("AttributeError", "json.JSONDecodeError")


def _said_on_the_spot(tree: ast.AST) -> Iterator[ast.AST]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Raise) and node.exc is not None and not _is_of_python(node.exc):
            yield node.exc
        elif (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Attribute)
            and node.func.attr in _LOG
            and isinstance(node.func.value, ast.Name)
            and node.func.value.id == "log"
        ):
            yield node


def _pinned(tree: ast.AST) -> Iterator[ast.AST]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Assert):
            yield node.test
        elif isinstance(node, ast.keyword) and node.arg == "match":
            yield node.value


def counts(folder: str) -> dict[str, int]:
    """File -> how many, of files that have any; of ``src`` or of ``tests``."""
    find = _said_on_the_spot if folder == "src" else _pinned
    found = {}
    for file in sorted((ROOT / folder).rglob("*.py")):
        tree = ast.parse(file.read_text("utf-8"))
        number = len({id(text) for node in find(tree) for text in _texts(node)})
        if number:
            found[file.relative_to(ROOT).as_posix()] = number
    return found


def known() -> dict[str, int]:
    """The counts that are written down."""
    found: dict[str, int] = json.loads(COUNTS.read_text("utf-8"))
    return found


if __name__ == "__main__":
    before = known() if COUNTS.exists() else {}
    now = {**counts("src"), **counts("tests")}
    kept = {file: min(number, before.get(file, number)) if before else number for file, number in now.items()}
    COUNTS.write_text(json.dumps(kept, indent=0) + "\n", "utf-8")
