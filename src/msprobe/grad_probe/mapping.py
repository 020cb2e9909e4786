"""Names of parameters of one run, and what these are called in another: a dict, or a file with one."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

from msprobe.config.declared import demand, is_object, is_str, read_declared
from msprobe.config.jsonc import Document, parse
from msprobe.config.mistakes import ConfigSource, raise_mistakes
from msprobe.errors import InvalidInputError
from msprobe.foreign.budget import SETTINGS, Budget
from msprobe.foreign.opening import read_bounded
from msprobe.foreign.patterns import Pattern, compile_pattern
from msprobe.messages import said
from msprobe.paths import check_readable_file

_NEW = Annotated[str, demand((is_str, "a text, the name in the second run"))]
_TABLE = Annotated[dict[str, _NEW], demand((is_object, "an object of names, each with its name in the second run"))]


def read_mapping(given: Mapping[str, str] | str | Path) -> tuple[Mapping[str, str], list[tuple[Pattern, str]]]:
    """The names, and the same as regular expressions with what replaces them. Raises PathError, and InvalidInputError
    with all that is wrong.
    """
    if isinstance(given, Mapping):
        source = ConfigSource("mapping", Document(given, {}, ()), {})
    else:
        file = check_readable_file(given, ".json", follow_symlink=True)
        source = ConfigSource(str(file), parse(read_bounded(file, Budget(file, SETTINGS)), str(file)), {})
    read = read_declared(_TABLE, source, "the mapping")
    mistakes = list(read.mistakes)
    patterns: list[tuple[Pattern, str]] = []
    for name, new in (read.value or {}).items():
        try:
            pattern = compile_pattern(name, "mapping")
            pattern.sub(new, "")
            patterns.append((pattern, new))
        except (re.error, IndexError, InvalidInputError) as problem:
            mistakes.append(source.mistake((name,), said("mapping-pattern-wrong", problem)))
    if mistakes:
        raise_mistakes(mistakes, source.name)
    return read.value, patterns
