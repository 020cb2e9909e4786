"""Train the same small transformer in MindSpore and in PyTorch, from the same weights, and compare what they compute.

    python demo.py [FOLDER] [--mistake NAME]    (FOLDER: where the results go, `output` beside this file if left out)

The first comparison is of two healthy trainings: they agree. Then the one in MindSpore is made with a mistake, by
default one that is easily made when a network is brought to MindSpore: `nn.GELU()` is the approximate one there, and
the exact one in PyTorch. The loss differs in its sixth digit. `setting.py` tells the other mistakes.

The frameworks may live in environments of their own: set MINDSPORE_PYTHON and PYTORCH_PYTHON to their interpreters.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import subprocess
import sys
from pathlib import Path

from setting import MISTAKES

HERE = Path(__file__).parent


def interpreter(framework: str, module: str, environment: str) -> str:
    """The Python that has a framework: named by a variable, this one, or that of the environment that `make` made."""
    named = os.environ.get(f"{framework}_PYTHON")
    if named:
        return named
    if importlib.util.find_spec(module) is not None:
        return sys.executable
    own = HERE.parents[1] / environment / "bin" / "python"
    if own.exists():
        return str(own)
    raise SystemExit(f"no {module} here: set {framework}_PYTHON to a Python that has it and msprobe")


def train(python: str, script: str, output: Path, *options: str) -> None:
    print(f"{script} {' '.join(options)}")
    subprocess.run([python, HERE / script, output, *options], check=True, stderr=subprocess.DEVNULL)


def compare(candidate: Path, reference: Path) -> None:
    print(f"\n$ msprobe compare {candidate.name} {reference.name}", flush=True)
    command = [sys.executable, "-m", "msprobe", "compare", candidate.name, reference.name]
    subprocess.run(command, cwd=candidate.parent, check=False)  # 1 where they part
    print()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", nargs="?", type=Path, default=HERE / "output")
    parser.add_argument("--mistake", choices=MISTAKES, default="gelu")
    asked = parser.parse_args()
    folder = asked.folder.resolve()
    mindspore = interpreter("MINDSPORE", "mindspore", ".venv-mindspore")
    pytorch = interpreter("PYTORCH", "torch", ".venv")
    train(pytorch, "train_pytorch.py", folder / "pytorch")
    train(mindspore, "train_mindspore.py", folder / "mindspore")
    compare(folder / "mindspore", folder / "pytorch")
    print(f"A mistake: {MISTAKES[asked.mistake]}.")
    train(mindspore, "train_mindspore.py", folder / "mindspore_mistake", "--mistake", asked.mistake)
    compare(folder / "mindspore_mistake", folder / "pytorch")


if __name__ == "__main__":
    main()
