"""No command grows faster than the ranks, the records and the steps that it reads: by the calls that it makes and the
memory of its objects, which no busy machine changes, and by the bytes that it writes.
"""

from __future__ import annotations

import importlib.util
import json
import os
import sys
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from types import ModuleType

import pytest
from support.command_line import call
from support.growth import MOST_EXPONENT, calls_in, most_bytes_in

from msprobe.view.opening import open_source

_BENCH = Path(__file__).resolve().parents[2] / "bench/scale/dumps.py"
#: Ranks, records and steps of each size; the first has what is done once.
_LEAST, _SMALL, _MORE_RANKS, _MORE_RECORDS, _MORE_STEPS = (2, 50, 1), (8, 50, 1), (48, 50, 1), (8, 300, 1), (8, 50, 6)
_FACTOR = 6

#: Ranks, records and steps.
Size = tuple[int, int, int]


@lru_cache(1)
def _bench() -> ModuleType:
    spec = importlib.util.spec_from_file_location("scale_dumps", _BENCH)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["scale_dumps"] = module  # for its dataclass
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def dumps(tmp_path_factory: pytest.TempPathFactory) -> dict[Size, Path]:
    """Two runs of each size, one rank of the first of which makes a NaN, in its last step."""
    runs = {}
    for ranks, records, steps in (_LEAST, _SMALL, _MORE_RANKS, _MORE_RECORDS, _MORE_STEPS):
        folder = tmp_path_factory.mktemp(f"{ranks}x{records}x{steps}")
        _bench().write(folder / "bad", ranks, records, ranks * 5 // 8)
        _bench().write(folder / "healthy", ranks, records)
        if steps > 1:
            (folder / "bad/step0").rename(folder / f"bad/step{steps - 1}")
            for step in range(steps):
                _link(folder / "healthy/step0", folder / f"bad/step{step}")
                _link(folder / "healthy/step0", folder / f"healthy/step{step}")
        runs[ranks, records, steps] = folder
    return runs


def _link(step: Path, other: Path) -> None:
    """The files of a step as those of another, which is not there yet."""
    if other.exists():
        return
    for file in step.rglob("*.*"):
        place = other / file.relative_to(step)
        place.parent.mkdir(parents=True, exist_ok=True)
        os.link(file, place)


Action = Callable[[], object]


def _command(*words: object) -> Action:
    return lambda: call(*words)


def _merge(run: Path, out: Path) -> Action:
    """All sheets in one workbook; they are made before."""
    made = run / "sheets"
    if not made.exists():
        made.mkdir()
        call("compare", "-tp", run / "bad/step0", "-gp", run / "healthy/step0", "-o", made)
        (run / "merge.yaml").write_text("api: [Functional.linear]\n")
    return _command("merge_result", "-i", made, "-o", out, "-config", run / "merge.yaml")


def _view(run: Path, out: Path) -> Action:
    """The page, as a browser asks for it first."""

    def show() -> None:
        source = open_source([run / "bad", run / "healthy"])
        try:
            source.prepare()
            place = source.overview()["verdict"]["findings"][0]["place"]
            out.mkdir(exist_ok=True)
            (out / "shown.json").write_text(json.dumps([source.place(place), source.ranks(0)]))
        finally:
            source.close()

    return show


COMMANDS: dict[str, Callable[[Path, Path], Action]] = {
    "nan_analyze": lambda run, out: _command("nan_analyze", "-i", run / "bad/step0", "-o", out),
    "check": lambda run, out: _command("check", run / "bad", "-o", out),
    "compare": lambda run, out: _command("compare", run / "bad", run / "healthy", "-o", out),
    "sheets": lambda run, out: _command("compare", run / "bad", run / "healthy", "-o", out, "--csv"),
    "merge": _merge,
    "graph": lambda run, out: _command("graph_visualize", "-tp", run / "bad", "-gp", run / "healthy", "-o", out),
    "view": _view,
}


#: They are given one step.
_OF_A_STEP = ("nan_analyze", "merge")


def _sizes(name: str) -> list[Size]:
    more = (_MORE_RANKS, _MORE_RECORDS) if name in _OF_A_STEP else (_MORE_RANKS, _MORE_RECORDS, _MORE_STEPS)
    return [_LEAST, _SMALL, *more]


@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_grows_with_what_it_reads_and_no_faster(name: str, dumps: dict[Size, Path], tmp_path: Path) -> None:
    calls: dict[Size, int] = {}
    written: dict[Size, int] = {}
    for size in _sizes(name):
        out = tmp_path / "x".join(map(str, size))
        action = COMMANDS[name](dumps[size], out)
        if not calls:
            action()  # imports, and what is made once in a process
        calls[size] = calls_in(action)
        written[size] = sum(file.stat().st_size for file in out.rglob("*") if file.is_file())
    # What is done once hides nothing: a rank of 50 records costs what six of them add to the smallest run.
    of_one = (calls[_SMALL] - calls[_LEAST]) / (_SMALL[0] - _LEAST[0])
    added = (_FACTOR - 1) * _SMALL[0]
    for size in calls.keys() - {_LEAST, _SMALL}:
        assert calls[size] <= calls[_SMALL] + of_one * added * _FACTOR ** (MOST_EXPONENT - 1), size
        assert written[size] <= written[_SMALL] * _FACTOR**MOST_EXPONENT, size


@pytest.mark.slow
@pytest.mark.parametrize("name", COMMANDS)
def test_so_does_its_memory(name: str, dumps: dict[Size, Path], tmp_path: Path) -> None:
    most: dict[Size, int] = {}
    for size in _sizes(name):
        action = COMMANDS[name](dumps[size], tmp_path / "x".join(map(str, size)))
        if not most:
            action()  # imports, and what is made once in a process
        most[size] = most_bytes_in(action)
    for size in most.keys() - {_LEAST, _SMALL}:
        assert most[size] <= most[_SMALL] * _FACTOR**MOST_EXPONENT, size
