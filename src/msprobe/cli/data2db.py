"""``msprobe data2db``: ``msprobe monitor to-db`` under the name it has in mindstudio-probe 26.2.0."""

from __future__ import annotations

from msprobe.cli.monitor.to_db import configure, execute

__all__ = ["configure", "execute"]
