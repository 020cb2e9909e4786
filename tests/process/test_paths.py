"""Files of processes that are killed while they write."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path


def test_processes_killed_while_they_write_never_leave_half_a_file(tmp_path: Path) -> None:
    target = tmp_path / "f"
    program = (
        "import sys\nfrom msprobe.paths import write_atomically\nn = 0\nprint('go', flush=True)\n"
        "while True:\n  n += 1\n  write_atomically(sys.argv[1], [bytes([n % 256]) * 65536] * 16, False)\n"
    )
    for round_number in range(5):
        worker = subprocess.Popen([sys.executable, "-c", program, str(target)], stdout=subprocess.PIPE)
        assert worker.stdout is not None
        worker.stdout.readline()
        try:
            worker.wait(0.05 + 0.013 * round_number)
        except subprocess.TimeoutExpired:
            worker.kill()
        worker.wait()
        worker.stdout.close()
        if target.exists():
            content = target.read_bytes()
            assert len(content) == 1 << 20
            assert len(set(content)) == 1
    assert target.exists()
    for left in tmp_path.glob("*"):
        assert left == target or left.match(".msprobe-*.tmp")
