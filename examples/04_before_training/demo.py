"""Two machines, one training that fails on one of them: what differs, and where the first NaN comes from.

    python demo.py [FOLDER]         (FOLDER: where the results go, `output` beside this file if left out)

README.md says what each command is for and how to read what it prints.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).resolve().parent


@dataclass(frozen=True)
class Command:
    """What is run (words of `msprobe`, or a script of Python), why, and the exit status that it should have."""

    why: str
    words: tuple[str, ...]
    status: int = 0

    @property
    def shown(self) -> str:
        """As it would be typed."""
        return " ".join([*(() if self.is_script else ("msprobe",)), *self.words])

    @property
    def is_script(self) -> bool:
        """True for a command that is not ours."""
        return self.words[0] == "python"

    @property
    def run(self) -> list[str]:
        """For this Python."""
        return list(self.words[1:]) if self.is_script else ["-m", "msprobe", *self.words]


def commands(out: str) -> Iterator[Command]:
    """All of them, in order; ``out`` is the folder of the results."""
    check = "config_check"
    yield Command("On the first machine", (check, "-d", "trusted.sh", "optimizer.yaml", "-o", f"{out}/trusted.zip"))
    yield Command("On the second one", (check, "-d", "suspect.sh", "optimizer.yaml", "-o", f"{out}/suspect.zip"))
    packs = (f"{out}/trusted.zip", f"{out}/suspect.zip")
    yield Command("What differs, what matters first", (check, "-c", *packs, "-o", f"{out}/settings"), 1)
    one_step = ("python", "train.py", "--steps", "1")
    trusted = ("--save-pack", f"{out}/trusted_start.zip", "--save", f"{out}/trusted.pt")
    suspect = ("--save-pack", f"{out}/suspect_start.zip", "--save", f"{out}/suspect.pt")
    yield Command("From inside of the training: its start on the one", (*one_step, *trusted))
    yield Command("And on the other", (*one_step, "--norm-epsilon", "1e-50", *suspect))
    packs = (f"{out}/trusted_start.zip", f"{out}/suspect_start.zip")
    yield Command("Do weights, data and random numbers agree?", (check, "-c", *packs, "-o", f"{out}/start"), 1)
    checkpoints = (f"{out}/trusted.pt", f"{out}/suspect.pt")
    yield Command("The weights alone, of any two files", (check, "-c", *checkpoints, "-o", f"{out}/weights.json"))
    training = ("torchrun", "--standalone", "--nproc_per_node=2", "train.py", "--norm-epsilon=1e-50", "--steps=1")
    recorded = ("run", "--level", "mix", "--dump-path", f"{out}/dump", "--", *training)
    yield Command("Record the failing training, both ranks", recorded)
    yield Command("Which rank and call made the first NaN?", ("nan_analyze", "-i", f"{out}/dump", "-o", f"{out}/nan"))


def environment() -> dict[str, str]:
    """That of this process, in which torchrun is the one of this Python."""
    return {**os.environ, "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])}


def main() -> None:
    """Run all commands, and stop where one does not end as it should."""
    out = sys.argv[1] if len(sys.argv) > 1 else "output"
    for command in commands(out):
        print(f"\n# {command.why}\n$ {command.shown}", flush=True)
        ended = subprocess.run([sys.executable, *command.run], cwd=HERE, env=environment())
        if ended.returncode != command.status:
            sys.exit(f"ended with status {ended.returncode}, and should with {command.status}")


if __name__ == "__main__":
    main()
