"""What the check asks of a framework; ``torch`` and ``mindspore`` answer."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, cast

from msprobe.config.mistakes import did_you_mean, ended
from msprobe.errors import InvalidInputError
from msprobe.messages import said

FRAMEWORKS = ("pytorch", "mindspore")
_HOMES = {"pytorch": "msprobe.config_check.torch", "mindspore": "msprobe.config_check.mindspore"}

Remove = Callable[[], None]


@dataclass(frozen=True)
class WatchedFunction:
    """A function of random numbers: the module (or class) that has it, its name there, and its name in the pack.

    ``seeds``: it sets the state of a generator; its first argument is noted. ``compiles``: it draws nothing, but what
    it compiles, at once or from then on (``compiles_later``), must find all functions as they are.
    """

    home: str
    attribute: str
    name: str
    seeds: bool = False
    compiles: bool = False
    compiles_later: bool = False


@dataclass(frozen=True)
class TensorFacts:
    """A tensor's statistics, as float32 has them (None where it has no elements), and a digest of its bytes."""

    statistics: dict[str, float | None]
    digest: str | None


class CheckedFramework(Protocol):
    """One framework, as this process has it."""

    #: Functions of it that draw random numbers or set seeds.
    functions: Sequence[WatchedFunction]
    #: Modules of its compiler that must find these functions as they are when they are imported.
    compilers: Sequence[str]

    def is_compiling(self) -> bool:
        """True while a program is traced, whose text must not have our calls in it."""

    def models_of(self, model: Any) -> list[Any]:
        """The model, or the models of a list. Raises InvalidInputError for anything else."""

    def rank(self) -> int:
        """The rank of this process, 0 for a single one."""

    def watch(
        self, model: Any, before: Callable[[tuple[Any, ...], dict[str, Any]], None], after: Callable[[], None]
    ) -> Remove | None:
        """Call ``before`` with the arguments of each forward pass and ``after`` behind it, until what is returned is
        called. None if nothing can be called there (a compiled graph).
        """

    def may_compile(self, models: Sequence[Any]) -> bool:
        """True where the forward pass that begins may be compiled: functions must be as they are."""

    def parameters(self, models: Sequence[Any]) -> dict[str, Any]:
        """Parameters by name; those of a second model have its number before them."""

    def is_tensor(self, value: Any) -> bool:
        """True for a tensor."""

    def measure(self, tensors: Sequence[Any]) -> list[TensorFacts | None]:
        """Statistics and digests; None for a tensor without values. Changes no tensor and no generator."""

    def generator_states(self) -> dict[str, str]:
        """A digest of the state of each generator of the framework."""

    def dropout(self, models: Sequence[Any]) -> dict[str, dict[str, Any]]:
        """``{"p", "training"}`` of each dropout layer, by name."""


def framework(name: object) -> CheckedFramework:
    """The framework of this name. Raises InvalidInputError for another name."""
    if not isinstance(name, str) or name not in FRAMEWORKS:
        near = did_you_mean(name, FRAMEWORKS)
        raise InvalidInputError(ended(said("fmk-unknown", ", ".join(FRAMEWORKS), name, near)))
    return cast("CheckedFramework", importlib.import_module(_HOMES[name]).FRAMEWORK)


def features(values: Mapping[str, Any], framework_used: CheckedFramework) -> tuple[dict[str, Any], dict[str, str]]:
    """Nested arguments as mindstudio-probe writes them, and the digests of their tensors by path (``args.0``).

    A tensor becomes its statistics, a list or tuple a dict by index, a dict one by key, anything else an empty text.
    """
    tensors: list[tuple[str, Any]] = []
    places: list[tuple[dict[str, Any], str]] = []

    def grown(tree: Any, path: str, depth: int) -> Any:
        inner: Any = None
        if isinstance(tree, (list, tuple)):
            inner = enumerate(tree)
        elif isinstance(tree, Mapping):
            inner = tree.items()
        if inner is None or depth > _MOST_DEPTH:
            return ""
        copy: dict[str, Any] = {}
        for key, value in inner:
            if framework_used.is_tensor(value):
                tensors.append((f"{path}.{key}", value))
                places.append((copy, str(key)))
                copy[str(key)] = ""
            else:
                copy[str(key)] = grown(value, f"{path}.{key}", depth + 1)
        return copy

    result = {name: grown(tree, name, 0) for name, tree in values.items()}
    digests: dict[str, str] = {}
    for (path, _), (where, key), measured in zip(
        tensors, places, framework_used.measure([tensor for _, tensor in tensors]), strict=True
    ):
        if measured is not None:
            where[key] = measured.statistics
            if measured.digest is not None:
                digests[path] = measured.digest
    return result, digests


_MOST_DEPTH = 20
