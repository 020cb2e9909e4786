"""Private names of torch stand in one place: the rule that :mod:`msprobe.capture.torch.private` states."""

from __future__ import annotations

import ast
import functools
import pkgutil
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from support.coded_texts import mentions

import msprobe
from msprobe import log
from msprobe.capture.torch import private
from msprobe.messages import said

PACKAGE = Path(msprobe.__file__).parent
# Formats of files name classes of torch; nothing of torch is asked for there.
FORMATS = {"store", "checkpoint"}
ROOMS = [path for path in sorted(PACKAGE.rglob("*.py")) if not FORMATS & set(path.relative_to(PACKAGE).parts)]
RECORDER = PACKAGE / "capture" / "torch"
LOOKED_UP = {RECORDER / "private.py", RECORDER / "private_compiler.py"}
LISTED = frozenset().union(*private.ATTRIBUTES.values())


def is_private(name: str) -> bool:
    return name.startswith("_") and not name.startswith("__") and name != "_"


@functools.cache
def trees() -> list[tuple[Path, ast.Module]]:
    return [(path, ast.parse(path.read_text())) for path in ROOMS if path not in LOOKED_UP]


@pytest.fixture(scope="module", autouse=True)
def _trees_go() -> Iterator[None]:
    """They have a million objects, which every later collection of garbage would look through."""
    yield
    trees.cache_clear()


def dotted(node: ast.AST) -> list[str]:
    """``a.b.c`` as its names; empty for anything else."""
    names: list[str] = []
    while isinstance(node, ast.Attribute):
        names.append(node.attr)
        node = node.value
    return [node.id, *reversed(names)] if isinstance(node, ast.Name) else []


def imported(tree: ast.Module) -> Iterator[tuple[str, str]]:
    """What a file imports: the name that it uses, and the full name."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((name.asname or name.name.split(".")[0], name.name) for name in node.names)
        elif isinstance(node, ast.ImportFrom) and not node.level:
            yield from ((name.asname or name.name, f"{node.module}.{name.name}") for name in node.names)


def of_torch(name: str) -> bool:
    return name.split(".")[0] == "torch"


def texts(tree: ast.Module) -> Iterator[ast.Constant]:
    """All texts of a file but its docstrings and the parts of f-strings."""
    described = {
        id(node.body[0].value)
        for node in ast.walk(tree)
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef))
        if node.body and isinstance(node.body[0], ast.Expr)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in described:
            yield node


def defined() -> set[str]:
    """The private names that the package itself gives to anything."""
    names: set[str] = set()
    for _, tree in trees():
        for node in ast.walk(tree):
            if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
                names.add(node.name)
            elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
                names.add(node.attr)
            elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
                names.add(node.id)
    return {name for name in names if is_private(name)} - LISTED


def attributes(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """The private attributes that a file asks objects of others for."""
    standard = {used for used, name in imported(tree) if name.split(".")[0] in sys.stdlib_module_names}
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and is_private(node.attr):
            owner = node.value.id if isinstance(node.value, ast.Name) else ""
            if owner not in ("self", "cls", *standard):
                yield node.lineno, node.attr
        elif isinstance(node, ast.Call) and dotted(node.func)[-1:] in (["getattr"], ["hasattr"], ["setattr"]):
            name = node.args[1]
            if isinstance(name, ast.Constant) and isinstance(name.value, str) and is_private(name.value):
                yield name.lineno, name.value


def test_private_names_of_torch_are_looked_up_in_one_place() -> None:
    found: list[str] = []
    for path, tree in trees():
        place = path.relative_to(PACKAGE)
        names = dict(imported(tree))
        found += [f"{place}: import {n}" for n in names.values() if of_torch(n) and any(map(is_private, n.split(".")))]
        for node in ast.walk(tree):
            parts = dotted(node)
            if parts and of_torch(names.get(parts[0], "")) and any(map(is_private, parts[1:])):
                found.append(f"{place}:{node.lineno}: {'.'.join(parts)}")  # type: ignore[attr-defined]
        for text in texts(tree):
            if re.search(r"\btorch(\.\w+)*\._[A-Za-z]", text.value):
                found.append(f'{place}:{text.lineno}: "{text.value}"')
    assert not found


def test_private_attributes_of_objects_of_torch_are_listed() -> None:
    ours = defined()
    asked: set[str] = set()
    unlisted: list[str] = []
    for path, tree in trees():
        if RECORDER in path.parents or path.parent == PACKAGE / "launcher":
            for line, name in attributes(tree):
                asked.add(name)
                if name not in ours | LISTED:
                    unlisted.append(f"{path.name}:{line}: {name}")
    assert not unlisted
    named = {part for path in RECORDER.rglob("*.py") if path not in LOOKED_UP for part in _words(path)}
    assert not {name for name in LISTED if name not in asked | named}, "listed and not used"


def test_private_attributes_that_the_c_code_asks_for_are_listed() -> None:
    files = list(PACKAGE.glob("capture/**/*.[ch]"))
    assert files
    names = {name for path in files for name in re.findall(r'"(_[a-z][a-z_]+)"', path.read_text())}
    assert {"_cdata", "_version"} <= names
    assert not names - LISTED - defined() - {"_native"}


def _words(path: Path) -> set[str]:
    return set(re.findall(r"\w+", path.read_text()))


def test_abilities_need_private_names_of_torch() -> None:
    names = [path for row in private.ABILITIES.values() for need in row.needs for path in need.split(" or ")]
    assert all(name.split(".")[0] == "torch" for name in names)
    assert all(any(map(is_private, name.split("."))) for name in names)


@pytest.mark.skipif(not torch.__version__.startswith("2.13"), reason="other versions may lack some of it")
def test_this_torch_has_all_that_is_asked_for() -> None:
    import torch._dynamo
    import torch.distributed._functional_collectives  # noqa: F401

    lost = {ability: private.missing(ability) for ability in private.ABILITIES}
    assert not any(lost.values())


def test_what_is_missing_is_said_once(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setitem(private.ABILITIES, "flying", private.Ability(("torch._C._wings",), "without-modules"))
    log.forget_once()
    assert not private.has("flying")
    assert not private.has("flying")
    (line,) = capfd.readouterr().out.splitlines()
    without = said("without-modules")
    assert mentions(line, "torch-lacks", reason=said("torch-has-no", "torch._C._wings"), without=without)
    private._missing.pop("flying")


def test_looking_up_imports_nothing() -> None:
    assert private.find("torch._no_such_module.name") is None
    there = [f"torch.utils.{module.name}" for module in pkgutil.iter_modules(torch.utils.__path__)]
    unused = [name for name in there if name not in sys.modules and "__main__" not in name]
    assert unused
    assert [name for name in unused if private.find(f"{name}.name") is not None or name in sys.modules] == []
    assert private.find("torch.Tensor._version") is torch.Tensor._version
