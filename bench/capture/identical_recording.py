"""Records trainings one after the other, for identical.py: ``FOLDER SOURCE``; FOLDER/order.json says which and how.

``--list FRAMEWORK`` prints the trainings and their ranks instead.
"""

from __future__ import annotations

import contextlib
import gc
import json
import os
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

# What is compiled again in each process, or takes minutes.
LEFT_OUT = ("compiled_by_inductor",)


def made(folder: Path, settings: dict[str, Any], framework: str) -> Any:
    """The debugger with these settings; every rank writes the same config."""
    folder.mkdir(parents=True, exist_ok=True)
    config = folder / f"config{os.environ.get('RANK', '')}.json"
    config.write_text(json.dumps({**settings, "dump_path": str(folder / "dump")}))
    if framework == "mindspore":
        from msprobe.mindspore import PrecisionDebugger as Debugger
    else:
        from msprobe.pytorch import PrecisionDebugger as Debugger
    Debugger.reset()
    return Debugger(config_path=str(config))


def record_pytorch(name: str, folder: Path, settings: dict[str, Any]) -> None:
    """Two steps of a training of the zoo."""
    import zoo
    from record_zoo import Recording

    gc.collect()
    debugger = made(folder, settings, "pytorch")
    case = zoo.build(name)
    region = Recording(debugger)
    try:
        for step in range(min(case.steps, 2)):
            # Some end with an exception on purpose.
            with contextlib.suppress(Exception):
                case.run_step(step, region)
            debugger.step()
    finally:
        case.close()
        type(debugger).reset()


def record_mindspore(name: str, folder: Path, settings: dict[str, Any]) -> None:
    """A training of the networks, every step."""
    from support import mindspore_networks

    gc.collect()
    debugger = made(folder, settings, "mindspore")

    @contextlib.contextmanager
    def step(model: Any) -> Iterator[None]:
        debugger.start(model)
        try:
            yield
        finally:
            debugger.stop()
            debugger.step()

    try:
        mindspore_networks.run(name, step)
    finally:
        type(debugger).reset()


def main() -> None:
    warnings.simplefilter("ignore")
    if sys.argv[1] == "--list":
        print(json.dumps(listed(sys.argv[2])))
        return
    folder, source = Path(sys.argv[1]), Path(sys.argv[2])
    order = json.loads((folder / "order.json").read_text())
    import msprobe

    if not Path(msprobe.__file__).is_relative_to(source):
        raise SystemExit(f"msprobe comes from {msprobe.__file__}, not from {source}")
    if order["framework"] == "mindspore":
        for name in order["names"]:
            record_mindspore(name, folder / name, order["settings"])
        return
    import torch
    import zoo

    zoo.load_all()
    torch.set_num_threads(1)
    ranks = order["ranks"]
    if ranks > 1:
        meeting = f"file://{folder}/rendezvous"
        torch.distributed.init_process_group(
            "gloo", init_method=meeting, rank=int(os.environ["RANK"]), world_size=ranks
        )
    for name in order["names"]:
        record_pytorch(name, folder / name, order["settings"])
    if ranks > 1:
        torch.distributed.barrier()
        torch.distributed.destroy_process_group()


def listed(framework: str) -> dict[str, int]:
    if framework == "mindspore":
        from support import mindspore_networks

        return dict.fromkeys(mindspore_networks.NETWORKS, 1)
    import zoo

    return {name: a.ranks for name, a in zoo.load_all().items() if name not in LEFT_OUT}


if __name__ == "__main__":
    main()
