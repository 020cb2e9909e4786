"""How many texts of each file stand outside of the catalogue, and how many sentences each test pins.

``python tests/text_counts.py`` writes ``tests/text_counts.json`` (tests) and ``tests/text_counts_in_src.json`` where a
count has become smaller; a test holds that none grows. What is counted: in ``src``, every text of four words or more
that is not made by :func:`msprobe.messages.said` or :func:`~msprobe.messages.both`; in ``tests``, sentences in
``assert`` and in ``match=``. ``python tests/text_counts.py src`` lists them.
"""

from __future__ import annotations

import ast
import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path

from msprobe.messages.words import WORDS

ROOT = Path(__file__).parents[1]
COUNTS = {"src": Path(__file__).with_name("text_counts_in_src.json"), "tests": Path(__file__).with_suffix(".json")}
_SENTENCE = re.compile(r"(?:[A-Za-z'`\"]+,? ){3,}[A-Za-z'`\"]+")

#: What makes texts in both languages, or none that users read: patterns, lists of names, lines for debugging.
_MAKES_NO_TEXT = re.compile(r"(?:\w+\.)*(?:said|both|compile|debug|_names|_in)|.*\.split")
#: Errors with the words that Python itself has for them.
_OF_PYTHON = ("AttributeError", "json.JSONDecodeError")
#: Statements for a database.
_SQL = re.compile(r"\s*(?:SELECT|INSERT|CREATE|ORDER BY|PRAGMA|ATTACH|UPDATE|DELETE)\b")
_TAG = re.compile(r"<[^<>]*>")
#: How a command is called.
_CALLED = re.compile(r"msprobe (?:-f \{[\w,]+\} )?[\w ]+ [A-Z{\[-]")
_CHINESE = re.compile("[\u4e00-\u9fff]")
_WORD = re.compile(r"[A-Za-z]{2,}")
#: Values and columns of the sheets and lines of the shell of mindstudio-probe 8.1.1, and values of dumps: programs read
#: them.
PUBLISHED = {
    "One Thousandth Err Ratio",
    "Five Thousandths Err Ratio",
    "Accuracy Reached or Not",
    "No bench data matched.",
    "only bench has this env",
    "only cmp has this env",
    "Command invalid, Only support command start with cad/vc/dc/pk/cn/pt",
    "maximum value is less than the minimum threshold",
    "0-dimension must greater than 1",
    "at least one of 0-dimension or 1-dimension greater than 1",
    "File x, line x, in x, \n x",
    # Written by the C extension as well.
    "nested deeper than x",
    "more than x values",
    # Read, not written: the summary of our distribution of an earlier name.
    "Summary: Tells where two neural-network trainings part ways",
}
#: The catalogue itself; names of arguments; what is written into scripts, or run by the torch of a different
#: environment, where there is no catalogue.
_NOT_COUNTED = (
    "messages/",
    "__main__.py",
    "children/first.py",
    "diagnose/steps/argument_names.py",
)


def _texts(node: ast.AST) -> Iterator[tuple[ast.expr, str]]:
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
            yield one, whole


def _is_code(text: str) -> bool:
    """A program, or a statement for a database."""
    if _SQL.match(text) or text.startswith("def "):
        return True
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError):
        return "\n" in text and ("{\n" in text or ";\n" in text)
    return not all(isinstance(each, ast.Expr) and isinstance(each.value, ast.Name) for each in tree.body)


def _is_of_users(text: str) -> bool:
    sentences = _TAG.sub("", text)
    if text in PUBLISHED or text in WORDS or _CALLED.match(text) or _is_code(text):
        return False
    return bool(_SENTENCE.search(sentences)) and len(_WORD.findall(sentences)) >= 3


def _is_in_both_languages(pair: ast.Tuple) -> bool:
    """A text and its Chinese, side by side."""
    texts = [each.value for each in pair.elts if isinstance(each, ast.Constant) and isinstance(each.value, str)]
    return len(texts) == len(pair.elts) == 2 and bool(_CHINESE.search(texts[1]))


def _outside_of_catalogue(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Line and text of each that a user can meet and that the catalogue does not have."""
    skipped = set()
    for node in ast.walk(tree):
        beginning = getattr(node, "body", None)
        if isinstance(beginning, list):  # docstrings
            skipped.update(id(each.value) for each in beginning if isinstance(each, ast.Expr))
        if isinstance(node, ast.Tuple) and _is_in_both_languages(node):
            skipped.add(id(node.elts[0]))
        if isinstance(node, ast.Call):
            name = ast.unparse(node.func)
            if name in _OF_PYTHON or _MAKES_NO_TEXT.fullmatch(name):
                skipped.update(id(each) for each in ast.walk(node) if isinstance(each, ast.Constant | ast.JoinedStr))
    for literal, text in _texts(tree):
        if id(literal) not in skipped and _is_of_users(text):
            yield literal.lineno, text


def _pinned(tree: ast.AST) -> Iterator[tuple[int, str]]:
    found = {}
    for node in ast.walk(tree):
        asserted = node.test if isinstance(node, ast.Assert) else None
        if isinstance(node, ast.keyword) and node.arg == "match":
            asserted = node.value
        if asserted is not None:
            found.update({id(literal): (literal.lineno, text) for literal, text in _texts(asserted)})
    for line, text in found.values():
        if text not in PUBLISHED and text not in WORDS and len(_WORD.findall(text)) >= 3:
            yield line, text


def listed(folder: str) -> dict[str, list[tuple[int, str]]]:
    """File -> lines and texts, of files that have any; of ``src`` or of ``tests``."""
    find = _outside_of_catalogue if folder == "src" else _pinned
    found = {}
    for file in sorted((ROOT / folder).rglob("*.py")):
        if file.relative_to(ROOT).as_posix().startswith(tuple(f"src/msprobe/{one}" for one in _NOT_COUNTED)):
            continue
        if texts := list(find(ast.parse(file.read_text("utf-8")))):
            found[file.relative_to(ROOT).as_posix()] = texts
    return found


def counts(folder: str) -> dict[str, int]:
    """File -> how many."""
    return {file: len(texts) for file, texts in listed(folder).items()}


def known(folder: str) -> dict[str, int]:
    """The counts that are written down."""
    found: dict[str, int] = json.loads(COUNTS[folder].read_text("utf-8"))
    return found


if __name__ == "__main__":
    for each in sys.argv[1:]:
        for file, texts in listed(each).items():
            for line, text in texts:
                print(f"{file}:{line}: {text!r}")
    for folder, file in COUNTS.items():
        before = known(folder) if file.exists() else {}
        kept = {each: min(number, before.get(each, number)) for each, number in counts(folder).items()}
        file.write_text(json.dumps(kept, indent=0) + "\n", "utf-8")
