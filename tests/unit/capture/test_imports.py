"""Modules of the recorder import each other in one direction, imports for type checkers included."""

from __future__ import annotations

import ast
from pathlib import Path

import msprobe

PACKAGE = Path(msprobe.__file__).parent


def imports_of(room: Path, root: Path) -> dict[str, set[str]]:
    """For each module below ``room`` those below it that it imports, anywhere in its text. ``root``: what names of
    modules begin at.
    """
    files = {".".join(file.relative_to(root).with_suffix("").parts): file for file in room.rglob("*.py")}
    modules = {name.removesuffix(".__init__"): file for name, file in files.items()}
    graph: dict[str, set[str]] = {}
    for name, file in modules.items():
        found: set[str] = set()
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.Import):
                found.update(alias.name for alias in node.names)
            elif isinstance(node, ast.ImportFrom) and node.module:
                inner = {f"{node.module}.{alias.name}" for alias in node.names} & modules.keys()
                found |= inner or {node.module}
        graph[name] = found & modules.keys() - {name}
    return graph


def cycles_in(graph: dict[str, set[str]]) -> list[set[str]]:
    """The groups of modules in which each reaches each."""
    reached: dict[str, set[str]] = {}
    for start in graph:
        seen: set[str] = set()
        ahead = [start]
        while ahead:
            for other in graph[ahead.pop()] - seen:
                seen.add(other)
                ahead.append(other)
        reached[start] = seen
    groups: list[set[str]] = []
    for name in sorted(graph):
        group = {other for other in reached[name] if name in reached[other]}
        if group and group not in groups:
            groups.append(group)
    return groups


def test_no_module_of_the_recorder_imports_what_imports_it() -> None:
    found = cycles_in(imports_of(PACKAGE / "capture", PACKAGE.parent))
    cycles = [sorted(cycle) for cycle in found]
    assert not cycles, "\n".join(f"these import each other: {', '.join(cycle)}" for cycle in cycles)


def test_a_cycle_is_found_also_where_only_a_type_checker_follows_it(tmp_path: Path) -> None:
    room = tmp_path / "room"
    room.mkdir()
    (room / "__init__.py").write_text("")
    (room / "first.py").write_text("def make():\n    from room.second import Second\n    return Second()\n")
    (room / "second.py").write_text("from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import room.third\n")
    (room / "third.py").write_text("from room import first, fourth\n")
    (room / "fourth.py").write_text("import ast\n")

    assert cycles_in(imports_of(room, tmp_path)) == [{"room.first", "room.second", "room.third"}]
