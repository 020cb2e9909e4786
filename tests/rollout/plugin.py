"""vLLM's plug-in with the real engine: a script that does not know msprobe, in a process of its own, is recorded.

Run as a program it is that script: ``python plugin.py MODEL TYPE`` prints its answers.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import tomllib

ROOT = Path(__file__).parents[2]


def recorded(model: str, dtype: str, folder: Path, twice: bool) -> tuple[list[Path], list[Any], list[Any]]:
    """The folders of the steps; the script's answers when recorded, and when not (``twice``; else the same)."""
    shutil.rmtree(folder, ignore_errors=True)
    installed = folder / "installed" / "msprobe-0.dist-info"
    installed.mkdir(parents=True, exist_ok=True)
    points = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["entry-points"]["vllm.general_plugins"]
    lines = [f"{name} = {value}" for name, value in points.items()]
    (installed / "entry_points.txt").write_text("\n".join(["[vllm.general_plugins]", *lines]))
    (installed / "METADATA").write_text("Metadata-Version: 2.1\nName: msprobe\nVersion: 0\n")
    paths = os.pathsep.join([str(ROOT / "src"), str(installed.parent)])
    environment = {**os.environ, "PYTHONPATH": paths, "VLLM_ENABLE_V1_MULTIPROCESSING": "1"}
    answers = []
    for more in ({"MSPROBE_ROLLOUT": str(folder / "recorded")}, *([{}] if twice else [])):
        command = [sys.executable, __file__, model, dtype]
        ended = subprocess.run(command, env={**environment, **more}, capture_output=True, text=True, timeout=300)
        if ended.returncode:
            raise RuntimeError(ended.stderr[-2000:])
        answers.append([json.loads(line[4:]) for line in ended.stdout.splitlines() if line.startswith("OUT ")])
    return sorted((folder / "recorded").glob("*/step*")), answers[0], answers[-1]


def main(model: str, dtype: str) -> None:
    """Two generates."""
    from vllm import LLM, SamplingParams

    # Compiled, its numbers would be others than when it is recorded.
    sizes = {"max_model_len": 128, "max_num_seqs": 8, "block_size": 32}
    llm = LLM(model, dtype=dtype, skip_tokenizer_init=True, enforce_eager=True, **sizes)
    settings = SamplingParams(logprobs=0, max_tokens=6, ignore_eos=True, detokenize=False, temperature=0.0)
    for first in (3, 9):
        given = [{"prompt_token_ids": [first, 4, 5]}, {"prompt_token_ids": [7, first, 9, 10]}]
        for one in llm.generate(given, settings, use_tqdm=False):
            entries = [next(iter(places.values())).logprob for places in one.outputs[0].logprobs]
            print("OUT", json.dumps([list(one.outputs[0].token_ids), entries]), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
