"""The free benchmark in PyTorch."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from msprobe.capture.torch.recorder import RANKS
from msprobe.config.settings import Settings
from msprobe.perturb.bench import Bench
from msprobe.perturb.gradients import BackwardCheck
from msprobe.perturb.listeners import Fix, ForwardCheck
from msprobe.perturb.results import COLUMNS
from msprobe.perturb.torch.framework import TorchFramework
from msprobe.store import layout


def free_benchmark(settings: Settings) -> Any:
    """The listener for these settings. Its files are in the folders of steps and ranks."""

    def folder(step: int) -> Path:
        return layout.rank_folder(layout.step_folder(settings.dump_path, step), RANKS.current())

    def summary() -> Path:
        return layout.rank_folder(settings.dump_path, RANKS.current())

    bench = Bench(settings, TorchFramework(), RANKS.current, COLUMNS, folder, summary)
    assert settings.free_benchmark is not None
    if settings.free_benchmark.handler == "fix":
        return Fix(bench)
    return ForwardCheck(bench) if settings.free_benchmark.stage == "forward" else BackwardCheck(bench)
