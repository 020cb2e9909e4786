"""Processes that a recorded program starts as further ranks of itself: they are recorded as well.

Launchers start ranks in two ways. A *command* is the script again, with the rank in its environment (torchrun,
``accelerate launch``, Lightning): it becomes a command of ``msprobe run``. A *process of multiprocessing*
(``torch.multiprocessing.spawn`` and what is built on it) is followed from its beginning; what is no rank, such as the
worker of a DataLoader, is left alone by whoever follows. This file needs no torch: every child reads it.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from multiprocessing import process, spawn
from typing import Any

from msprobe import log
from msprobe.children import starting
from msprobe.guard import pass_on
from msprobe.messages import said

# What launchers put into the environment of a rank. accelerate starts a single process without a rank.
_RANK_VARIABLES = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "ACCELERATE_MIXED_PRECISION")
# The first arguments of Popen, in their order.
_POPEN = "args bufsize executable stdin stdout stderr preexec_fn close_fds shell cwd env".split()
# Options of Python that take a value as the next word.
_VALUED = ("-W", "-X", "--check-hash-based-pycs")

#: Begins to follow the program in this child and gives what ends that, with the exit status; None: leave it alone.
Follow = Callable[[Sequence[str]], "Callable[[int], None] | None"]


class ChildProcesses:
    """Watches for ranks that this process starts. ``words``: the options of ``msprobe run`` for them.

    ``started`` is true once there was one.
    """

    def __init__(self, words: Sequence[str], follow: Follow) -> None:
        self.words = list(words)
        self.started = False
        # Further Python scripts that were started, which are no ranks.
        self.others: dict[str, int] = {}
        self._follow = follow
        self._replaced: list[tuple[Any, str, Any, Any]] = []

    def attach(self) -> None:
        """Begin to watch."""
        self._replace(subprocess.Popen, "__init__", self._popen)
        self._replace(process.BaseProcess, "_bootstrap", self._bootstrap)
        self._replace(process.BaseProcess, "start", self._start)
        self._replace(spawn, "get_preparation_data", self._preparation)

    def detach(self) -> None:
        """Put everything back. What somebody else has replaced since stays as it is."""
        replaced, self._replaced = self._replaced, []
        for holder, name, original, replacement in replaced:
            if vars(holder).get(name) is replacement:
                setattr(holder, name, original)

    def _replace(self, holder: Any, name: str, make: Callable[[Any], Any]) -> None:
        original = vars(holder)[name]
        replacement = functools.wraps(original)(make(original))
        setattr(holder, name, replacement)
        self._replaced.append((holder, name, original, replacement))

    # ------------------------------------------------------------ commands

    def _popen(self, original: Any) -> Any:
        def __init__(popen: Any, *given: Any, **named: Any) -> None:
            asked = dict(zip(_POPEN, given, strict=False)) | named
            changed = None
            if not asked.get("shell") and not asked.get("executable"):
                with contextlib.suppress(Exception):
                    changed = recorded_command(asked.get("args"), asked.get("env"), self.words)
            if changed is None:
                original(popen, *given, **named)
                with contextlib.suppress(Exception):
                    script = script_of(asked.get("args"))
                    if script is not None:
                        self.others[script] = self.others.get(script, 0) + 1
                return
            self.started = True
            if "args" in named:
                original(popen, *given, **{**named, "args": changed})
            else:
                original(popen, changed, *given[1:], **named)

        return __init__

    # ------------------------------------------------------------ multiprocessing

    def _start(self, original: Any) -> Any:
        def start(child: Any) -> None:
            self.started = True
            original(child)

        return start

    def _preparation(self, original: Any) -> Any:
        def get_preparation_data(name: str) -> dict[str, Any]:
            data: dict[str, Any] = original(name)
            data["msprobe"] = _Carried(self.words, self._follow)
            return data

        return get_preparation_data

    def _bootstrap(self, original: Any) -> Any:
        def _bootstrap(child: Any, *given: Any, **named: Any) -> int:
            end = _attempt(self._follow, self.words)
            status: int = original(child, *given, **named)
            if end is not None:
                _attempt(end, status)
            return status

        return _bootstrap


def _attempt(work: Callable[..., Any], *given: Any) -> Any:
    """What fails here is the recording, never the process."""
    try:
        return work(*given)
    except Exception as error:
        pass_on(error)
        log.error(said("process-not-recorded", type(error).__name__, error))
        return None


class _Carried:
    """Comes to a spawned process with what it is prepared with, and watches there from then on."""

    def __init__(self, words: Sequence[str], follow: Follow) -> None:
        self.text = (
            "try:\n"
            f"    from {__name__} import attach_in_child\n"
            "except ImportError:\n"
            "    pass\n"
            "else:\n"
            f"    attach_in_child({list(words)!r}, {follow.__module__!r}, {follow.__qualname__!r})\n"
        )

    def __reduce__(self) -> tuple[Any, ...]:
        # A process that does not find msprobe runs as it would.
        return exec, (self.text, {})


def attach_in_child(words: list[str], module: str, name: str) -> None:
    """Watch in a spawned process; ``module`` and ``name``: where what follows the program is found."""

    def follow(given: Sequence[str]) -> Callable[[int], None] | None:
        # What was sent here has been read by now: a rank has imported torch for it.
        if "torch" not in sys.modules:
            return None
        follower: Callable[[int], None] | None = getattr(importlib.import_module(module), name)(given)
        return follower

    follow.__module__, follow.__qualname__ = module, name
    ChildProcesses(words, follow).attach()


def recorded_command(
    command: Any, environment: Mapping[str, str] | None, words: Sequence[str]
) -> list[str | os.PathLike[str]] | None:
    """``command`` under ``msprobe run`` with the options ``words``; None if it is no Python script of another rank.

    A rank is known by its ``environment``, which names another rank, or world, than that of this process.
    """
    if not isinstance(command, (list, tuple)) or environment is None or not command:
        return None
    if all(environment.get(name) == os.environ.get(name) for name in _RANK_VARIABLES):
        return None
    if not _is_this_python(command[0]):
        return None
    place = _script_place(command)
    if place is None:
        return None
    target = [os.fspath(word) for word in command[place:]]
    if starting.is_own_command(target):
        return None
    return [*command[:place], *starting.command("msprobe.cli", "run")[1:], *words, "--", *command[place:]]


def script_of(command: Any) -> str | None:
    """The file of a script that ``command`` runs with this Python; None for anything else, also for what comes with
    packages (workers of a compiler) and for what is recorded by itself.
    """
    if not isinstance(command, (list, tuple)) or not command or not _is_this_python(command[0]):
        return None
    place = _script_place(command)
    if place is None or command[place] == "-m":
        return None
    path = os.path.abspath(os.fspath(command[place]))
    is_installed = any(f"{os.sep}{name}{os.sep}" in path for name in ("site-packages", "dist-packages"))
    if is_installed or os.path.basename(path) == "msprobe" or not path.endswith(".py"):
        return None
    return path


def _is_this_python(word: Any) -> bool:
    if not isinstance(word, (str, os.PathLike)):
        return False
    path = os.fspath(word)
    return path == sys.executable or shutil.which(path) == sys.executable


def _script_place(command: Sequence[Any]) -> int | None:
    """Where in a command of Python the script or ``-m`` stands; None if it runs something else."""
    place = 1
    while place < len(command):
        word = os.fspath(command[place])
        if word == "-m" or not word.startswith("-"):
            return place if place + (word == "-m") < len(command) else None
        if word == "-" or (not word.startswith("--") and "c" in word[1:] and word[:2] not in ("-W", "-X")):
            return None
        place += 2 if word in _VALUED else 1
    return None
