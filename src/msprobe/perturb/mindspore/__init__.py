"""The free benchmark in MindSpore's dynamic graph."""

from __future__ import annotations

import contextlib
from dataclasses import replace
from pathlib import Path
from typing import Any

from msprobe import log
from msprobe.capture.mindspore.ranks import RANKS
from msprobe.config.settings import Settings
from msprobe.errors import NotAvailableError
from msprobe.messages import said
from msprobe.perturb.bench import Bench
from msprobe.perturb.gradients import BackwardOfOnes
from msprobe.perturb.listeners import Fix, ForwardCheck
from msprobe.perturb.mindspore.framework import MindSporeFramework
from msprobe.perturb.results import DETAILS_FILE, FILE, MINDSPORE_COLUMNS

# What users of MindSpore call what the dump names so.
_MODULES = {
    "Functional": "mindspore.ops",
    "Tensor": "mindspore.Tensor",
    "Mint": "mindspore.mint",
    "MintFunctional": "mindspore.mint.nn.functional",
}


def free_benchmark(settings: Settings) -> Any:
    """The listener for these settings. Its files are in the dump path itself.

    Raises NotAvailableError for the mode to_cpu, which is there for PyTorch.
    """
    asked = settings.free_benchmark
    assert asked is not None
    if "to_cpu" in asked.modes:
        raise NotAvailableError(said("to-cpu-for-mindspore"))
    if asked.if_preheat or asked.fix_graph or asked.offload:
        log.warning(said("benchmark-fields-for-mindspore"))
        asked = replace(asked, if_preheat=False, fix_graph=False, offload=False)
        settings = replace(settings, free_benchmark=asked)
    folder = Path(settings.dump_path)
    if not RANKS.current() and settings.existing == "clean":
        for name in (FILE, DETAILS_FILE):
            with contextlib.suppress(OSError):
                (folder / name).unlink(missing_ok=True)
    bench = Bench(
        settings,
        MindSporeFramework(),
        RANKS.current,
        MINDSPORE_COLUMNS,
        lambda step: folder,
        lambda: folder if RANKS.current() is None else folder / f"rank{RANKS.current()}",
        _words,
    )
    if asked.handler == "fix":
        return Fix(bench)
    return ForwardCheck(bench) if asked.stage == "forward" else BackwardOfOnes(bench)


def _words(key: str) -> tuple[str, ...]:
    module, _, name = key.partition(".")
    return (f"{_MODULES[module]}.{name}",) if module in _MODULES else ()
