"""Two gloo ranks that run trainings one after the other, bare and recorded, and write down what they
observed.

Called as a program: `innocence_ranks.py RANK WORLD_SIZE FOLDER`; FOLDER holds jobs.pkl, a list of `Job`.
For each job a rank writes `{job}.rank{R}.pkl` with its `Outcome`. A job that raises is an outcome too; a
hang is for the caller to end. `run_jobs` is that caller: it starts the ranks, ends them when they stop
making progress, and starts again after the job that hung.
"""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
import time
import traceback
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path

from innocence_observation import Observation
from innocence_run import Setting

WORLD_SIZE = 2
SECONDS_WITHOUT_PROGRESS = 90.0  # only what hangs waits so long, and a busy machine takes long to import torch


@dataclass(frozen=True)
class Job:
    """One training of all ranks; `setting` None: bare. `listens`: with a listener that looks at everything."""

    name: str
    setting: Setting | None
    listens: bool = False

    def __str__(self) -> str:
        return f"{self.name}@{self.setting or 'bare'}{'-listens' * self.listens}"


@dataclass
class Outcome:
    """What one rank observed, or the error that ended it. `again`: the same of one more bare training.
    `entries`: recorded names by step. `dump`: where they are. `told`: what a listener was told of."""

    observation: Observation = field(default_factory=dict)
    again: Observation = field(default_factory=dict)
    entries: dict[str, list[str]] = field(default_factory=dict)
    folders: list[str] = field(default_factory=list)
    dump: str = ""
    told: set[str] = field(default_factory=set)
    error: str = ""


def run_jobs(jobs: list[Job], folder: Path) -> dict[Job, list[Outcome]]:
    """Run all jobs on `WORLD_SIZE` ranks; one outcome for each rank of each job."""
    folder.mkdir(parents=True, exist_ok=True)
    found: dict[Job, list[Outcome]] = {}
    attempt = 0
    while len(found) < len(jobs):
        attempt += 1
        here = folder / f"attempt{attempt}"
        here.mkdir()
        rest = [job for job in jobs if job not in found]
        said = _launch(rest, here)
        for job in rest:
            found[job] = _collect(job, here, said)
            if any(outcome.error for outcome in found[job]):
                break  # the ranks ended here; what comes after is for the next attempt
    return found


def _collect(job: Job, folder: Path, said: str) -> list[Outcome]:
    files = [folder / f"{job}.rank{rank}.pkl" for rank in range(WORLD_SIZE)]
    return [
        pickle.loads(file.read_bytes()) if file.exists() else Outcome(error=f"hung or died\n{said}") for file in files
    ]


def _launch(jobs: list[Job], folder: Path) -> str:
    (folder / "jobs.pkl").write_bytes(pickle.dumps(jobs))
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo"}
    environment["PYTHONPATH"] = os.pathsep.join(path for path in sys.path if path)
    outputs = [open(folder / f"rank{rank}.log", "w+") for rank in range(WORLD_SIZE)]  # noqa: SIM115
    ranks = [
        subprocess.Popen(
            [sys.executable, "-X", "faulthandler", __file__, str(rank), str(WORLD_SIZE), str(folder)],
            stdout=output,
            stderr=subprocess.STDOUT,
            env={**environment, "RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(WORLD_SIZE)},
        )
        for rank, output in enumerate(outputs)
    ]
    finished, since = -1, time.monotonic()
    try:
        while any(process.poll() is None for process in ranks):
            now = len(list(folder.glob("*.rank*.pkl")))
            if now != finished:
                finished, since = now, time.monotonic()
            if time.monotonic() - since > SECONDS_WITHOUT_PROGRESS or any(process.poll() for process in ranks):
                break
            time.sleep(0.05)
    finally:
        for process in ranks:
            if process.poll() is None and any(other.poll() != 0 for other in ranks):
                process.kill()
            process.wait()
    said = []
    for rank, output in enumerate(outputs):
        output.seek(0)
        said.append(f"rank {rank}, exit code {ranks[rank].returncode}: {output.read()[-1500:]}")
        output.close()
    return "\n".join(said)


def main(rank: int, world_size: int, folder: Path) -> None:
    import torch
    import torch.distributed as dist
    import zoo
    from innocence_listening import Listening
    from innocence_observation import differences
    from innocence_run import Nobody, Recorder, run, run_bare_twice, without_known_once

    torch.set_num_threads(1)
    zoo.load_all()
    dist.init_process_group(
        "gloo",
        init_method=f"file://{folder}/rendezvous",
        rank=rank,
        world_size=world_size,
        timeout=timedelta(seconds=20),
    )
    (folder / f"started.rank{rank}.pkl").touch()  # progress, as every outcome is
    for number, job in enumerate(pickle.loads((folder / "jobs.pkl").read_bytes())):
        outcome = Outcome()
        try:
            if job.setting is None:
                outcome.again, outcome.observation = run_bare_twice(job.name)
                # The first one may have been the first to use a part of torch; all ranks train again, or none.
                differ = bool(differences(*without_known_once(outcome.observation, outcome.again)))
                anywhere = torch.tensor([float(differ)])
                dist.all_reduce(anywhere)
                if anywhere.item():
                    outcome.again = run(job.name, Nobody())
            else:
                shared = folder / f"job{number}"
                own = shared / f"config{rank}"
                own.mkdir(parents=True)
                kind = Listening if job.listens else Recorder
                recorder = kind(own, job.setting, shared / "dump")
                outcome.observation = run(job.name, recorder)
                outcome.entries = recorder.entries(f"rank{rank}")
                outcome.dump = str(shared / "dump")
                if isinstance(recorder, Listening):
                    outcome.told = recorder.everything.told
                if recorder.faults():
                    raise AssertionError(recorder.faults()[:2000])
                dist.barrier()
                outcome.folders = sorted(
                    {str(p.relative_to(shared / "dump")) for p in (shared / "dump").glob("step*/*")}
                )
        except Exception:
            outcome.error = traceback.format_exc()
        unfinished = folder / f"unfinished{rank}"
        unfinished.write_bytes(pickle.dumps(outcome))
        unfinished.rename(folder / f"{job}.rank{rank}.pkl")
        if outcome.error:  # the other rank may wait for this one: let the caller start afresh
            os._exit(1)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    sys.modules["innocence_ranks"] = sys.modules["__main__"]
    Job.__module__ = Outcome.__module__ = "innocence_ranks"
    main(int(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3]))
