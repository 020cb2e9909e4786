"""An engine and a trainer that mean different things by a log-probability: name it, mend it, see that they agree.

    python demo.py [FOLDER]         (FOLDER: where the results go, `output` beside this file if left out)

README.md says what each command is for; `with_vllm.py` does the same with a real engine.
"""

from __future__ import annotations

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
        return " ".join(["python" if self.words[0].endswith(".py") else "msprobe", *self.words])

    @property
    def run(self) -> list[str]:
        """For this Python."""
        return [*([] if self.words[0].endswith(".py") else ["-m", "msprobe"]), *self.words]


def commands(out: str) -> Iterator[Command]:
    """All of them, in order; ``out`` is the folder of the results."""
    engine, trainer = f"{out}/engine.jsonl", f"{out}/trainer.jsonl"
    compare = ("rollout", "--log-probs", engine, trainer, "-o", f"{out}/contract")
    yield Command("The engine generates", ("engine.py", engine))
    yield Command("The trainer scores the same words", ("trainer.py", engine, trainer))
    yield Command("Do they mean the same?", compare, 1)
    yield Command("The engine writes what the trainer computes", ("engine.py", engine, "--raw"))
    yield Command("The trainer once more", ("trainer.py", engine, trainer))
    yield Command("Do they mean the same now?", compare)


def main() -> None:
    """Run them one after the other."""
    out = sys.argv[1] if len(sys.argv) > 1 else "output"
    for number, command in enumerate(commands(out), 1):
        print(f"\n{number}. {command.why}\n   {command.shown}\n", flush=True)
        status = subprocess.run([sys.executable, *command.run], cwd=HERE).returncode
        if status != command.status:
            sys.exit(f"It ended with {status}; {command.status} was expected.")
    print("\nWhich operator differs, with a real engine: with_vllm.py")


if __name__ == "__main__":
    main()
