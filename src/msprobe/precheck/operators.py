"""``--operators FILE.yaml``: what operators compute that torch does not have, as functions for the CPU.

``operators: {npu_my_norm: {forward: norms.py:my_norm, backward: norms.py:my_gradients, description: ...}}``; files are
looked for beside the yaml file. ``backward`` may be left out where the gradients are those of ``forward``.
"""

from __future__ import annotations

from typing import Any

from msprobe.errors import InvalidInputError
from msprobe.foreign.budget import SETTINGS, Budget
from msprobe.foreign.opening import read_bounded
from msprobe.paths import StrPath, check_readable_file

_ALLOWED = ("forward", "backward", "description")


def read_operators(path: StrPath) -> dict[str, tuple[str, str]]:
    """Name of an operator -> ``FILE.py:FUNCTION`` of its forward and of its backward, if it has one of its own, the
    files by their whole paths.

    All mistakes are told at once. Raises PathError or InvalidInputError.
    """
    from msprobe.foreign import yaml_text

    file = check_readable_file(path, (".yaml", ".yml"))
    content = yaml_text.load(read_bounded(file, Budget(path, SETTINGS)), path)
    given = content.get("operators") if isinstance(content, dict) else None
    if not isinstance(given, dict) or not given:
        raise InvalidInputError(f'"{path}" must have "operators", an object of at least one operator.')
    mistakes, found = [], {}
    for name, entry in given.items():
        functions = {"forward": None, **entry} if isinstance(entry, dict) else {"forward": None}
        functions = {which: functions[which] for which in ("forward", "backward") if which in functions}
        wrong = {which: value for which, value in functions.items() if not _is_function(value)}
        mistakes += [f'"{name}": "{which}" is {value!r}; allowed: FILE.py:FUNCTION' for which, value in wrong.items()]
        if wrong:
            continue
        unknown = [str(key) for key in entry if key not in _ALLOWED]
        if unknown:
            mistakes.append(f'"{name}": {", ".join(unknown)} is not known; allowed: {", ".join(_ALLOWED)}')
        paths = {which: str(file.parent.absolute() / str(value)) for which, value in functions.items()}
        found[str(name)] = (paths["forward"], paths.get("backward", ""))
    if mistakes:
        raise InvalidInputError(f'"{path}": {"; ".join(mistakes)}.')
    return found


def _is_function(value: Any) -> bool:
    if not isinstance(value, str):
        return False
    file, _, name = value.rpartition(":")
    return file.endswith(".py") and name.isidentifier()
