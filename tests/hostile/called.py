"""Run in a process that has imported everything: ``called.py REPORT SECONDS GIBIBYTES WORDS...``, a command of msprobe
under limits. REPORT gets the seconds of the processor and the mebibytes that it took beyond what was there before.
"""

from __future__ import annotations

import atexit
import resource
import sys
from pathlib import Path

from msprobe.cli import main


def peak() -> int:
    """The most resident memory so far, in KiB. What the forking process had counts, as in the copy of its pages."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


if __name__ == "__main__":
    report, seconds, gibibytes = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    before = peak()
    own = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_CPU, (seconds + 1, seconds + 1))
    resource.setrlimit(resource.RLIMIT_AS, (own + (gibibytes << 30), own + (gibibytes << 30)))

    def write_report() -> None:
        used = [resource.getrusage(whose) for whose in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
        took = sum(one.ru_utime + one.ru_stime for one in used)
        most = max(peak() - before, used[1].ru_maxrss)
        Path(report).write_text(f"{took} {most // 1024}")

    atexit.register(write_report)
    sys.argv = ["msprobe", *sys.argv[4:]]
    sys.exit(main(sys.argv[1:]))
