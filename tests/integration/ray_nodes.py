"""All commands that run jobs on a Ray cluster of two nodes, of which one is killed in the middle of each.

    python ray_nodes.py FOLDER

``FOLDER`` has the dumps ``bad`` and ``healthy`` of many ranks and the checkpoints ``one`` and ``two``. Prints what each
command says, without and with the loss of a node, as JSON.
"""

from __future__ import annotations

import contextlib
import io
import json
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import ray
from ray.cluster_utils import Cluster

from msprobe import engine
from msprobe.cli import main


def said(words: list[str], result: Path) -> Any:
    """The status of a command, and its result without what names the run."""
    with contextlib.redirect_stdout(io.StringIO()) as text:
        status = main(words)
    return status, result.read_text() if result.is_file() else text.getvalue()


def commands(folder: Path, out: str, more: list[str]) -> dict[str, Callable[[], Any]]:
    """What is run, by name."""
    dump, healthy, results = str(folder / "bad"), str(folder / "healthy"), folder / out
    checkpoints = str(folder / "one.npz"), str(folder / "two.npz")
    one = results / "checkpoints.json"
    words = {
        "nan_analyze": (["nan_analyze", "-i", dump, "--json", "-"], Path()),
        "check": (["check", dump, "-o", str(results / "check")], results / "check" / "check.json"),
        "compare": (["compare", dump, healthy, "-o", str(results / "compare")], results / "compare" / "verdict.json"),
        "checkpoints": (["config_check", "-c", *checkpoints, "-o", str(one)], one),
    }
    return {name: lambda told=told, file=file: said([*told, *more], file) for name, (told, file) in words.items()}


def losing_a_node(cluster: Cluster, run: Callable[[], Any]) -> tuple[Any, int]:
    """What a command says while a node with half of its jobs is killed, and how many of these it had begun."""
    node = cluster.add_node(num_cpus=1)
    begun = 0

    def kill() -> None:
        nonlocal begun
        while not begun and time.monotonic() < end:
            begun = sum(busy(one) for one in ray.nodes() if one["NodeID"] == node.node_id)
            time.sleep(0.02)
        cluster.remove_node(node, allow_graceful=False)

    end = time.monotonic() + 60
    killer = threading.Thread(target=kill)
    killer.start()
    found = run()
    killer.join()
    return found, begun


def busy(node: dict[str, Any]) -> int:
    """1 if a job runs on a node."""
    free = ray._private.state.available_resources_per_node().get(node["NodeID"], {})
    return int(node["Alive"] and free.get("CPU", 0.0) < 1.0)


if __name__ == "__main__":
    folder = Path(sys.argv[1])
    alone = {name: run() for name, run in commands(folder, "alone", []).items()}
    cluster = Cluster(initialize_head=True, connect=True, head_node_args={"num_cpus": 1, "include_dashboard": False})
    engine._connect = lambda ray, workers: None  # type: ignore[assignment]
    told = {}
    for name, run in commands(folder, "ray", ["--engine", "ray", "--jobs", "2"]).items():
        told[name] = losing_a_node(cluster, run)
    ray.shutdown()
    cluster.shutdown()
    print(json.dumps({name: {"same": told[name][0] == alone[name], "begun": told[name][1]} for name in alone}))
