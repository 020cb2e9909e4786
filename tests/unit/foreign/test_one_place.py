"""What strangers' files reach goes through one place each: found in the source, so that no second one comes unseen."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from support.row_by_row import for_each

import msprobe

_SOURCE = Path(msprobe.__file__).parent
#: Texts of scripts, which run where msprobe is not: they carry what they need.
_SCRIPTS = ("precheck/side", "precheck/scripts/call", "precheck/scripts/main", "precheck/mindspore/standalone")


def _name(node: ast.expr) -> str:
    if isinstance(node, ast.Attribute):
        return f"{_name(node.value)}.{node.attr}"
    return node.id if isinstance(node, ast.Name) else ""


def _is_constant(node: ast.expr) -> bool:
    """Whether a text is written in the source, put together of others, or of constants (``_NAMES``)."""
    if isinstance(node, ast.JoinedStr):
        return all(_is_constant(one) for one in node.values)
    if isinstance(node, ast.FormattedValue):
        return _is_constant(node.value)
    if isinstance(node, ast.BinOp):
        return _is_constant(node.left) and _is_constant(node.right)
    if isinstance(node, ast.Call):
        return _name(node.func) in ("re.escape", "map", "sorted") or (
            isinstance(node.func, ast.Attribute)
            and node.func.attr in ("join", "encode")
            and all(map(_is_constant, [node.func.value, *node.args]))
        )
    if isinstance(node, ast.Attribute) and node.attr == "pattern":  # of a constant pattern
        return _is_constant(node.value)
    return isinstance(node, ast.Constant) or _name(node).isupper() or _name(node).lstrip("_").isupper()


def _prints(call: ast.Call) -> bool:
    name = _name(call.func)
    if name == "print":
        return True
    return name in ("sys.stdout.write", "sys.stderr.write") and not all(map(_is_constant, call.args))


def _compiles(call: ast.Call) -> bool:
    functions = ("compile", "match", "search", "fullmatch", "sub", "subn", "split", "findall", "finditer")
    is_re = _name(call.func) in {f"re.{function}" for function in functions}
    return is_re and bool(call.args) and not _is_constant(call.args[0])


def _named(*names: str) -> Callable[[ast.Call], bool]:
    return lambda call: _name(call.func) in names


#: What is looked for, and where it may stand: the one place, and others with their reason.
_RULES: dict[str, tuple[Callable[[ast.Call], bool], dict[str, str]]] = {
    "printing": (
        _prints,
        {
            "launcher/runscript.py": "what the user's own script ends with, as Python says it",
            "demo/train.py": "the text of a script that the user gets, which has nothing of ours",
            "doctor/devices.py": "a process of its own, whose answer another reads",
        },
    ),
    "csv": (_named("csv.writer", "csv.DictWriter"), {"foreign/csv_cells.py": "the one place"}),
    "yaml": (
        _named(
            *("yaml.safe_load", "yaml.load", "yaml.safe_load_all", "yaml.load_all", "yaml.compose", "yaml.full_load"),
            *("yaml.unsafe_load", "yaml.parse", "yaml.compose_all"),
        ),
        {"capture/api_list.py": "a file of the package"},
    ),
    "sqlite": (
        _named("sqlite3.connect"),
        {
            "foreign/database.py": "the one place that reads",
            "graph/vis_db.py": "writes a new file",
            "monitor/trend_database.py": "writes a file of this run",
        },
    ),
    "patterns": (_compiles, {"foreign/patterns.py": "the one place"}),
    "nearest": (
        _named("difflib.get_close_matches"),
        {"foreign/nearest.py": "the one place", "paths.py": "below it; compares few names"},
    ),
}


def _calls() -> Iterator[tuple[str, ast.Call]]:
    for path in sorted(_SOURCE.rglob("*.py")):
        place = path.relative_to(_SOURCE).as_posix()
        if not place.startswith(_SCRIPTS):
            tree = ast.parse(path.read_text("utf-8"))
            yield from ((place, node) for node in ast.walk(tree) if isinstance(node, ast.Call))


@pytest.fixture(scope="module")
def calls() -> list[tuple[str, ast.Call]]:
    return list(_calls())


@pytest.mark.parametrize("rule", _RULES)
def test_there_is_one_place(rule: str, calls: list[tuple[str, ast.Call]]) -> None:
    is_meant, allowed = _RULES[rule]
    found = [(place, call.lineno) for place, call in calls if is_meant(call)]
    assert [f"{place}:{line}" for place, line in found if place not in allowed] == []
    assert sorted({place for place, _ in found}) == sorted(allowed), "a place that is allowed is not needed"


@for_each(
    ("text", "rule", "is_meant"),
    [
        ("print(x)", "printing", True),
        ("sys.stdout.write(x)", "printing", True),
        ("sys.stdout.write('x')", "printing", False),
        ("re.compile(text)", "patterns", True),
        ("re.compile(f'{text}$')", "patterns", True),
        ("re.compile(rf'{_NAMES}$')", "patterns", False),
        ("re.compile('a' 'b')", "patterns", False),
        ("yaml.safe_load(x)", "yaml", True),
        ("sqlite3.connect(x)", "sqlite", True),
        ("csv.writer(x)", "csv", True),
    ],
)
def test_the_rules_see_what_they_look_for(text: str, rule: str, is_meant: bool) -> None:
    call = ast.parse(text, mode="eval").body
    assert isinstance(call, ast.Call)
    assert _RULES[rule][0](call) is is_meant
