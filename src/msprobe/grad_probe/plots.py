"""Pictures of similarities, as mindstudio-probe 8.1.1 draws them; only where matplotlib is installed."""

from __future__ import annotations

import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from msprobe import log
from msprobe.grad_probe import layout
from msprobe.grad_probe.comparison import RankComparison
from msprobe.messages import said
from msprobe.paths import make_folder_in, write_atomically


def draw(rank: RankComparison, folder: Path, with_parameters: bool) -> None:
    """One picture of all parameters together, and one of each ``with_parameters``. Failures are reported in the log."""
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError:
        log.once("matplotlib", "info", said("no-pictures-of-gradients"))
        return
    make_folder_in(folder.parent, folder.name)
    curves: list[tuple[str, list[float | None]]] = [("summary", [rank.summary(step) for step in rank.steps])]
    if with_parameters:
        curves = [(name, [rank.value(name, step) for step in rank.steps]) for name in rank.parameters] + curves
    figure = Figure()
    FigureCanvasAgg(figure)
    axes = figure.subplots()
    for name, values in curves:
        # The curve of all together comes last, and keeps its name before a parameter that is called so.
        _draw_one(figure, axes, name, rank.steps, values, folder / _file_name(name))


def _file_name(name: str) -> str:
    return layout.direction_name(f"{name}_similarities").removesuffix(".npy") + ".png"


def _draw_one(
    figure: Any, axes: Any, name: str, steps: Sequence[int], values: Sequence[float | None], file: Path
) -> None:
    axes.clear()
    known = [(step, value) for step, value in zip(steps, values, strict=True) if value is not None]
    axes.plot([step for step, _ in known], [value for _, value in known], marker="." if len(known) < 100 else "")
    axes.set_xlabel("steps")
    axes.set_ylabel("similarities")
    # A dollar sign would begin a formula.
    axes.set_title(f"{name}_similarities".replace("$", r"\$"))
    content = io.BytesIO()
    figure.savefig(content, format="png")
    write_atomically(file, content.getvalue(), fsync=False)
