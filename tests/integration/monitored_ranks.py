"""Two ranks that train with a package that has ranks of its own, and what the monitor has written there."""

from __future__ import annotations

import csv
import importlib.util
import os
import socket
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path


def has_megatron() -> bool:
    """Whether Megatron's core is installed."""
    try:
        return importlib.util.find_spec("megatron.core") is not None
    except ModuleNotFoundError:
        return False


def launch(script: str, folder: Path, cases: Sequence[str]) -> None:
    """Run all cases of a script beside this file on two ranks; AssertionError with what they said if one fails."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    ranks = []
    for rank in range(2):
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(place for place in sys.path if place)}
        environment.update(OMP_NUM_THREADS="1", GLOO_SOCKET_IFNAME="lo", RANK=str(rank), LOCAL_RANK=str(rank))
        environment.update(WORLD_SIZE="2", LOCAL_SIZE="2", MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
        words = [sys.executable, str(Path(__file__).parent / script), str(folder), *cases]
        ranks.append(
            subprocess.Popen(words, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        )
    said = [rank.communicate(timeout=280)[0] for rank in ranks]
    assert [rank.returncode for rank in ranks] == [0, 0], said[0][-3000:] + said[1][-3000:]


def rows_of(folder: Path, quantity: str, step: int) -> list[dict[str, str]]:
    """The rows of a step that both ranks have written, the first rank's first."""
    rows: list[dict[str, str]] = []
    for file in sorted((folder / "out").glob(f"*-rank*/{quantity}_{step}-{step}.csv"), key=lambda one: one.parts[-2]):
        with file.open(newline="") as opened:
            rows += csv.DictReader(opened)
    return rows


def squares_in(folder: Path, quantity: str, step: int) -> dict[str, float]:
    """The squares of the norms of a step, by name, added over the ranks."""
    found: dict[str, float] = {}
    for row in rows_of(folder, quantity, step):
        name = row["name"].removeprefix("module.")
        found[name] = found.get(name, 0.0) + float(row["norm"]) ** 2
    return found
