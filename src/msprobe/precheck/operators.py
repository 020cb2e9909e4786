"""``--operators FILE.yaml``: what operators compute that torch does not have, as functions for the CPU.

``operators: {npu_my_norm: {forward: norms.py:my_norm, description: ...}}``; files are looked for beside the yaml file.
"""

from __future__ import annotations

from typing import Any

from msprobe import log
from msprobe.errors import InvalidInputError
from msprobe.paths import StrPath, check_readable_file

_ALLOWED = ("forward", "backward", "description")


def read_operators(path: StrPath) -> dict[str, str]:
    """Name of an operator -> ``FILE.py:FUNCTION``, the file by its whole path.

    All mistakes are told at once. Raises PathError or InvalidInputError.
    """
    import yaml

    file = check_readable_file(path, (".yaml", ".yml"))
    try:
        content = yaml.safe_load(file.read_text(encoding="utf-8"))
    except (yaml.YAMLError, UnicodeDecodeError) as problem:
        raise InvalidInputError(f'"{path}" is no readable YAML file: {" ".join(str(problem).split())}.') from None
    given = content.get("operators") if isinstance(content, dict) else None
    if not isinstance(given, dict) or not given:
        raise InvalidInputError(f'"{path}" must have "operators", an object of at least one operator.')
    mistakes, found = [], {}
    for name, entry in given.items():
        forward = entry.get("forward") if isinstance(entry, dict) else None
        if not _is_function(forward):
            mistakes.append(f'"{name}": "forward" is {forward!r}; allowed: FILE.py:FUNCTION')
            continue
        unknown = [str(key) for key in entry if key not in _ALLOWED]
        if unknown:
            mistakes.append(f'"{name}": {", ".join(unknown)} is not known; allowed: {", ".join(_ALLOWED)}')
        if "backward" in entry:
            log.warning(f'"{path}": the gradients of {name} are those of its forward; "backward" is not used.')
        found[str(name)] = str(file.parent.absolute() / str(forward))
    if mistakes:
        raise InvalidInputError(f'"{path}": {"; ".join(mistakes)}.')
    return found


def _is_function(value: Any) -> bool:
    if not isinstance(value, str):
        return False
    file, _, name = value.rpartition(":")
    return file.endswith(".py") and name.isidentifier()
