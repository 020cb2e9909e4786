"""``--clean-output FILE.py:FUNCTION``: a function of the user that takes out of results what was never computed.

It is called as ``function(api_name, output, args, kwargs)`` and returns what is to be compared: results without the
padding behind their valid lengths, for one.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from pathlib import Path
from typing import Any

from msprobe.errors import InvalidInputError

Cleaning = Callable[[str, Any, Any, Any], Any]


def load_cleaning(text: str) -> Cleaning:
    """The function of ``FILE.py:FUNCTION``; the file is run. Raises InvalidInputError."""
    file, _, name = text.rpartition(":")
    path = Path(file)
    if not name.isidentifier() or path.suffix != ".py" or not path.is_file():
        raise InvalidInputError(f"--clean-output {text!r}: it must be FILE.py:FUNCTION, of a file that exists.")
    spec = importlib.util.spec_from_file_location("msprobe_clean_output", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except Exception as problem:
        why = f"{type(problem).__name__}: {problem}"
        raise InvalidInputError(f"--clean-output {text!r} cannot be loaded: {why}.") from None
    found = getattr(module, name, None)
    if not callable(found):
        raise InvalidInputError(f'--clean-output {text!r}: "{file}" has no function {name!r}.')
    return found  # type: ignore[no-any-return]


def cleaned(function: Callable[..., Any], api: str, cleaning: Cleaning) -> Callable[..., Any]:
    """The function with its results cleaned: gradients and disturbed runs see no other ones."""

    def call(*args: Any, **kwargs: Any) -> Any:
        return cleaning(api, function(*args, **kwargs), args, kwargs)

    return call
