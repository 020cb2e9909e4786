"""Graph files (``.vis``, ``.vis.db``), ours and of mindstudio-probe, as a source of the page."""

from __future__ import annotations

from pathlib import Path

from msprobe.errors import NotAvailableError
from msprobe.view.source import Source


def open_graph_files(path: Path) -> Source:
    """Open a graph file, or a folder of them. Raises NotAvailableError: this version has no reader of them."""
    raise NotAvailableError(f'"{path}": this version opens dumps and results; graph files it cannot read yet.')
