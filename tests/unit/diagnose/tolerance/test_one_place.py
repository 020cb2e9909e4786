"""What rounding may do, and what operators do, is said in one place each: nothing else counts in units of rounding."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.row_by_row import for_each

import msprobe.diagnose
from msprobe.diagnose import operators

ROOT = Path(msprobe.diagnose.__file__).parent
#: Names of numbers that are units of rounding, or limits made of them.
UNITS = frozenset("unit units rounding eps epsilon eps_of of_pair epsilon_of unit_of unit_of_run".split())
TABLES = frozenset("BY_ROUNDING BY_CALL BY_MODULE BY_STEP SMALL_GRADIENT EPSILON FLOAT8 FINE".split())
WORDS = frozenset().union(*(value for value in vars(operators).values() if isinstance(value, frozenset)))
#: A word is that of an operator, and of other things, too.
OF_OTHERS = frozenset(
    "float half double pow min max sum mean norm copy item type bfloat16 normal uniform scatter gather recv".split()
)


def _name(node: ast.AST) -> str:
    if isinstance(node, ast.Call):
        return _name(node.func)
    if isinstance(node, ast.Attribute):
        return node.attr
    return node.id if isinstance(node, ast.Name) else ""


def arithmetic(tree: ast.AST) -> Iterator[str]:
    """Where units of rounding are multiplied, or a limit is taken from their table."""
    for node in ast.walk(tree):
        if isinstance(node, ast.BinOp):
            if (isinstance(node.op, ast.Pow) and isinstance(node.right, ast.UnaryOp)) or (
                isinstance(node.op, (ast.Mult, ast.Div)) and UNITS & {_name(node.left), _name(node.right)}
            ):
                yield f"line {node.lineno}: {ast.unparse(node)}"
        elif isinstance(node, (ast.Attribute, ast.Name)) and _name(node) in TABLES:
            yield f"line {node.lineno}: {ast.unparse(node)}"
        elif isinstance(node, ast.ImportFrom):
            for alias in node.names:
                if alias.name in TABLES | {"epsilon_of"}:
                    yield f"line {node.lineno}: imports {alias.name}"


def operator_lists(tree: ast.AST) -> Iterator[str]:
    """Where several operators are listed by name."""
    for node in ast.walk(tree):
        words: list[str] = []
        if isinstance(node, (ast.Tuple, ast.Set, ast.List)):
            words = [one.value for one in node.elts if isinstance(one, ast.Constant) and isinstance(one.value, str)]
        elif isinstance(node, ast.Call) and _name(node.func) == "split" and isinstance(node.func, ast.Attribute):
            value = node.func.value
            words = value.value.split() if isinstance(value, ast.Constant) and isinstance(value.value, str) else []
        if len(WORDS.intersection(words) - OF_OTHERS) > 1:
            yield f"line {node.lineno}: {' '.join(words)[:80]}"


def files(*without: str) -> list[Path]:
    found = sorted(path for path in ROOT.rglob("*.py") if path.relative_to(ROOT).parts[0] not in without)
    assert len(found) > 50
    return found


# The judge of rows has limits of its own as long as it stands beside the verdict.
@for_each("path", files("tolerance", "measured"))
def test_only_tolerance_counts_in_units_of_rounding(path):
    assert list(arithmetic(ast.parse(path.read_text()))) == []


# What is said of an overflow depends on the operator; there no operators are listed.
@for_each(
    "path",
    [path for path in files("operators.py") if path.name != "overflow_words.py"],
)
def test_operators_are_listed_in_one_table(path):
    assert list(operator_lists(ast.parse(path.read_text()))) == []


@pytest.mark.parametrize(
    "text",
    [
        "clear = delta > 16 * unit",
        "clear = delta > eps_of(leaf) * 4",
        "limit = 2.0**-7",
        "from msprobe.compare.number_types import EPSILON",
        "allowed = units.BY_CALL + own",
    ],
)
def test_arithmetic_is_seen(text):
    assert list(arithmetic(ast.parse(text)))


@pytest.mark.parametrize("text", ['A = frozenset("cat stack hstack".split())', 'A = ("softmax", "log_softmax")'])
def test_lists_are_seen(text):
    assert list(operator_lists(ast.parse(text)))


def test_every_operator_has_the_name_that_calls_have():
    from msprobe.compare.entry_names import operation

    renamed = {word: operation(f"Tensor.{word}") for word in WORDS - operators.BEGIN}
    assert {word: name for word, name in renamed.items() if name != word} == {}


def test_no_set_of_operators_takes_the_name_of_another():
    names = [
        node.targets[0].id
        for node in ast.parse(Path(operators.__file__).read_text()).body
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name)
    ]
    assert [name for name in names if names.count(name) > 1] == []
