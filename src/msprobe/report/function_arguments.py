"""Arguments of ``compare``, ``compare_distributed`` and ``ms_compare``: checked, with all mistakes reported at once."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

from msprobe import log
from msprobe.compare.problems import ComparisonError, InvalidArgumentError, InvalidPathError, WrongTypeError
from msprobe.messages import Wording, joined, said

#: Of several mistakes, the error that callers of mindstudio-probe 8.1.1 meet first.
_ORDER = (WrongTypeError, InvalidArgumentError, InvalidPathError)


class FunctionArguments:
    """Collects what is wrong with the arguments of one call of ``function``; :meth:`say` raises all of it."""

    def __init__(self, function: str) -> None:
        self._function = function
        self._mistakes: list[tuple[type[ComparisonError], str]] = []

    def demand(self, is_right: bool, text: str, kind: type[ComparisonError] = InvalidArgumentError) -> None:
        """Note a mistake unless ``is_right``."""
        if not is_right:
            self._mistakes.append((kind, text))

    def flags(self, **flags: object) -> None:
        """Each must be True or False."""
        for name, value in flags.items():
            self.demand(type(value) is bool, said("flag-must-be-a-bool", name, repr(value)))

    def suffix(self, value: object) -> None:
        """A word that can stand in the name of a file."""
        is_word = isinstance(value, str) and "/" not in value
        self.demand(is_word, said("suffix-must-be-a-word", repr(value)))

    def path(self, name: str, value: object) -> None:
        """A text or path object."""
        self.demand(_is_path(value), said("must-be-a-path", name, type(value).__name__), WrongTypeError)

    def fields(self, input_param: object, names: Sequence[str], kind: type[ComparisonError]) -> list[str]:
        """The paths that ``input_param`` has in these fields."""
        if not isinstance(input_param, Mapping):
            text = said("must-be-a-dict", "input_param", type(input_param).__name__)
            self._mistakes.append((WrongTypeError, text))
            return []
        paths: list[str] = []
        for name in names:
            value: Any = input_param.get(name)
            if _is_path(value) and os.fspath(value):
                paths.append(os.fspath(value))
            else:
                self.demand(False, said("field-must-be-a-dump", name, repr(value)), kind)
        return paths

    def warn(self) -> None:
        """Raise one error with all mistakes, if there are any."""
        kinds = [kind for kind, _ in self._mistakes]
        for kind in _ORDER:
            if kind in kinds:
                raise kind(Wording("{}: {}.", self._function, joined("; ", (text for _, text in self._mistakes))))

    def warn_unknown(self, given: Mapping[str, Any], known: Sequence[str]) -> None:
        """Say which keywords are not known: as in mindstudio-probe 8.1.1 they do nothing."""
        unknown = [name for name in given if name not in known]
        if unknown:
            log.warning(said("keywords-unknown", self._function, ", ".join(unknown), ", ".join(known)))


def _is_path(value: Any) -> bool:
    return isinstance(value, (str, os.PathLike))
