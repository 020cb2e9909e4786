"""Run one program under whatever msprobe this interpreter has: `record.py PROGRAM CONFIG_JSON`."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

from programs import run

from msprobe.pytorch import PrecisionDebugger

if __name__ == "__main__":
    program, config = sys.argv[1:]
    run(program, PrecisionDebugger(config_path=config))
