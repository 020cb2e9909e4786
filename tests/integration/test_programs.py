"""Public training programs in small: a program that runs alone runs under ``msprobe run``, to its last line.

Each program of ``tests/zoo/programs`` runs alone and recorded. Exit status, output, files, weights, gradients, states
of optimizers, hooks and random generators are the same; ``msprobe check`` finds nothing in the dump, and two recordings
agree.
"""

from __future__ import annotations

import functools
import json
import os
import re
import zipfile
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from support import forked
from support.coded_texts import mentions
from support.command_line import call

HERE = Path(__file__).parent
FOLDER = HERE.parent / "zoo" / "programs"
PROGRAMS = sorted(file.stem for file in FOLDER.glob("*.py"))
LOG_LINE = re.compile(r"^\d{4}-\d\d-\d\d \d\d:\d\d:\d\d \(\d+\) (?:\[rank \d+\] )?\[(DEBUG|INFO|WARNING|ERROR)\] (.*)$")

# Each program has one of these beside mix and statistics, in turn.
OTHER_SETTINGS = (
    ("L0", "statistics"),
    ("L1", "tensor"),
    ("L2", "statistics"),
    ("L0", "structure"),
    ("mix", "tensor"),
    ("L1", "overflow_check"),
)
WITHOUT_EXTENSION = ("character_gpt", "sparse_gcn", "soft_actor_critic", "wgan_gp", "functional_training", "user_hooks")


def of_program(name: str, *more: object, marks: Any = ()) -> Any:
    """A program as a parameter of a test."""
    return pytest.param(name, *more, id=name, marks=marks)


def in_turn(name: str, turn: int) -> Any:
    """Every fourth program always runs in one of two tests, every fourth in the other; all in both are slow ones."""
    return () if zlib.crc32(name.encode()) // len(OTHER_SETTINGS) % 4 == turn else pytest.mark.slow


@dataclass(frozen=True)
class Run:
    """What a program did. ``said``: lines of msprobe's own log, as level and text."""

    status: int
    stdout: list[str]
    stderr: list[str]
    said: tuple[tuple[str, str], ...]
    state: dict[str, str]
    files: dict[str, object]
    dump: Path


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where programs run and leave their dumps."""
    return tmp_path_factory.mktemp("programs")


@functools.cache
def run(place: Path, name: str, setting: tuple[str, str] | None = None, turn: int = 0, native: bool = True) -> Run:
    """Run a program in a folder of its own, alone or recorded (``setting``: level and task)."""
    base = place / "-".join([name, *(setting or ["alone"]), str(turn), "native" if native else "python"])
    folder = base / "work"
    folder.mkdir(parents=True)
    words = [str(FOLDER / f"{name}.py")]
    if setting is not None:
        level, task = setting
        config = {"task": task, "level": level, "dump_path": str(base / "dump")}
        (base / "config.json").write_text(json.dumps(config))
        words = ["msprobe", "run", "--config", str(base / "config.json"), "--", *words]
    env = {**os.environ, "OMP_NUM_THREADS": "1"} | ({} if native else {"MSPROBE_NATIVE": "0"})
    ended = forked.run(str(HERE / "program_state.py"), str(base / "state.json"), *words, cwd=folder, env=env)
    stdout, said = apart(ended.stdout)
    stderr, said_there = apart(ended.stderr)
    state = json.loads((base / "state.json").read_text()) if (base / "state.json").exists() else {}
    return Run(ended.returncode, stdout, stderr, (*said, *said_there), state, files_of(folder), base / "dump")


def apart(text: str) -> tuple[list[str], list[tuple[str, str]]]:
    """The lines of the program, and those of msprobe's log as level and text."""
    # Torch's profiler announces itself with the number of the process.
    lines = [(line, LOG_LINE.match(line)) for line in text.splitlines() if not line.startswith("USDT:")]
    return [line for line, own in lines if own is None], [(own[1], own[2]) for _, own in lines if own is not None]


def files_of(folder: Path) -> dict[str, object]:
    """Bytes of all files below, of archives those of their entries."""
    found: dict[str, object] = {}
    for file in sorted(file for file in folder.rglob("*") if file.is_file()):
        if zipfile.is_zipfile(file):
            with zipfile.ZipFile(file) as archive:
                found[file.name] = dict(entries_of(archive))
        else:
            found[file.name] = file.read_bytes()
    return found


def entries_of(archive: zipfile.ZipFile) -> Iterator[tuple[str, bytes]]:
    """Without the stacks of Python in which lines of a traced program were called: frames of msprobe are in them."""
    names = archive.namelist()
    is_traced = any(name.endswith(".debug_pkl") for name in names)
    for name in names:
        if not (is_traced and name.endswith((".debug_pkl", ".data/serialization_id"))):
            yield name, archive.read(name)


def demand_the_same(alone: Run, recorded: Run) -> None:
    assert recorded.status == alone.status, (recorded.stderr[-20:], recorded.said)
    assert recorded.stdout == alone.stdout
    assert recorded.stderr == alone.stderr
    names = alone.state.keys() | recorded.state.keys()
    pairs = {name: (alone.state.get(name), recorded.state.get(name)) for name in names}
    assert {name: both for name, both in pairs.items() if both[0] != both[1]} == {}
    assert len(alone.state) > 15
    assert recorded.files.keys() == alone.files.keys()
    assert [name for name in alone.files if recorded.files[name] != alone.files[name]] == []
    warnings = [text for level, text in recorded.said if level != "INFO"]
    # An overflow check reports the infinities of masks and of scalers, too.
    assert [text for text in warnings if not mentions(text, "overflow-detected")] == []


@pytest.mark.parametrize("name", [of_program(name) for name in PROGRAMS])
def test_a_program_runs_recorded_as_it_runs_alone(place: Path, name: str) -> None:
    demand_the_same(run(place, name), run(place, name, ("mix", "statistics")))


@pytest.mark.parametrize("name", [of_program(name) for name in PROGRAMS])
def test_check_finds_nothing(place: Path, name: str) -> None:
    checked = call("check", run(place, name, ("mix", "statistics")).dump)
    assert checked.returncode == 0, checked.stdout + checked.stderr


@pytest.mark.parametrize("name", [of_program(name, marks=in_turn(name, 0)) for name in PROGRAMS])
def test_two_recordings_agree(place: Path, name: str) -> None:
    dumps = [run(place, name, ("mix", "statistics")).dump, run(place, name, ("mix", "statistics"), turn=1).dump]
    compared = call("compare", *dumps)
    assert compared.returncode == 0, compared.stdout + compared.stderr
    assert compared.stdout.startswith("AGREE"), compared.stdout


@pytest.mark.parametrize(
    ("name", "setting"),
    [
        of_program(name, OTHER_SETTINGS[zlib.crc32(name.encode()) % len(OTHER_SETTINGS)], marks=in_turn(name, 1))
        for name in PROGRAMS
    ],
)
def test_a_program_runs_as_alone_at_other_levels(place: Path, name: str, setting: tuple[str, str]) -> None:
    demand_the_same(run(place, name), run(place, name, setting))


@pytest.mark.parametrize("name", [of_program(name) for name in WITHOUT_EXTENSION])
def test_a_program_runs_as_alone_without_the_extension(place: Path, name: str) -> None:
    demand_the_same(run(place, name), run(place, name, ("mix", "statistics"), native=False))
