"""Run in a fresh process: what importing and constructing the debugger does to torch. Prints a JSON object for each
level.

Arguments: a folder, and the levels to construct at. A fresh process, because torch must be seen before msprobe was
ever imported; each level has a fork of it, made once torch is there.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import torch
import torch._dynamo  # the first step of an optimizer imports it
from innocence_torch_state import flags, functions, replaced
from torch import nn


def main(level: str, folder: str) -> None:
    model = nn.Sequential(nn.Linear(4, 4), nn.GELU(), nn.Linear(4, 2))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    state = torch.get_rng_state()
    functions_before, flags_before = functions(strict=False), flags()
    hooks = [len(m._forward_hooks) for m in model.modules()]
    found: dict[str, object] = {}

    def compare(moment: str) -> None:
        now = flags()
        found[moment] = {
            "functions": replaced(functions_before, strict=False),
            "flags": [name for name in now if now[name] != flags_before[name]],
            "hooks": [len(m._forward_hooks) for m in model.modules()] == hooks,
            "generator": bool(torch.equal(state, torch.get_rng_state())),
        }

    import msprobe.pytorch

    compare("imported")
    debugger = msprobe.pytorch.PrecisionDebugger(dump_path=folder, level=level, task="statistics")
    compare("constructed")
    model(torch.ones(3, 4)).sum().backward()
    optimizer.step()
    compare("trained without start")
    debugger.stop()
    debugger.step()
    compare("stop and step without start")
    found["written"] = (
        sorted(str(p.relative_to(folder)) for p in Path(folder).rglob("*")) if Path(folder).exists() else []
    )
    debugger.start(model)
    model(torch.ones(3, 4)).sum().backward()
    debugger.stop()
    compare("stopped")
    debugger.step()
    compare("stepped")
    found["written after start"] = sorted(p.name for p in Path(folder).rglob("*.json"))
    print(json.dumps({"level": level, **found}), flush=True)


if __name__ == "__main__":
    for level in sys.argv[2:]:
        child = os.fork()
        if child == 0:
            main(level, f"{sys.argv[1]}/{level}")
            sys.exit()
        if os.waitpid(child, 0)[1] != 0:
            sys.exit(f"level {level} failed")
