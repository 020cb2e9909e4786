"""Configurations of Hydra: a file whose ``defaults`` name further files, put together as Hydra does it.

``_self_`` counts where it stands, and last where it does not (as from Hydra 1.2 on). References ``${a.b}`` are put in;
what only a run would say (``${oc.env:HOME}``) stays as it is written.
"""

from __future__ import annotations

import os
import re
from typing import Any

from msprobe.environment.hyperparameters.settings_files import read_yaml
from msprobe.errors import InvalidInputError
from msprobe.foreign.budget import SETTINGS, Budget
from msprobe.foreign.opening import open_regular
from msprobe.messages import said

_PACKAGE = re.compile(r"\A(?:\s*#[^\n]*\n)*?\s*#\s*@package\s+(\S+)")
_REFERENCE = re.compile(r"\$\{([A-Za-z_][\w.]*)\}")
_MOST_DEPTH = 20
_MOST_FILES = 1000


def compose(path: str) -> tuple[dict[Any, Any], list[str]]:
    """The whole configuration that the file stands for, and notes of what was not found. Raises InvalidInputError."""
    composer = _Composer(os.path.dirname(path) or ".", Budget(path, SETTINGS))
    composer.put_file(os.path.basename(path), "", (), 0)
    composer.tree.pop("hydra", None)
    return _Resolver(composer.tree, composer.budget).value(composer.tree), composer.notes


class _Composer:
    """``tree`` is the configuration as far as it is put together; a package: where in it a file's settings go."""

    def __init__(self, root: str, budget: Budget) -> None:
        self.root, self.budget, self.notes = root, budget, list[str]()
        self.files = 0
        self.tree: dict[Any, Any] = {}

    def put_file(self, name: str, group: str, package: tuple[str, ...], depth: int) -> None:
        """Put in the settings of a file of a group, and those of the files that its defaults name."""
        path = os.path.join(self.root, group, name)
        self.files += 1
        if self.files > _MOST_FILES or len(package) > _MOST_DEPTH:
            raise InvalidInputError(said("hydra-too-many-files", path, _MOST_FILES, _MOST_DEPTH))
        self.budget.spend_bytes(os.path.getsize(path) if os.path.isfile(path) else 0)
        own = read_yaml(path)
        entries = own.pop("defaults", None) or []
        entries = entries if isinstance(entries, list) else [entries]
        for entry in entries if "_self_" in entries else [*entries, "_self_"]:
            if entry == "_self_":
                tree = own
                for part in reversed(package):
                    tree = {part: tree}
                _merge(self.tree, tree)
            elif isinstance(entry, str):
                folder, option = os.path.split(entry.lstrip("/"))
                inner = folder if entry.startswith("/") else os.path.join(group, folder)
                self.put_option(inner, option, (*package, *_parts(folder)), path, depth)
            elif isinstance(entry, dict) and len(entry) == 1:
                self.put_group(entry, group, package, path, depth)

    def put_group(self, entry: dict[Any, Any], group: str, package: tuple[str, ...], path: str, depth: int) -> None:
        """An entry ``group: option``, with ``optional`` before it and ``@package`` behind it."""
        key, options = next(iter(entry.items()))
        words = str(key).split() or [""]
        name, _, package_name = words[-1].partition("@")
        if options is None or "override" in words or name.lstrip("/").startswith("hydra/"):
            return
        inner = name.strip("/") if name.startswith("/") else os.path.join(group, name)
        place = _parts(inner) if name.startswith("/") else (*package, *_parts(name))
        if package_name:
            place = () if package_name == "_global_" else (*package, *_parts(package_name))
        for option in options if isinstance(options, list) else [options]:
            self.put_option(inner, str(option), place, path, depth, "optional" in words)

    def put_option(
        self, group: str, name: str, package: tuple[str, ...], named_by: str, depth: int, is_optional: bool = False
    ) -> None:
        name = name if name.endswith((".yaml", ".yml")) else f"{name}.yaml"
        path = os.path.join(self.root, group, name)
        root = os.path.abspath(self.root)
        inside = os.path.commonpath([os.path.abspath(path), root]) == root
        if depth <= _MOST_DEPTH and inside and os.path.isfile(path):
            header = _header(path)
            if header is not None and header != "_here_":
                package = () if header == "_global_" else _parts(group if header == "_group_" else header)
            self.put_file(name, group, package, depth + 1)
        elif not is_optional:
            self.notes.append(said("hydra-file-missing", path, named_by))


def _parts(package: str) -> tuple[str, ...]:
    return tuple(part for part in re.split(r"[./]", package) if part and part not in ("_here_", "_group_"))


def _header(path: str) -> str | None:
    with open_regular(path) as file:
        match = _PACKAGE.match(file.read(4096).decode("utf-8", "replace"))
    return match[1] if match else None


def _merge(into: dict[Any, Any], tree: dict[Any, Any]) -> None:
    for key, value in tree.items():
        known = into.get(key)
        if isinstance(known, dict) and isinstance(value, dict):
            _merge(known, value)
        else:
            into[key] = {**value} if isinstance(value, dict) else value


class _Resolver:
    """Puts references in. What they come to is counted: a few that name each other stand for texts without end."""

    def __init__(self, tree: dict[Any, Any], budget: Budget) -> None:
        self.tree, self.budget = tree, budget

    def value(self, value: Any, depth: int = 0) -> Any:
        """The value with what its references name."""
        self.budget.spend_items()
        if depth > _MOST_DEPTH:
            return value
        if isinstance(value, dict):
            return {key: self.value(element, depth + 1) for key, element in value.items()}
        if isinstance(value, list):
            return [self.value(element, depth + 1) for element in value]
        if not isinstance(value, str) or "${" not in value:
            return value
        whole = _REFERENCE.fullmatch(value)
        if whole:
            target = _at(self.tree, whole[1])
            return value if target is None else self.value(target, depth + 1)

        def text(match: re.Match[str]) -> str:
            resolved = self.value(_at(self.tree, match[1]), depth + 1)
            shown = match[0] if resolved is None or isinstance(resolved, (dict, list)) else str(resolved)
            self.budget.spend_bytes(len(shown))
            return shown

        return _REFERENCE.sub(text, value)


def _at(tree: Any, name: str) -> Any:
    for part in name.split("."):
        tree = tree.get(part) if isinstance(tree, dict) else None
    return tree
