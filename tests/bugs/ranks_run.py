"""Record a side that has several ranks: processes that stay, one for each rank, with one gloo group.

Starting a rank costs seconds and a recording tenths of one, so the ranks are kept and given one program after the
other. A rank that fails, or takes too long, ends them all; the next recording starts new ones.
"""

from __future__ import annotations

import atexit
import json
import os
import select
import subprocess
import sys
import tempfile
import traceback
from datetime import timedelta
from pathlib import Path
from typing import Any

SECONDS = 60.0


class Ranks:
    """The processes."""

    def __init__(self, world: int) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="ranks-")
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo", "WORLD_SIZE": str(world)}
        environment["PYTHONPATH"] = os.pathsep.join(path for path in sys.path if path)
        self._processes = [
            subprocess.Popen(
                [sys.executable, "-B", "-m", "bugs.ranks_run", f"{self._folder.name}/rendezvous"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                env={**environment, "RANK": str(rank)},
                text=True,
            )
            for rank in range(world)
        ]

    def do(self, job: dict[str, Any]) -> None:
        """Let all ranks do a job; RuntimeError with what they said if one of them cannot."""
        for process in self._processes:
            assert process.stdin is not None
            process.stdin.write(json.dumps(job) + "\n")
            process.stdin.flush()
        said = []
        for process in self._processes:
            assert process.stdout is not None
            ready, _, _ = select.select([process.stdout], [], [], SECONDS)
            line = process.stdout.readline() if ready else ""
            said.append(line.strip() or "no answer")
            if said[-1] != "done":
                self.close()
                raise RuntimeError("\n".join(said))

    def close(self) -> None:
        """End the processes."""
        for process in self._processes:
            process.kill()
            process.wait()
        self._folder.cleanup()
        for world in [world for world, ranks in _RUNNING.items() if ranks is self]:
            del _RUNNING[world]


_RUNNING: dict[int, Ranks] = {}


@atexit.register
def close_all() -> None:
    """End all ranks."""
    for ranks in list(_RUNNING.values()):
        ranks.close()


def record(
    place: Path,
    settings: dict[str, Any],
    mode: str,
    steps: int,
    world: int,
    precision: str = "float32",
    device: str = "",
) -> None:
    """Run the program in ``place`` on ``world`` ranks and record each of its steps."""
    if world not in _RUNNING:
        _RUNNING[world] = Ranks(world)
    _RUNNING[world].do(
        {
            "place": str(place),
            "settings": settings,
            "mode": mode,
            "steps": steps,
            "precision": precision,
            "device": device,
        }
    )
    outcomes = [json.loads((place / f"outcome-{rank}.json").read_text()) for rank in range(world)]
    joined = [
        {key: {rank: outcomes[rank][step][key] for rank in range(world)} for key in outcomes[0][step]}
        for step in range(steps)
    ]
    (place / "outcome.json").write_text(json.dumps(joined))


def main() -> None:
    """One rank: read jobs, answer each with ``done`` or with what went wrong."""
    import torch
    import torch.distributed as dist

    from bugs.record import record_side

    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    torch.set_num_threads(1)
    rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    dist.init_process_group(
        "gloo",
        init_method=f"file://{sys.argv[1]}",
        rank=rank,
        world_size=world,
        timeout=timedelta(seconds=SECONDS),
    )
    for line in sys.stdin:
        job = json.loads(line)
        try:
            place, asked = Path(job["place"]), (job["settings"], job["mode"], job["steps"])
            record_side(place, *asked, rank, job["precision"], job["device"])
            answer = "done"
        except Exception:
            answer = f"rank {rank}: {traceback.format_exc()}".replace("\n", " | ")
        answers.write(answer + "\n")
        answers.flush()
    os._exit(0)


if __name__ == "__main__":
    main()
