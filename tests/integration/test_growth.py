"""No command grows faster than the ranks and the records that it reads: by the calls that it makes, which no busy
machine changes, and by the bytes that it writes.
"""

from __future__ import annotations

import importlib.util
import json
import sys
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from types import ModuleType

import pytest
from command_line import call
from growth import MOST_EXPONENT, calls_in

from msprobe.view.opening import open_source

_BENCH = Path(__file__).resolve().parents[2] / "bench/scale/dumps.py"
#: Ranks and records of each size; the first has what is done once.
_LEAST, _SMALL, _MORE_RANKS, _MORE_RECORDS = (2, 50), (8, 50), (48, 50), (8, 300)
_FACTOR = 6


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
def dumps(tmp_path_factory: pytest.TempPathFactory) -> dict[tuple[int, int], Path]:
    """Two runs of each size, one rank of the first of which makes a NaN."""
    found = {}
    for ranks, records in (_LEAST, _SMALL, _MORE_RANKS, _MORE_RECORDS):
        folder = tmp_path_factory.mktemp(f"{ranks}x{records}")
        _bench().write(folder / "bad", ranks, records, ranks * 5 // 8)
        _bench().write(folder / "healthy", ranks, records)
        found[ranks, records] = folder
    return found


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


@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_grows_with_ranks_and_records_and_no_faster(
    name: str, dumps: dict[tuple[int, int], Path], tmp_path: Path
) -> None:
    calls, written = {}, {}
    for (ranks, records), run in dumps.items():
        out = tmp_path / f"{ranks}x{records}"
        action = COMMANDS[name](run, out)
        if not calls:
            action()  # imports, and what is made once in a process
        calls[ranks, records] = calls_in(action)
        written[ranks, records] = sum(file.stat().st_size for file in out.rglob("*") if file.is_file())
    # What is done once hides nothing: a rank of 50 records costs what six of them add to the smallest run.
    of_one = (calls[_SMALL] - calls[_LEAST]) / (_SMALL[0] - _LEAST[0])
    added = (_FACTOR - 1) * _SMALL[0]
    for more in (_MORE_RANKS, _MORE_RECORDS):
        assert calls[more] <= calls[_SMALL] + of_one * added * _FACTOR ** (MOST_EXPONENT - 1), more
        assert written[more] <= written[_SMALL] * _FACTOR**MOST_EXPONENT, more
