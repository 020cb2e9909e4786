"""Two trainings, one with a wrong kernel: name the call, prove it alone, make it small, and confirm that it is all.

    python demo.py [FOLDER]         (FOLDER: where the results go, `output` beside this file if left out)

README.md says what each command is for and how to read what it prints.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).resolve().parent
CALL = "Functional.softmax.0.forward"


@dataclass(frozen=True)
class Command:
    """What is run (words of `msprobe`, or a script of Python), why, and the exit status that it should have."""

    why: str
    words: tuple[str, ...]
    status: int = 0

    @property
    def shown(self) -> str:
        """As it would be typed."""
        lead = "python" if self.words[0].endswith(".py") else "msprobe"
        return " ".join([lead, *(word or "''" for word in self.words)])

    @property
    def run(self) -> list[str]:
        """For this Python."""
        return [*([] if self.words[0].endswith(".py") else ["-m", "msprobe"]), *self.words]


def commands(out: str) -> Iterator[Command]:
    """All of them, in order; ``out`` is the folder of the results."""
    kernels = ("--load", "fast_kernels.py")
    recording = ("run", "--config", "config.json", "--dump-path")
    script = f"{out}/script/{CALL}.py"
    yield Command("Record the training that is trusted", (*recording, f"{out}/trusted", "--", "train.py"))
    yield Command("Record the one with the new kernels", (*recording, f"{out}/fast", "--", "train.py", "--fast"))
    yield Command("Where do they part?", ("compare", f"{out}/fast", f"{out}/trusted", "-o", f"{out}/verdict"), 1)
    yield Command(
        "Write a script of the call", ("reproduce", f"{out}/verdict/verdict.json", *kernels, "-o", f"{out}/script")
    )
    yield Command("Make that call alone, with the new kernels", (script,), 1)
    yield Command("The same with PyTorch's own kernels", (script, "--load", ""))
    dump, small = f"{out}/fast/step0/rank/dump.json", ("--minimize", "-o", f"{out}/script")
    yield Command(
        "The smallest call of another layer that fails",
        ("op_generate", "--dump", dump, "--api", "Functional.softmax.1", *kernels, *small),
    )
    training = ("-o", f"{out}/confirm", "--", "train.py", "--fast")
    yield Command("Is it all?", ("confirm", f"{out}/verdict/verdict.json", "--every-call", *training))


def main() -> None:
    """Run them one after the other."""
    out = sys.argv[1] if len(sys.argv) > 1 else "output"
    for number, command in enumerate(commands(out), 1):
        print(f"\n{number}. {command.why}\n   {command.shown}\n", flush=True)
        status = subprocess.run([sys.executable, *command.run], cwd=HERE).returncode
        if status != command.status:
            sys.exit(f"It ended with {status}; {command.status} was expected.")
    print(f"\nThe scripts in {out}/script go to the kernel's owner: they need torch and the kernel, not msprobe.")


if __name__ == "__main__":
    main()
