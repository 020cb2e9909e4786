"""Calls of random functions: how often, from where, and which seeds were set, while functions are replaced by ones that
count. What a function gives, and what its caller sees of it, stays the same.
"""

from __future__ import annotations

import functools
import hashlib
import importlib
import linecache
import os
import random
import sys
import threading
import types
from collections.abc import Callable, Sequence
from typing import Any

from msprobe import log
from msprobe.config_check.framework import Watched

#: Functions of Python and numpy, for all frameworks.
COMMON = (
    *(
        Watched("random", name, f"random.{name}")
        for name in ("random", "randint", "uniform", "choice", "shuffle", "sample")
    ),
    *(
        Watched("numpy.random", name, f"np.random.{name}")
        for name in ("rand", "randn", "randint", "choice", "normal", "uniform", "random", "shuffle", "permutation")
    ),
    Watched("random", "seed", "random.seed", seeds=True),
    Watched("numpy.random", "seed", "np.random.seed", seeds=True),
    Watched("numpy.random", "default_rng", "np.random.default_rng", seeds=True),
)
_OWN_FOLDER = os.path.dirname(os.path.abspath(__file__)) + os.sep
_MOST_STACKS = 10_000
_MOST_FRAMES = 60
_MOST_SEEDS = 1_000

#: File, line and function of each frame, innermost first.
Stack = tuple[tuple[str, int, str], ...]


class RandomCalls:
    """Counts calls between :meth:`begin` and :meth:`end`."""

    def __init__(self, watched: Sequence[Watched], is_compiling: Callable[[], bool] = lambda: False) -> None:
        self._watched = (*COMMON, *watched)
        self._is_compiling = is_compiling
        self._replaced: list[tuple[Any, str, Any, Any, bool]] = []
        self._counts: dict[str, dict[Stack, int]] = {}
        self._inside = threading.local()
        self.seeds: list[list[Any]] = []

    @property
    def is_watching(self) -> bool:
        """True between begin and end."""
        return bool(self._replaced)

    def begin(self) -> None:
        """Replace the functions. Those that are not there, or cannot be replaced, are left out."""
        if self._replaced:
            return
        for one in self._watched:
            home = _home(one.home)
            original = getattr(home, one.attribute, None)
            if home is None or not callable(original):
                continue
            counting, is_own = self._counting(original, one), one.attribute in vars(home)
            try:
                setattr(home, one.attribute, counting)
            except (TypeError, AttributeError):
                continue
            self._replaced.append((home, one.attribute, original, counting, is_own))

    def end(self) -> None:
        """Put the functions back, but for those that somebody else has replaced since."""
        replaced, self._replaced = self._replaced, []
        for home, attribute, original, counting, is_own in replaced:
            if vars(home).get(attribute) is not counting:
                continue
            if is_own:
                setattr(home, attribute, original)
            else:
                delattr(home, attribute)

    def calls(self) -> dict[str, list[dict[str, Any]]]:
        """``{function: [{"count", "stack"}]}``, each stack from the outermost frame to the innermost."""
        return {
            name: [
                {"count": count, "stack": [_line(*frame) for frame in reversed(stack)]}
                for stack, count in stacks.items()
            ]
            for name, stacks in self._counts.items()
        }

    def _counting(self, original: Any, one: Watched) -> Any:
        is_compiling, note = self._is_compiling, self._note

        @functools.wraps(original)
        def counting(*args: Any, **kwargs: Any) -> Any:
            if not is_compiling():
                note(one, args, kwargs)
            return original(*args, **kwargs)

        return counting

    def _note(self, one: Watched, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        # What a watched function calls itself is no call of the program.
        if not self._replaced or getattr(self._inside, "busy", False):
            return
        self._inside.busy = True
        try:
            frame = sys._getframe(2)
            if _is_called_by_framework(frame, one):
                return
            stacks = self._counts.setdefault(one.name, {})
            stack = _stack(frame)
            if stack in stacks or len(stacks) < _MOST_STACKS:
                stacks[stack] = stacks.get(stack, 0) + 1
            if one.seeds and len(self.seeds) < _MOST_SEEDS:
                self.seeds.append([one.name, _seed(args, kwargs)])
        except Exception as problem:
            log.once(
                "config_check.random", "error", f"config_check: calls of random functions are not counted: {problem}"
            )
        finally:
            self._inside.busy = False


def _is_called_by_framework(frame: types.FrameType, one: Watched) -> bool:
    """True for a seed that the framework's own seed function hands on (``torch.manual_seed`` sets those of devices)."""
    return one.seeds and frame.f_globals.get("__name__", "") in ("torch.random", "mindspore.common.seed")


def _seed(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    value = args[-1] if args else next(iter(kwargs.values()), None)
    if isinstance(value, (int, float, str, type(None))):
        return value
    try:
        return int(value)
    except (TypeError, ValueError):
        return str(type(value).__name__)


def _home(name: str) -> Any:
    """The module, or the class in one, if the program has it."""
    if name in sys.modules:
        return sys.modules[name]
    module, _, attribute = name.rpartition(".")
    if module in sys.modules:
        return getattr(sys.modules[module], attribute, None)
    if name in ("random", "numpy.random"):
        return importlib.import_module(name)
    return None


def _stack(frame: types.FrameType | None) -> Stack:
    found: list[tuple[str, int, str]] = []
    while frame is not None and len(found) < _MOST_FRAMES:
        code = frame.f_code
        if not code.co_filename.startswith(_OWN_FOLDER):
            found.append((code.co_filename, frame.f_lineno, code.co_name))
        frame = frame.f_back
    return tuple(found)


def _line(file: str, line: int, function: str) -> str:
    code = linecache.getline(file, line).strip()
    return f"File {os.path.abspath(file)}, line {line}, in {function}, {code}"


def common_states() -> dict[str, str]:
    """Digests of the generators of Python and numpy."""
    found = {"python": digest(repr(random.getstate()).encode())}
    if "numpy" in sys.modules:
        state: Any = sys.modules["numpy"].random.get_state()
        found["numpy"] = digest(state[1].tobytes() + repr((state[0], *state[2:])).encode())
    return found


def digest(data: bytes) -> str:
    """64 bits of SHA-256, as hexadecimal digits."""
    return hashlib.sha256(data).hexdigest()[:16]
