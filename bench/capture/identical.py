"""Are the dumps of two versions of the recorder the same, byte for byte, apart from times?

    python bench/capture/identical.py HEAD                    # what is committed against the working tree, all ways
    python bench/capture/identical.py v1.2 HEAD               # two revisions
    python bench/capture/identical.py HEAD --sample 8         # every eighth training: a first look
    python bench/capture/identical.py HEAD --ways mix,L1-python --names lstm,fsdp2
    python bench/capture/identical.py HEAD --framework mindspore   # with the environment of make test-mindspore

Each training of the zoo (tests/zoo; for MindSpore tests/support/mindspore_networks.py) is recorded in several ways by
both versions, both times from the programs of the working tree and into the same folder, so that paths and call
stacks are the same. Every file is then compared. A file that differs is recorded twice more by the first version: what
that version does not repeat itself (memory that nobody wrote, threads) is listed apart and is no difference.

Exit code 1 if a file differs. The dumps that differ stay under .bench/identical/differing.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
PLACE = ROOT / ".bench" / "identical"
WORKER = Path(__file__).resolve().parent / "identical_recording.py"
# A chunk of trainings shares one process; what is left of one training must not differ for the next.
CHUNK = 12
TIME_LIMIT = 900
# Which process recorded, and when it was started, in the header of a dump.
PROCESS = re.compile(rb'("pid"|"started"): \d+')
# What a line of the log of errors begins with.
TIME = re.compile(rb"^\d{4}-\d\d-\d\d \d\d:\d\d:\d\d(,\d+)?", re.MULTILINE)


def statistics(level: str, **section: Any) -> dict[str, Any]:
    return {"task": "statistics", "level": level, "statistics": {"summary_mode": "statistics", **section}}


# How a training is recorded: settings, and whether without the C extension.
WAYS: dict[str, tuple[dict[str, Any], bool]] = {
    "L0": (statistics("L0"), False),
    "L1": (statistics("L1"), False),
    "mix": (statistics("mix"), False),
    "L2": (statistics("L2"), False),
    "debug": (statistics("debug"), False),
    "mix-md5": (statistics("mix", summary_mode="md5"), False),
    "mix-xor": (statistics("mix", summary_mode="xor"), False),
    "mix-buffers-high": ({**statistics("mix"), "buffers": True, "precision": "high"}, False),
    "mix-structure": ({"task": "structure", "level": "mix"}, False),
    "mix-tensor": ({"task": "tensor", "level": "mix", "tensor": {}}, False),
    "mix-some": (statistics("mix", list=["linear", "backward"], data_mode=["backward", "input"]), False),
    "L1-overflow": ({"task": "overflow_check", "level": "L1", "overflow_check": {"overflow_nums": -1}}, False),
    "mix-python": (statistics("mix"), True),
    "mix-md5-python": (statistics("mix", summary_mode="md5"), True),
    "L1-tensor-python": ({"task": "tensor", "level": "L1", "tensor": {}}, True),
}
MINDSPORE_WAYS = ("L0", "L1", "mix", "debug", "mix-md5", "mix-structure", "mix-tensor", "mix-python")


@dataclass(frozen=True)
class Job:
    """Trainings that one group of processes records one after the other."""

    way: str
    ranks: int
    names: tuple[str, ...]


@dataclass(frozen=True)
class Version:
    """A recorder: the folder that holds its package."""

    title: str
    source: Path


def version(revision: str | None) -> Version:
    """The working tree (None), or a revision of the repository, unpacked and built under .bench."""
    if revision is None:
        return Version("working tree", ROOT / "src")
    name = subprocess.run(
        ["git", "rev-parse", "--short=12", f"{revision}^{{commit}}"], cwd=ROOT, capture_output=True, text=True
    )
    if name.returncode:
        raise SystemExit(f"{revision}: no such revision here; give a commit, a tag or a branch")
    folder = PLACE / "versions" / name.stdout.strip()
    if not (folder / "built").exists():
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        packed = subprocess.run(["git", "archive", name.stdout.strip()], cwd=ROOT, capture_output=True, check=True)
        subprocess.run(["tar", "x", "-C", str(folder)], input=packed.stdout, check=True)
        subprocess.run([sys.executable, "setup.py", "-q", "build_ext", "--inplace"], cwd=folder, check=True)
        (folder / "built").touch()
    return Version(f"{revision} ({name.stdout.strip()})", folder / "src")


def jobs_of(ways: Sequence[str], trainings: dict[str, int]) -> Iterator[Job]:
    for way in ways:
        for ranks in sorted(set(trainings.values())):
            names = [name for name, its_ranks in trainings.items() if its_ranks == ranks]
            for begin in range(0, len(names), CHUNK):
                yield Job(way, ranks, tuple(names[begin : begin + CHUNK]))


def record(job: Job, recorder: Version, framework: str, slot: int) -> Path:
    """The folder with the dumps of a job: ``{training}/...``. The same folder for every version, so move it away."""
    folder = PLACE / f"recording{slot}"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    settings, python = WAYS[job.way]
    order = {"settings": settings, "names": job.names, "framework": framework, "ranks": job.ranks}
    (folder / "order.json").write_text(json.dumps(order))
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([str(recorder.source), str(ROOT / "tests"), str(ROOT / "tests/integration")]),
        "PYTHONHASHSEED": "0",
        "OMP_NUM_THREADS": "1",
        "GLOO_SOCKET_IFNAME": "lo",
        "MSPROBE_LOG_LEVEL": "3",
        "MSPROBE_NATIVE": "0" if python else "1",
    }
    running = []
    for rank in range(job.ranks):
        of_rank = {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(job.ranks)} if job.ranks > 1 else {}
        with open(folder / f"said{rank}.txt", "w") as said:
            running.append(
                subprocess.Popen(
                    [sys.executable, str(WORKER), str(folder), str(recorder.source)],
                    env={**environment, **of_rank},
                    stdout=said,
                    stderr=subprocess.STDOUT,
                )
            )
    for process in running:
        try:
            process.wait(TIME_LIMIT)
        except subprocess.TimeoutExpired:
            for other in running:
                other.kill()
            raise SystemExit(f"{job}: not done after {TIME_LIMIT} s") from None
    if any(process.returncode for process in running):
        said_text = "".join((folder / f"said{rank}.txt").read_text()[-2000:] for rank in range(job.ranks))
        raise SystemExit(f"{recorder.title}: {job} failed:\n{said_text}")
    return folder


def keep(folder: Path, place: Path) -> Path:
    shutil.rmtree(place, ignore_errors=True)
    place.parent.mkdir(parents=True, exist_ok=True)
    shutil.move(folder, place)
    return place


def differing(one: Path, other: Path, names: Iterable[str]) -> dict[str, list[str]]:
    """The files of each training that differ or that one side alone has."""
    found: dict[str, list[str]] = {}
    for name in names:
        paths = ((root / name, path) for root in (one, other) for path in (root / name).rglob("*"))
        files = {str(path.relative_to(root)) for root, path in paths if path.is_file()}
        bad = [file for file in sorted(files) if contents(one / name / file) != contents(other / name / file)]
        if bad:
            found[name] = bad
    return found


def contents(file: Path) -> bytes | None:
    """What is compared of a file: all but which process wrote it and when."""
    if not file.is_file():
        return None
    raw = file.read_bytes()
    if file.suffix == ".json":
        return PROCESS.sub(rb"\1: 0", raw)
    if file.suffix == ".log":
        return TIME.sub(b"", raw)
    return raw


@dataclass
class Outcome:
    """What came of a job. ``unsteady``: files that the first version does not repeat itself."""

    job: Job
    files: int
    differing: dict[str, list[str]]
    unsteady: dict[str, list[str]]


def run(job: Job, before: Version, after: Version, framework: str, slot: int) -> Outcome:
    mine = PLACE / f"slot{slot}"
    first = keep(record(job, before, framework, slot), mine / "before")
    second = keep(record(job, after, framework, slot), mine / "after")
    files = sum(1 for name in job.names for path in (first / name).rglob("*") if path.is_file())
    bad = differing(first, second, job.names)
    unsteady: dict[str, list[str]] = {}
    for _ in range(2 if bad else 0):
        again = keep(record(job, before, framework, slot), mine / "again")
        for name, rest in differing(first, again, bad).items():
            unsteady[name] = sorted({*unsteady.get(name, ()), *rest})
    for name, of_name in list(bad.items()):
        left = [file for file in of_name if file not in unsteady.get(name, ())]
        bad[name] = left
        if not left:
            del bad[name]
    for name in bad:
        for side, root in (("before", first), ("after", second)):
            shutil.copytree(root / name, PLACE / "differing" / job.way / name / side, dirs_exist_ok=True)
    return Outcome(job, files, bad, unsteady)


def trainings_of(framework: str) -> dict[str, int]:
    """The trainings and how many ranks each has."""
    asked = subprocess.run(
        [sys.executable, str(WORKER), "--list", framework],
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT / "tests")])},
        capture_output=True,
        text=True,
    )
    if asked.returncode:
        raise SystemExit(f"the trainings cannot be listed:\n{asked.stderr[-2000:]}")
    found: dict[str, int] = json.loads(asked.stdout.splitlines()[-1])
    return found


def chosen(text: str, allowed: Sequence[str], flag: str) -> list[str]:
    wanted = [item.strip() for item in text.split(",") if item.strip()]
    unknown = [item for item in wanted if item not in allowed]
    if unknown:
        raise SystemExit(f"{flag}: unknown {', '.join(unknown)}; allowed: {', '.join(allowed)}")
    return wanted


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("before", help="a revision")
    parser.add_argument("after", nargs="?", help="another revision; the working tree if it is left out")
    parser.add_argument("--ways", default="", help=f"of {', '.join(WAYS)}; all if left out")
    parser.add_argument("--names", default="", help="these trainings alone")
    parser.add_argument("--sample", type=int, default=1, help="every n-th training alone")
    parser.add_argument("--framework", choices=("pytorch", "mindspore"), default="pytorch")
    parser.add_argument("--jobs", type=int, default=2, help="how many trainings are recorded at a time")
    asked = parser.parse_args()
    known = trainings_of(asked.framework)
    names = chosen(asked.names, list(known), "--names") or list(known)[:: asked.sample]
    allowed = list(WAYS) if asked.framework == "pytorch" else list(MINDSPORE_WAYS)
    ways = chosen(asked.ways, allowed, "--ways") or allowed
    before, after = version(asked.before), version(asked.after)
    shutil.rmtree(PLACE / "differing", ignore_errors=True)
    work = list(jobs_of(ways, {name: known[name] for name in names}))
    free = list(range(asked.jobs))

    def done(job: Job) -> Outcome:
        slot = free.pop()
        try:
            return run(job, before, after, asked.framework, slot)
        finally:
            free.append(slot)

    files, bad, unsteady = 0, 0, 0
    with ThreadPoolExecutor(asked.jobs) as pool:
        for outcome in pool.map(done, work):
            files += outcome.files
            for name, of_name in outcome.differing.items():
                bad += len(of_name)
                print(f"differs: {outcome.job.way} {name}: {', '.join(of_name[:4])}{' ..' if len(of_name) > 4 else ''}")
            for name, of_name in outcome.unsteady.items():
                unsteady += len(of_name)
                print(f"not repeated by {before.title} itself: {outcome.job.way} {name}: {', '.join(of_name[:4])}")
            sys.stdout.flush()
    print(
        f"{len(names)} trainings x {len(ways)} ways, {before.title} against {after.title}: {files} files, {bad} differ"
        f" ({unsteady} that are not repeated by the same version are left out)."
    )
    for slot in range(asked.jobs):
        shutil.rmtree(PLACE / f"slot{slot}", ignore_errors=True)
        shutil.rmtree(PLACE / f"recording{slot}", ignore_errors=True)
    if bad:
        print(f"What differs stands in {PLACE / 'differing'}.")
        raise SystemExit(1)


if __name__ == "__main__":
    main()
