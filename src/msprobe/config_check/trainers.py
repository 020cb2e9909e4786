"""The configuration check for callbacks of trainers."""

from __future__ import annotations

from typing import Any

from msprobe.config_check.checker import ConfigChecker
from msprobe.environment.configuration.pack import check_pack_path


class CheckedTraining:
    """Collects what a trainer begins with into the pack ``path``. Can be pickled: a copy elsewhere collects there.

    Raises InvalidInputError for a path that a pack cannot have.
    """

    def __init__(self, path: str) -> None:
        self.path = check_pack_path(path)
        self._checker: ConfigChecker | None = None
        self._reports_steps = False
        ConfigChecker.apply_patches("pytorch")

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "_checker": None}

    def begin(self, model: Any, settings: Any, calls_model: bool) -> None:
        """The training begins, maybe not the first one. ``calls_model``: the model itself is called in each micro-step,
        and not compiled.
        """
        # An earlier training may have been ended by an exception that nobody reported.
        self.end()
        ConfigChecker.apply_patches("pytorch")
        self._reports_steps = not calls_model
        self._checker = ConfigChecker(model, None, self.path, "pytorch", settings=settings, watch=calls_model)

    def note(self, *inputs: Any) -> None:
        """A micro-step (where the model reports none: a step) begins with these inputs."""
        if self._checker is not None and self._reports_steps:
            self._checker.collect(*inputs)

    def end(self) -> None:
        """The training is over."""
        if self._checker is not None:
            self._checker = None
            ConfigChecker.remove_patches()
