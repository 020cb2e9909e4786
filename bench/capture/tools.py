"""The recorders that are measured, behind one small face.

Runs in any environment; imports each tool only when asked. A tool is constructed once, then `begin(model)`
and `end()` stand around forward and backward. What a tool leaves to background threads is waited for by the
worker.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Protocol


class Tool(Protocol):
    def begin(self, model: object) -> None: ...

    def end(self) -> None: ...

    def count(self) -> tuple[int, int]:
        """Records and tensor files of the newest step."""
        ...


def last_step(folder: Path) -> Path:
    """The folder of the newest step in ``folder/dump``; ``folder/dump`` itself if there is none."""
    steps = [path for path in (folder / "dump").glob("step*") if path.name[4:].isdecimal()]
    return max(steps, key=lambda path: int(path.name[4:]), default=folder / "dump")


class PrecisionDebuggerTool:
    """Ours and both published versions: same configuration, same calls."""

    def __init__(self, folder: Path, level: str, task: str, options: dict[str, Any]) -> None:
        digest = task == "md5"
        task = "statistics" if digest else task
        config = {
            "task": task,
            "dump_path": str(folder / "dump"),
            "rank": [],
            "step": [],
            "level": level,
            task: {"scope": [], "list": [], "data_mode": ["all"]},
            **options,
        }
        if digest:
            config[task]["summary_mode"] = "md5"
        path = folder / "config.json"
        path.write_text(json.dumps(config))
        self.folder = folder
        from msprobe.pytorch import PrecisionDebugger

        self.debugger = PrecisionDebugger(config_path=str(path))

    def begin(self, model: object) -> None:
        self.debugger.start(model)

    def end(self) -> None:
        self.debugger.stop()
        self.debugger.step()

    def count(self) -> tuple[int, int]:
        records = 0
        step = last_step(self.folder)
        for dump in step.glob("*/dump.json"):
            records += len(json.loads(dump.read_text())["data"])
        return records, sum(1 for _ in step.glob("*/dump_tensor_data/*"))


class DebugModeTool:
    """`torch.utils._debug_mode`: operators with the L1 norm (or hash) of all inputs and outputs, as text.

    L0 adds module calls to the operators, L1 adds torch-function calls, mix both. It links no gradients to
    calls and saves no tensors; it is here as what PyTorch itself offers.
    """

    def __init__(self, folder: Path, level: str, task: str, options: dict[str, Any]) -> None:
        if task == "tensor":
            raise NotImplementedError("debug_mode saves no tensors")
        from torch.utils._debug_mode import DebugMode

        self.kind = DebugMode
        self.settings = {
            "record_torchfunction": level in ("L1", "mix"),
            "record_nn_module": level in ("L0", "mix"),
            "record_stack_trace": True,
        }
        self.hash = "hash_tensor" if task == "md5" else "norm"
        self.folder = folder / "dump"
        self.number = 0
        self.records = 0

    def begin(self, model: object) -> None:
        self.mode = self.kind(**self.settings)
        self.mode.__enter__()
        self.hashes = self.kind.log_tensor_hashes(hash_fn=self.hash, hash_inputs=True)
        self.hashes.__enter__()

    def end(self) -> None:
        self.hashes.__exit__(None, None, None)
        self.mode.__exit__(None, None, None)
        step = self.folder / f"step{self.number}"
        step.mkdir(parents=True)
        (step / "calls.txt").write_text(self.mode.debug_string())
        self.number += 1
        self.records = len(self.mode.logs)

    def count(self) -> tuple[int, int]:
        return self.records, 0


def open_tool(name: str, folder: Path, level: str, task: str, options: dict[str, Any]) -> Tool:
    """Import and construct the tool `name`; `options` are extra top-level keys of its config.json."""
    if name == "debug_mode":
        return DebugModeTool(folder, level, task, options)
    return PrecisionDebuggerTool(folder, level, task, options)
