"""What the advisor of the published package (8.1.1) names on the same dumps, in the form of verdict.json.

The package runs in an environment of its own (bench/reference_env.py), in one process that is kept: this file is also
the program of that process. Its advisor names one row of one step and rank; steps and ranks are asked in order, and the
first that has a suspect counts. It names a tensor and no kind of fault, so that any kind counts as right.
"""

from __future__ import annotations

import atexit
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

_ADVICE = "advisor_*.txt"


class Peer:
    """The process of the published package."""

    def __init__(self) -> None:
        sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
        from reference_env import clean_environment, make

        self._process = subprocess.Popen(
            [str(make("8.1.1")), __file__],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=clean_environment(),
            text=True,
        )
        atexit.register(self._process.kill)

    def suspect(self, candidate: Path, reference: Path) -> str | None:
        """The row that the advisor suspects; None if it finds nothing, or fails."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps([str(candidate), str(reference)]) + "\n")
        self._process.stdin.flush()
        answer = json.loads(self._process.stdout.readline())
        return answer if isinstance(answer, str) else None


_PEER: list[Peer] = []


def advisor_verdict(pair: Any) -> dict[str, Any]:
    """The advisor's answer on a recorded pair."""
    if not _PEER:
        _PEER.append(Peer())
    candidate, reference = pair.dump("candidate"), pair.dump("reference")
    for step in sorted(candidate.iterdir(), key=lambda folder: int(folder.name[4:])):
        for rank in sorted(step.iterdir()):
            other = reference / step.name / rank.name
            if not other.is_dir():
                continue
            node = _PEER[0].suspect(rank, other)
            if node:
                finding = {"kind": None, "entry": node, "where": node, "step": int(step.name[4:])}
                finding["rank"] = rank.name.removeprefix("rank") or None
                return {"status": "diverged", "findings": [finding]}
    return {"status": "agree", "findings": []}


def main() -> None:
    """In the environment of the published package: read pairs of folders, answer each with the suspect."""
    import os

    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    from msprobe.pytorch import compare  # type: ignore[attr-defined, unused-ignore]

    for line in sys.stdin:
        candidate, reference = json.loads(line)
        with tempfile.TemporaryDirectory() as folder:
            paths = {
                "npu_json_path": f"{candidate}/dump.json",
                "bench_json_path": f"{reference}/dump.json",
                "stack_json_path": f"{candidate}/stack.json",
                "is_print_compare_log": False,
            }
            node = None
            try:
                compare(paths, folder, stack_mode=False)
                (advice,) = Path(folder).glob(_ADVICE)
                for told in advice.read_text().splitlines():
                    name, _, value = told.partition(": ")
                    if name == "Suspect Nodes" and value.strip() != "NA":
                        node = value.strip()
            except (Exception, SystemExit) as problem:
                sys.stderr.write(f"{problem!r}\n")
        answers.write(json.dumps(node) + "\n")
        answers.flush()


if __name__ == "__main__":
    main()
