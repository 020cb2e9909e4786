"""Functions of the user that a check calls: what cleans results, and what fused operators compute.

``--clean-output FILE.py:FUNCTION`` is called as ``function(api_name, output, args, kwargs)`` and returns what is to be
compared: results without the padding behind their valid lengths, for one.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from pathlib import Path
from typing import Any

from msprobe.errors import InvalidInputError


def load_function(text: str, option: str) -> Callable[..., Any]:
    """The function of ``FILE.py:FUNCTION``; the file is run. Raises InvalidInputError."""
    file, _, name = text.rpartition(":")
    path = Path(file)
    if not name.isidentifier() or path.suffix != ".py" or not path.is_file():
        raise InvalidInputError(f"{option} {text!r}: it must be FILE.py:FUNCTION, of a file that exists.")
    spec = importlib.util.spec_from_file_location(f"msprobe_user_code_{path.stem}", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except Exception as problem:
        why = f"{type(problem).__name__}: {problem}"
        raise InvalidInputError(f"{option} {text!r} cannot be loaded: {why}.") from None
    found = getattr(module, name, None)
    if not callable(found):
        raise InvalidInputError(f'{option} {text!r}: "{file}" has no function {name!r}.')
    return found  # type: ignore[no-any-return]


def cleaned(function: Callable[..., Any], api: str, cleaning: Callable[..., Any]) -> Callable[..., Any]:
    """The function with its results cleaned: gradients and disturbed runs see no other ones."""

    def call(*args: Any, **kwargs: Any) -> Any:
        return cleaning(api, function(*args, **kwargs), args, kwargs)

    return call
