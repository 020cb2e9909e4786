"""Run in a process that has imported everything: ``called.py REPORT SECONDS GIBIBYTES WORDS...``, a command of msprobe
under limits. REPORT gets the seconds of the processor and the mebibytes that it took beyond what was there before.
"""

from __future__ import annotations

import atexit
import resource
import sys
from pathlib import Path

from msprobe.cli import main

sys.path.insert(0, str(Path(__file__).parents[1]))
from support import forked

del sys.path[0]

#: Commands whose workers import torch.
_WITH_WORKERS = {"run_ut", "acc_check", "multi_run_ut", "multi_acc_check", "run_overflow_check", "op_check"}


def peak() -> int:
    """The most resident memory so far, in KiB. What the forking process had counts, as in the copy of its pages."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


if __name__ == "__main__":
    report, seconds, gibibytes = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    before = peak()
    own = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_CPU, (seconds + 1, seconds + 1))
    resource.setrlimit(resource.RLIMIT_AS, (own + (gibibytes << 30), own + (gibibytes << 30)))
    # Its memory begins with that of this process.
    workers = forked.fork_modules() if _WITH_WORKERS & set(sys.argv[4:8]) else None

    def write_report() -> None:
        if workers is not None:
            workers.end()
        used = [resource.getrusage(whose) for whose in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
        took = sum(one.ru_utime + one.ru_stime for one in used)
        most = max(peak() - before, used[1].ru_maxrss - (before if workers else 0))
        Path(report).write_text(f"{took} {most // 1024}")

    atexit.register(write_report)
    sys.argv = ["msprobe", *sys.argv[4:]]
    sys.exit(main(sys.argv[1:]))
