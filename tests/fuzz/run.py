"""Fuzzing: ``make fuzz``. In tests/: ``python -m fuzz.run [READER ...]``; one file: ``python -m fuzz.run READER FILE``.

FUZZ_SECONDS (60) are shared by all readers, on FUZZ_JOBS (all, at most 2) processors. With the same FUZZ_SEED (0) the
same inputs come again. Each input is read in a child process that may use so much of the processor and of memory. What
ends otherwise than it may is written to FUZZ_FOUND (.fuzz), with the command that shows it; exit status 1 then.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib
import os
import pickle
import pkgutil
import random
import resource
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

from fuzz.readers import READERS, Reader

TESTS = Path(__file__).resolve().parents[1]
# By the clock: who waits uses no processor, and a busy machine gives little of it.
_WAITED = 15
_MOST_FOUND = 20
#: What may be the machine's doing: read a second time before it counts.
_BUSY, _WAITS = _SLOW = "more time of the processor", "waits"
_OF_FRAMEWORKS = {
    "torch",
    "mindspore",
    "pytorch",
    "capture",
    "integrations",
    "lockstep",
    "perturb",
    "core",
    "grad_probe",
    "__main__",
}


@dataclass(frozen=True)
class Found:
    """An input that ended otherwise than it may. ``what``: how; ``where``: the innermost place in the package."""

    reader: str
    what: str
    where: str
    data: bytes
    text: str


Result = tuple[int, list[Found]] | None


def read_one(reader: Reader, data: bytes, first: bytes | None = None) -> Found | None:
    """Read one input in a child process; what was wrong, if anything. ``first``: an honest one that is read before it,
    so that what is imported for that does not count; a seed of the reader by default.
    """
    warm = next(path.read_bytes() for path in reader.seeds() if is_honest(path)) if first is None else first
    with tempfile.TemporaryDirectory(prefix="msprobe-fuzz-", ignore_cleanup_errors=True) as folder:
        return _in_child(reader, iter([warm, data]), Path(folder), time.monotonic() + 1e9)[1]


def read_files(reader: Reader, paths: list[Path]) -> dict[Path, Found]:
    """Read files one after the other, in as few child processes as can be; what was wrong with which."""
    warm = next(path.read_bytes() for path in reader.seeds() if is_honest(path))
    found: dict[Path, Found] = {}
    todo = list(paths)
    while todo:
        with tempfile.TemporaryDirectory(prefix="msprobe-fuzz-", ignore_cleanup_errors=True) as folder:
            inputs = iter([warm, *(path.read_bytes() for path in todo)])
            count, problem = _in_child(reader, inputs, Path(folder), time.monotonic() + 1e9)
        if problem is None:
            break
        if count > 1:
            found[todo[count - 2]] = problem
        todo = todo[max(1, count - 1) :]
    return found


def is_honest(path: Path) -> bool:
    """Whether a file of the corpus is one that users have: others once were wrong."""
    return not path.name.startswith("crash-")


def fuzz(name: str, seconds: float, seed: int) -> tuple[int, list[Found]]:
    """Read changed inputs for so many seconds: how many, and what was wrong, one for each place."""
    reader = READERS[name]
    dice = random.Random(f"{seed} {name}")
    # An honest one first: what is imported for it counts for none.
    seeds = [path.read_bytes() for path in sorted(reader.seeds(), key=is_honest, reverse=True)]
    end = time.monotonic() + seconds
    found: dict[tuple[str, str], Found] = {}
    count = 0

    def inputs() -> object:
        yield from seeds
        while True:
            made = dice.choice(seeds)
            for _ in range(dice.choice((1, 1, 2, 3))):
                made = reader.change(dice, made, reader.words)
            yield made

    coming = inputs()
    while time.monotonic() < end and len(found) < _MOST_FOUND:
        with tempfile.TemporaryDirectory(prefix="msprobe-fuzz-", ignore_cleanup_errors=True) as folder:
            read, problem = _in_child(reader, coming, Path(folder), end)
        count += read
        if problem is not None and (problem.what not in _SLOW or read_one(reader, problem.data) is not None):
            found.setdefault((problem.what, problem.where), problem)
        # The child has gone on with the dice of its own; those of this process go to where it stood.
        for _ in range(read):
            next(coming)  # type: ignore[call-overload]
    return count, list(found.values())


def _in_child(reader: Reader, coming: object, folder: Path, end: float) -> tuple[int, Found | None]:
    """Read inputs in a child until one is wrong, they end, or the time is over."""
    report, current, counted = folder / "report", folder / "current", folder / "count"
    pid = os.fork()
    if not pid:
        _read_all(reader, coming, folder, end)
    _, status = os.waitpid(pid, 0)
    read = int(counted.read_text() or 0) if counted.exists() else 0
    code = os.waitstatus_to_exitcode(status)
    if not code:
        return read, None
    data = current.read_bytes() if current.exists() else b""
    if report.exists():
        what, where, text = report.read_text(errors="replace").split("\n", 2)
        return read, Found(reader.name, what, where, data, text)
    names = {-signal.SIGPROF: _BUSY, -signal.SIGALRM: _WAITS, -signal.SIGKILL: "killed"}
    return read, Found(reader.name, names.get(code, f"ended by {code}"), "", data, "")


def _read_all(reader: Reader, coming: object, folder: Path, end: float) -> NoReturn:
    """The child. Never returns."""
    status = 0
    null = os.open(os.devnull, os.O_RDWR)
    for descriptor in (0, 1, 2):
        os.dup2(null, descriptor)
    os.environ["TMPDIR"] = str(folder)
    tempfile.tempdir = None
    count, is_warm = 0, False
    try:
        for data in coming:  # type: ignore[attr-defined]
            count += 1
            (folder / "current").write_bytes(data)
            (folder / "count").write_text(str(count))
            place = folder / "work"
            place.mkdir()
            # What is imported with the first input counts for none.
            signal.setitimer(signal.ITIMER_PROF, reader.seconds if is_warm else 10 * reader.seconds)
            signal.setitimer(signal.ITIMER_REAL, _WAITED if is_warm else 4 * _WAITED)
            try:
                reader.read(data, place)
            except BaseException as problem:
                status = 1
                signal.setitimer(signal.ITIMER_REAL, 4 * _WAITED)
                _report(problem, folder / "report")
                break
            finally:
                signal.setitimer(signal.ITIMER_PROF, 0)
            if not is_warm:
                _limit_memory(reader.mebibytes)
                is_warm = True
            shutil.rmtree(place, ignore_errors=True)
            if time.monotonic() > end:
                break
    finally:
        os._exit(status)


def _limit_memory(mebibytes: int) -> None:
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    most = pages * resource.getpagesize() + (mebibytes << 20)
    resource.setrlimit(resource.RLIMIT_AS, (most, most))


def _report(problem: BaseException, path: Path) -> None:
    frames = traceback.extract_tb(problem.__traceback__)
    own = [frame for frame in frames if "/msprobe/" in frame.filename] or list(frames)
    where = f"{own[-1].filename.rpartition('/msprobe/')[2]}:{own[-1].name}" if own else ""
    text = "".join(traceback.format_exception(problem))
    path.write_text(f"{type(problem).__name__}\n{where}\n{text[-8000:]}", errors="backslashreplace")


def write(found: Found, folder: Path) -> Path:
    """Keep an input that was wrong, beside what shows it."""
    folder.mkdir(parents=True, exist_ok=True)
    name = f"{found.reader}-{hashlib.sha256(found.data).hexdigest()[:12]}"
    path = folder / name
    path.write_bytes(found.data)
    command = f"cd {TESTS} && {sys.executable} -m fuzz.run {found.reader} {path.resolve()}"
    (folder / f"{name}.txt").write_text(f"{found.what} {found.where}\n\n{command}\n\n{found.text}")
    return path


def main(words: list[str]) -> int:
    """Fuzz the readers that are named, or all; or read one file by one reader."""
    if len(words) == 2 and words[1] not in READERS:
        problem = read_one(READERS[words[0]], Path(words[1]).read_bytes())
        print(f"{problem.what} {problem.where}\n{problem.text}" if problem else "it is read, or refused in words")
        return int(problem is not None)
    names = words or list(READERS)
    unknown = [name for name in names if name not in READERS]
    if unknown:
        print(f"there is no reader {unknown[0]!r}; these are {', '.join(READERS)}")
        return 2
    jobs = int(os.environ.get("FUZZ_JOBS") or min(2, os.cpu_count() or 1))
    seconds = float(os.environ.get("FUZZ_SECONDS") or 60) * jobs / len(names)
    seed = int(os.environ.get("FUZZ_SEED") or 0)
    folder = Path(os.environ.get("FUZZ_FOUND") or ".fuzz")
    import_all()
    bad = inputs = 0
    with tempfile.TemporaryDirectory(prefix="msprobe-fuzz-") as results:
        for name, result in _in_processes(names, jobs, seconds, seed, Path(results)):
            if result is None:
                bad += 1
                print(f"{name:24} the process that fuzzes it has died", flush=True)
                continue
            count, found = result
            inputs += count
            bad += len(found)
            print(f"{name:24} {count:7} inputs, {len(found)} of them wrong", flush=True)
            for one in found:
                print(f"    {one.what} {one.where}: {write(one, folder)}", flush=True)
    print(f"{inputs} inputs of {len(names)} readers, {bad} places that are wrong (seed {seed})")
    return int(bool(bad))


def _in_processes(names: list[str], jobs: int, seconds: float, seed: int, folder: Path) -> Iterator[tuple[str, Result]]:
    """Fuzz each reader in a process of its own, some at a time: what came of each, None where the process has died."""
    running: dict[int, str] = {}
    todo = list(names)
    while todo or running:
        while todo and len(running) < jobs:
            name = todo.pop(0)
            pid = os.fork()
            if not pid:
                status = 1
                try:
                    (folder / name).write_bytes(pickle.dumps(fuzz(name, seconds, seed)))
                    status = 0
                finally:
                    os._exit(status)
            running[pid] = name
        pid, _ = os.wait()
        if pid in running:
            name = running.pop(pid)
            path = folder / name
            yield name, pickle.loads(path.read_bytes()) if path.exists() else None


def import_all() -> None:
    """What commands import when they are called, once for all processes; frameworks are left out."""
    import msprobe

    for module in pkgutil.walk_packages(msprobe.__path__, "msprobe."):
        if not _OF_FRAMEWORKS & set(module.name.split(".")):
            with contextlib.suppress(ImportError):
                importlib.import_module(module.name)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
