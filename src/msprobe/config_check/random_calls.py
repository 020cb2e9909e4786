"""Calls of random functions: how often, from where, and which seeds were set, while functions are replaced by ones that
count. What a function gives, and what its caller sees of it, stays the same.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import importlib.abc
import linecache
import os
import random
import sys
import threading
import types
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from msprobe import log
from msprobe.config_check.framework import WatchedFunction
from msprobe.guard import attempt
from msprobe.messages import said

#: Functions of Python and numpy, for all frameworks.
COMMON = (
    *(
        WatchedFunction("random", name, f"random.{name}")
        for name in ("random", "randint", "uniform", "choice", "shuffle", "sample")
    ),
    *(
        WatchedFunction("numpy.random", name, f"np.random.{name}")
        for name in ("rand", "randn", "randint", "choice", "normal", "uniform", "random", "shuffle", "permutation")
    ),
    WatchedFunction("random", "seed", "random.seed", seeds=True),
    WatchedFunction("numpy.random", "seed", "np.random.seed", seeds=True),
    WatchedFunction("numpy.random", "default_rng", "np.random.default_rng", seeds=True),
)
_OWN_FOLDER = os.path.dirname(os.path.abspath(__file__)) + os.sep
_MOST_STACKS = 10_000
_MOST_FRAMES = 60
_MOST_SEEDS = 1_000

#: File, line and function of each frame, innermost first.
Stack = tuple[tuple[str, int, str], ...]


@dataclass(frozen=True)
class _Replaced:
    home: Any
    attribute: str
    original: Any
    counting: Any
    #: False for what the home has from a base.
    is_own: bool


class _Imports(importlib.abc.MetaPathFinder):
    """Has functions put back while modules are imported that note them by identity."""

    def __init__(self, names: Sequence[str], calls: RandomCalls) -> None:
        self._names, self._calls = frozenset(names), calls

    def find_spec(self, name: str, path: Any, target: Any = None) -> Any:
        if name not in self._names:
            return None
        others = (finder.find_spec(name, path, target) for finder in sys.meta_path if finder is not self)
        spec = next((spec_found for spec_found in others if spec_found is not None), None)
        loader: Any = None if spec is None else spec.loader
        run = getattr(loader, "exec_module", None)
        if callable(run):

            def exec_module(module: Any) -> None:
                with self._calls.aside():
                    run(module)

            loader.exec_module = exec_module
        return spec


class RandomCalls:
    """Counts calls between :meth:`begin` and :meth:`end`."""

    def __init__(
        self,
        watched: Sequence[WatchedFunction],
        is_compiling: Callable[[], bool] = lambda: False,
        compilers: Sequence[str] = (),
    ) -> None:
        """``compilers``: modules that find all functions as they are while they are imported."""
        self._watched = (*COMMON, *watched)
        self._is_compiling = is_compiling
        self._imports = _Imports(compilers, self)
        self._replaced: list[_Replaced] = []
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
        for watched in self._watched:
            home = _home(watched.home)
            original = getattr(home, watched.attribute, None)
            if home is None or not callable(original):
                continue
            counting = self._aside(original, watched) if watched.compiles else self._counting(original, watched)
            is_own = watched.attribute in vars(home)
            try:
                setattr(home, watched.attribute, counting)
            except (TypeError, AttributeError):
                continue
            self._replaced.append(_Replaced(home, watched.attribute, original, counting, is_own))
        if self._imports not in sys.meta_path:
            sys.meta_path.insert(0, self._imports)

    def end(self) -> None:
        """Put the functions back, but for those that somebody else has replaced since."""
        replaced, self._replaced = self._replaced, []
        if self._imports in sys.meta_path:
            sys.meta_path.remove(self._imports)
        for watched in replaced:
            if vars(watched.home).get(watched.attribute) is not watched.counting:
                continue
            if watched.is_own:
                setattr(watched.home, watched.attribute, watched.original)
            else:
                delattr(watched.home, watched.attribute)

    @contextlib.contextmanager
    def aside(self) -> Iterator[None]:
        """Put the functions back for a while."""
        was_watching = self._stop_watching()
        try:
            yield
        finally:
            if was_watching:
                self.begin()

    def _stop_watching(self) -> bool:
        """Put the functions back; True if they were replaced."""
        was_watching = self.is_watching
        self.end()
        return was_watching

    def calls(self) -> dict[str, list[dict[str, Any]]]:
        """``{function: [{"count", "stack"}]}``, each stack from the outermost frame to the innermost."""
        return {
            name: [
                {"count": count, "stack": [_line(*frame) for frame in reversed(stack)]}
                for stack, count in stacks.items()
            ]
            for name, stacks in self._counts.items()
        }

    def _aside(self, original: Any, watched: WatchedFunction) -> Any:
        """Compilers know functions by identity, some for ever."""

        @functools.wraps(original)
        def aside(*args: Any, **kwargs: Any) -> Any:
            was_watching = attempt(self._stop_watching)
            try:
                return original(*args, **kwargs)
            finally:
                if was_watching and not watched.compiles_later:
                    attempt(self.begin)

        return aside

    def _counting(self, original: Any, watched: WatchedFunction) -> Any:
        is_compiling, note, inside = self._is_compiling, self._note, self._inside

        @functools.wraps(original)
        def counting(*args: Any, **kwargs: Any) -> Any:
            # Seed functions of frameworks set those of devices, Python and numpy.
            is_outer = not is_compiling() and attempt(note, watched, args, kwargs) and watched.seeds
            if is_outer:
                inside.busy = True
            try:
                return original(*args, **kwargs)
            finally:
                if is_outer:
                    inside.busy = False

        return counting

    def _note(self, watched: WatchedFunction, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
        """Count a call; False for one that is none of the program."""
        # What a watched function calls itself is no call of the program.
        if not self._replaced or getattr(self._inside, "busy", False):
            return False
        self._inside.busy = True
        try:
            # Without this, the guard, and what stands in the function's place.
            frame = sys._getframe(2)
            stacks = self._counts.setdefault(watched.name, {})
            stack = _stack(frame)
            if stack in stacks or len(stacks) < _MOST_STACKS:
                stacks[stack] = stacks.get(stack, 0) + 1
            if watched.seeds and len(self.seeds) < _MOST_SEEDS:
                self.seeds.append([watched.name, _seed(args, kwargs)])
        except Exception as problem:
            log.once("config_check.random", "error", said("random-calls-not-counted", problem))
        finally:
            self._inside.busy = False
        return True


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
        # Not getattr, which would import what is imported when it is asked for.
        return vars(sys.modules[module]).get(attribute)
    if name in ("random", "numpy.random"):
        return importlib.import_module(name)
    return None


def _stack(frame: types.FrameType | None) -> Stack:
    frames: list[tuple[str, int, str]] = []
    while frame is not None and len(frames) < _MOST_FRAMES:
        code = frame.f_code
        if not code.co_filename.startswith(_OWN_FOLDER):
            frames.append((code.co_filename, frame.f_lineno, code.co_name))
        frame = frame.f_back
    return tuple(frames)


def _line(file: str, line: int, function: str) -> str:
    code = linecache.getline(file, line).strip()
    return f"File {os.path.abspath(file)}, line {line}, in {function}, {code}"


def common_states() -> dict[str, str]:
    """Digests of the generators of Python and numpy."""
    states = {"python": digest(repr(random.getstate()).encode())}
    if "numpy" in sys.modules:
        state: Any = sys.modules["numpy"].random.get_state()
        states["numpy"] = digest(state[1].tobytes() + repr((state[0], *state[2:])).encode())
    return states


def digest(data: bytes) -> str:
    """64 bits of SHA-256, as hexadecimal digits."""
    return hashlib.sha256(data).hexdigest()[:16]
