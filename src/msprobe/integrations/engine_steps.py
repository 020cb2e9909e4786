"""One recorded step of an inference engine, in the process of a worker: what ``engine.json`` says of it."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

from msprobe.rollout.torch.engine_weights import held, with_adapters


class EngineStep:
    """Begins with the object; ``note`` says whose rows a forward pass had; :meth:`end` gives what is written."""

    def __init__(self, debugger: Any, model: Any) -> None:
        # Before the recording: packed weights are read by calls of their layers, and none is of a later update.
        self._model, self._modules = model, held(model)
        self._debugger = debugger
        self._passes: list[dict[str, Any]] = []
        debugger.start(model)

    def note(self, requests: Sequence[str], counts: Mapping[str, int]) -> None:
        """A forward pass has run: for each request, in the order of its rows, how many tokens."""
        rows = [[str(name), int(counts[name])] for name in requests if name in counts]
        self._passes.append({"call": len(self._passes), "rows": rows})

    def end(self) -> dict[str, Any]:
        """The folder of all ranks, whose rows each pass had, what modules held when the step began (adapters: now)."""
        session = self._debugger.recorder.session
        folder = os.path.join(str(session.settings.dump_path), f"step{session.step}")
        self._debugger.stop()
        self._debugger.step()
        return {"folder": folder, "steps": self._passes, "modules": with_adapters(self._modules, self._model)}
