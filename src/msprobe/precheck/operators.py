"""``--operators FILE.yaml``: what operators compute that torch does not have, as functions for the CPU.

``operators: {npu_my_norm: {forward: norms.py:my_norm, backward: norms.py:my_gradients, description: ...}}``; files are
looked for beside the yaml file. ``backward`` may be left out where the gradients are those of ``forward``.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

from pydantic import Field

from msprobe.config.declared import Declared, demand, is_filled_object, is_object, read_declared
from msprobe.config.mistakes import raise_in_one_line
from msprobe.config.yaml_source import read_yaml
from msprobe.errors import InvalidInputError
from msprobe.paths import StrPath


def _is_function(value: Any) -> bool:
    file, _, name = value.rpartition(":") if isinstance(value, str) else ("", "", "")
    return file.endswith(".py") and name.isidentifier()


_Function = Annotated[str, demand((_is_function, "FILE.py:FUNCTION"))]


class _Operator(Declared):
    forward: _Function = Field(description="give FILE.py:FUNCTION")
    backward: _Function | None = None
    description: Any = None


class _File(Declared):
    operators: Annotated[
        dict[str, Annotated[_Operator, demand((is_object, "an object with forward"))]],
        demand((is_filled_object, "an object of at least one operator")),
    ] = Field(description="give an object of at least one operator")


_FILE = Annotated[_File, demand((is_object, "an object with operators"))]


def read_operators(path: StrPath) -> dict[str, tuple[str, str]]:
    """Name of an operator -> ``FILE.py:FUNCTION`` of its forward and of its backward, if it has one of its own, the
    files by their whole paths.

    All mistakes are reported at once. Raises PathError or InvalidInputError.
    """
    read = read_declared(_FILE, read_yaml(path, "operators"), "the file")
    if read.mistakes:
        raise_in_one_line(read.mistakes, InvalidInputError)

    def whole(function: str | None) -> str:
        return str(Path(path).parent.absolute() / function) if function else ""

    operators: dict[str, _Operator] = read.value.operators
    return {name: (whole(operator.forward), whole(operator.backward)) for name, operator in operators.items()}
