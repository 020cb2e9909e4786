"""One command in a process of its own under limits, and what must hold of how it ends."""

from __future__ import annotations

import os
import re
import resource
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path

from support import forked

#: Seconds of the processor and resident memory that a command may use.
SECONDS, MEBIBYTES = 20, 1024
#: Controls but tab and line break, and marks that turn the direction of text.
CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069]")


# Starts a command from a small process: one that is forked from a large one counts the memory of that as its own.
_LAUNCH = """
import os, sys
pid = os.fork()
if pid == 0:
    os.close(int(sys.argv[1]))
    os.execv(sys.argv[2], sys.argv[2:])
_, status, usage = os.wait4(pid, 0)
os.write(int(sys.argv[1]), f"{status} {usage.ru_utime + usage.ru_stime} {usage.ru_maxrss}".encode())
"""


class Ended:
    """How a command ended: ``status``, ``text`` (both streams), ``seconds`` of the processor, ``mebibytes`` at most,
    and the seconds that it was waited for.
    """

    status: int
    text: str
    seconds: float
    mebibytes: int
    waited: float

    def demand_quick(self, seconds: float = SECONDS, mebibytes: int = MEBIBYTES) -> None:
        """It ended by itself, within the limits, and without a traceback."""
        assert self.waited < 3 * seconds, f"had not ended after {self.waited:.0f} s"
        assert self.seconds < seconds, f"took {self.seconds:.0f} s of the processor or more"
        assert self.mebibytes < mebibytes, f"took {self.mebibytes} MiB"
        assert self.status >= 0, f"ended by signal {-self.status}"
        assert "Traceback" not in self.text, self.text.strip().splitlines()[-1]

    def demand_refused(self) -> None:
        """It said what is wrong with the input: status 2 and a sentence, quickly."""
        self.demand_quick()
        assert self.status == 2, f"status {self.status}: {self.text.strip()[-200:]}"
        assert "msprobe: " in self.text, self.text[-200:]

    def demand_printable(self) -> None:
        """Nothing that it printed acts on a terminal."""
        found = CONTROL.search(self.text)
        assert not found, f"{found.group()!r} on the console: {self.text[max(0, found.start() - 40) : found.end()]!r}"


class Answer(Ended):
    """A command in a process of its own, from the first line of Python on.

    The words are those of ``msprobe``, or of Python with ``python``. The process is killed when it has used the
    processor for ``seconds``, or has waited for three times as long. ``gibibytes`` of address space may be asked for.
    ``variables`` are added to the environment.
    """

    def __init__(
        self,
        *command: object,
        cwd: Path,
        seconds: int = SECONDS,
        python: bool = False,
        gibibytes: int = 8,
        variables: Mapping[str, str] | None = None,
    ) -> None:
        def limit() -> None:
            resource.setrlimit(resource.RLIMIT_CPU, (seconds + 1, seconds + 1))
            resource.setrlimit(resource.RLIMIT_AS, (gibibytes << 30, gibibytes << 30))

        tool = Path(sys.executable).with_name("msprobe")
        words = [sys.executable if python else str(tool), *map(str, command)]
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "COLUMNS": "200", **(variables or {})}
        begun = time.monotonic()
        reading, writing = os.pipe()
        with tempfile.TemporaryFile() as output:
            process = subprocess.Popen(
                [sys.executable, "-I", "-S", "-c", _LAUNCH, str(writing), *words],
                pass_fds=(writing,),
                start_new_session=True,
                cwd=cwd,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                preexec_fn=limit,
            )
            os.close(writing)
            try:
                process.wait(3 * seconds)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
            output.seek(0)
            self.text = output.read().decode("utf-8", "surrogateescape")
        self.waited = time.monotonic() - begun
        with open(reading, "rb") as report:
            numbers = report.read().split()
        self.status, self.seconds, self.mebibytes = -signal.SIGKILL, self.waited, 0
        if numbers:
            self.status = os.waitstatus_to_exitcode(int(numbers[0]))
            self.seconds, self.mebibytes = float(numbers[1]), int(numbers[2]) // 1024


class Called(Ended):
    """A command of msprobe in a process that has imported everything already, which takes most of its time otherwise.

    Limits as those of :class:`Answer`; memory is what it took beyond the imports.
    """

    def __init__(self, *command: object, cwd: Path, seconds: int = SECONDS, gibibytes: int = 8) -> None:
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "COLUMNS": "200"}
        begun = time.monotonic()
        with tempfile.TemporaryDirectory() as folder:
            report = Path(folder, "report")
            words = [str(Path(__file__).with_name("called.py")), str(report), str(seconds), str(gibibytes)]
            started = forked.start(*words, *map(str, command), cwd=cwd, env=environment)
            try:
                done = started.wait(3 * seconds)
                self.status, self.text = done.returncode, done.stdout + done.stderr
            except subprocess.TimeoutExpired as late:
                self.status, self.text = -signal.SIGKILL, f"{late.output}{late.stderr}"
            self.waited = time.monotonic() - begun
            self.seconds, self.mebibytes = self.waited, 0
            if report.exists():
                numbers = report.read_text().split()
                self.seconds, self.mebibytes = float(numbers[0]), int(numbers[1])
