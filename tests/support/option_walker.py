"""Calls command lines of :mod:`option_rows`, each in a folder of its own; what stands for work that takes too long."""

from __future__ import annotations

import contextlib
import hashlib
import importlib
import re
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from msprobe.coverage import Coverage
from msprobe.errors import MsprobeError
from support.command_line import Completed, call

Seen = dict[str, object]


class Reached(MsprobeError):
    """Ends a command where its work would begin; the text is what that was asked for."""


def _reached(*args: Any, **named: Any) -> Any:
    raise Reached(f"reached with {args!r} {named!r}")


def _told(*args: Any, **named: Any) -> Any:
    print("called")


class _Listening:
    """A socket that is none."""

    def __enter__(self) -> _Listening:
        return self

    def __exit__(self, *error: object) -> None:
        pass


def _failed_check(*args: Any, **named: Any) -> Any:
    ranking = SimpleNamespace(
        failed=[1],
        warned=[],
        is_error=True,
        is_warning=False,
        lines=lambda top: ["failed"][:top],
        coverage=Coverage({"forward": 1}),
    )
    return SimpleNamespace(ranking=ranking, files=SimpleNamespace(written=()), summaries=(), compared=())


#: What stands for work that takes too long here, where more than the arguments of one function count.
STAND_INS: dict[str, dict[str, Any]] = {
    "status of failed calls": {"msprobe.precheck.check:run_check": _failed_check},
    "an overflow on one side": {
        "msprobe.precheck.pool:Pool.answers": lambda self, wanted: [
            SimpleNamespace(key=key, notes=["overflows"], result=["", "abnormal", "", ""]) for key, _ in wanted
        ],
    },
    "samples that fail": {
        "msprobe.precheck.sample_check:check_samples": lambda *args: ((), _failed_check().ranking),
    },
    "an error in the installation": {
        "msprobe.doctor.devices:check_devices": lambda: None,
        "msprobe.doctor.findings:is_sound": lambda findings: False,
    },
    "no devices": {"msprobe.doctor.devices:check_devices": lambda: None},
    "browser": {
        "msprobe.view.serving:listen": lambda host, port: _Listening(),
        "msprobe.view.serving:address_of": lambda *args: "http://127.0.0.1:1/",
        "msprobe.view.serving:open_browser": _told,
        "msprobe.view.serving:serve": lambda source, listening, token, host, ready: ready(),
    },
}


@contextlib.contextmanager
def standing_in(name: str) -> Iterator[None]:
    """With what stands for work that takes too long: a name of :data:`STAND_INS`, or a function, for nothing."""
    with pytest.MonkeyPatch.context() as patch:
        for target, function in STAND_INS.get(name, {name: _reached} if name else {}).items():
            module, _, attribute = target.partition(":")
            place: Any = importlib.import_module(module)
            *owners, last = attribute.split(".")
            for owner in owners:
                place = getattr(place, owner)
            patch.setattr(place, last, function)
        yield


def _plain(text: str, folder: Path) -> str:
    """Without what differs from call to call: the folder, addresses of objects, times."""
    text = text.replace(str(folder), "HERE")
    return re.sub(r"0x[0-9a-f]{6,}|\d{4}-\d\d-\d\d \d\d:\d\d:\d\d|\d{8,}|\d+\.\d+ s", "#", text)


def _seen(done: Completed, folder: Path) -> Seen:
    """What a command answered, showed and wrote."""
    found: Seen = {"status": done.returncode}
    found.update({f"out {line}": 1 for line in _plain(done.stdout, folder).splitlines()})
    found.update({f"err {line}": 1 for line in _plain(done.stderr, folder).splitlines()})
    for file in sorted(folder.rglob("*")):
        if file.is_file():
            name = _plain(str(file.relative_to(folder)), folder)
            found[f"file {name}"] = hashlib.sha256(_content(file, folder)).hexdigest()
    return found


def _content(file: Path, folder: Path) -> bytes:
    data = file.read_bytes()
    try:
        return _plain(data.decode(), folder).encode()
    except UnicodeDecodeError:
        return data


class Walker:
    """Calls command lines, each in a folder of its own."""

    def __init__(self, folder: Path, inputs: dict[str, str]) -> None:
        self.folder = folder
        self.inputs = inputs
        self._known: dict[tuple[str, str, str], tuple[Completed, Seen]] = {}
        self.count = 0

    def run(self, command: str, line: str, reaches: str) -> Completed:
        self.count += 1
        place = self.folder / str(self.count)
        place.mkdir()
        front, _, own = line.rpartition(f"{command} ")
        words = [word.format(**self.inputs) for word in f"{front} {command} {own}".split()]
        with standing_in(reaches):
            try:
                return call(*words, cwd=place)
            except MsprobeError as raised:  # with --debug
                return Completed(words, 1, "", f"raised {raised!r}")

    def seen(self, command: str, line: str, reaches: str) -> tuple[Completed, Seen]:
        """How it ended, and what it answered, showed and wrote."""
        done = self.run(command, line, reaches)
        return done, _seen(done, self.folder / str(self.count))

    def base(self, command: str, line: str, reaches: str) -> tuple[Completed, Seen]:
        """How it ended, and what is the same each time."""
        key = command, line, reaches
        if key not in self._known:
            (done, first), (_, second) = self.seen(*key), self.seen(*key)
            self._known[key] = done, {name: value for name, value in first.items() if second.get(name) == value}
        return self._known[key]
