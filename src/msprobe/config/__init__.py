"""config.json and keyword arguments -> typed settings; all mistakes reported at once.

:class:`Settings` is what the recorder gets, :func:`msprobe.config.load.load_settings` makes it. Only the
latter needs pydantic, so it is not imported here.
"""

from __future__ import annotations

from msprobe.config.settings import Settings

__all__ = ["Settings"]
