"""How large is the dump of a step, ours and that of the published package: bytes of each record of the calls both have.

    python bench/capture/size.py [--layers 20] [--levels L0,L1,mix] [--versions 26.2.0] [--risk FOCUS,ALL]

The same GPT (`bench/models.py`, tiny, with so many layers) is recorded by each tool, statistics of one step. For each:
records, bytes of ``dump.json`` and of all files of the step; then the bytes of a record among those that both have.
``"risk"``: the setting ``risk_level`` of 26.2.0, which decides how many calls it records.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent)]

from reference_env import clean_environment, make  # noqa: E402

PROGRAM = f"""
import dataclasses, json, sys
sys.path[:0] = [{str(HERE)!r}, {str(HERE.parent)!r}]
from pathlib import Path
import torch
from models import SIZES, Training
from tools import PrecisionDebuggerTool
folder, level, layers, options = sys.argv[1:]
torch.set_num_threads(1)
training = Training(dataclasses.replace(SIZES["tiny"], layers=int(layers)))
tool = PrecisionDebuggerTool(Path(folder), level, "statistics", json.loads(options))
tool.begin(training.model)
training.forward_backward()
tool.end()
"""
_RECORD = re.compile(rb'\n  ("(?:[^"\\]|\\.)*"): ')


def record(python: Path | str, folder: Path, level: str, layers: int, options: dict[str, str]) -> Path:
    """Record a step; the folder of its files."""
    folder.mkdir()
    environment = clean_environment()
    if python == sys.executable:
        environment["PYTHONPATH"] = str(HERE.parent.parent / "src")
    command = [str(python), "-c", PROGRAM, str(folder), level, str(layers), json.dumps(options)]
    done = subprocess.run(command, env={**os.environ, **environment}, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(done.stderr[-2000:])
    (file,) = (folder / "dump" / "step0").glob("*/dump.json")
    return file.parent


def sizes(file: Path) -> dict[str, int]:
    """The bytes of each record in ``dump.json``, its name and the blanks around it included."""
    text = file.read_bytes()
    start = text.index(b'\n "data": {')
    end = text.index(b"\n }", start)
    found = [(match.start(), json.loads(match[1])) for match in _RECORD.finditer(text, start, end)]
    ends = [place for place, _ in found[1:]] + [end]
    return {name: after - place for (place, name), after in zip(found, ends, strict=True)}


def main() -> None:
    """Record with each tool at each level and print a line for each pair."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--layers", type=int, default=20)
    parser.add_argument("--levels", default="L0,L1,mix")
    parser.add_argument("--versions", default="26.2.0")
    parser.add_argument("--risk", default="FOCUS,ALL")
    options = parser.parse_args()
    for version in options.versions.split(","):
        python = make(version)
        for level in options.levels.split(","):
            for risk in options.risk.split(","):
                with tempfile.TemporaryDirectory() as name:
                    mine = record(sys.executable, Path(name) / "ours", level, options.layers, {})
                    theirs = record(python, Path(name) / "theirs", level, options.layers, {"risk_level": risk})
                    ours, published = sizes(mine / "dump.json"), sizes(theirs / "dump.json")
                    common = ours.keys() & published.keys()
                    means = [sum(side[one] for one in common) / len(common) for side in (ours, published)]
                    files = [
                        f"{len(side)} records, dump.json {(place / 'dump.json').stat().st_size}, all files "
                        f"{sum(one.stat().st_size for one in place.rglob('*') if one.suffix != '.journal')}"
                        for side, place in ((ours, mine), (published, theirs))
                    ]
                    print(
                        f"{version} {risk} {level:4} {len(common)} calls of both: ours {means[0]:.0f} bytes a record, "
                        f"theirs {means[1]:.0f} ({means[0] / means[1]:.2f}); ours {files[0]}; theirs {files[1]}",
                        flush=True,
                    )


if __name__ == "__main__":
    main()
