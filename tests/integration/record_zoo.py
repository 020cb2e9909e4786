"""Record trainings of the zoo, each in every way that is asked for: ``python record_zoo.py FOLDER WAYS``.

``WAYS`` is JSON: ``{way: [settings of the debugger, [architecture, ...]]}``. For tests that start it in several
environments and compare what was written.
"""

from __future__ import annotations

import contextlib
import json
import sys
import warnings
from pathlib import Path
from typing import Any

import torch
import zoo


class Recording:
    """The region of a training, recorded."""

    def __init__(self, debugger: Any) -> None:
        self.debugger = debugger

    def begin(self, models: Any) -> None:
        self.debugger.start(models)

    def end(self) -> None:
        self.debugger.stop()

    def save(self, value: object, name: str) -> None:
        self.debugger.save(value, name)


def record(name: str, folder: Path, settings: dict[str, Any]) -> None:
    """Two steps of the training."""
    from msprobe.pytorch import PrecisionDebugger

    config = folder / "config.json"
    folder.mkdir(parents=True)
    config.write_text(json.dumps({**settings, "dump_path": str(folder / "dump")}))
    case = zoo.build(name)
    debugger = PrecisionDebugger(config_path=str(config))
    region = Recording(debugger)
    try:
        for step in range(min(case.steps, 2)):
            # Some end with an exception on purpose.
            with contextlib.suppress(Exception):
                case.run_step(step, region)
            debugger.step()
    finally:
        case.close()
        PrecisionDebugger.reset()


def main() -> None:
    folder, ways = Path(sys.argv[1]), json.loads(sys.argv[2])
    zoo.load_all()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    for way, (settings, names) in ways.items():
        for name in names:
            record(name, folder / way / name, settings)
    (folder / "recorder.json").write_text(json.dumps(recorder(folder)))


def recorder(folder: Path) -> dict[str, Any]:
    """Which parts of the C extension recorded all this."""
    from msprobe.capture import native

    return {
        "extension": "msprobe.capture._native" in sys.modules,
        "memo": native.Memo is not None,
        "encoder": native.encode.__module__,
    }


if __name__ == "__main__":
    main()
