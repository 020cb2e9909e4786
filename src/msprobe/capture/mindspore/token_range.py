"""``start(model, token_range=[a, b])``: record chosen calls of a model only, as when it generates token by token."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from mindspore import nn

from msprobe.capture.mindspore.cells import watch_passes
from msprobe.capture.mindspore.recorder import MindSporeRecorder


class TokenRange:
    """Counts the calls of a model from 0, and turns recording on before call ``a`` and off behind call ``b``.

    Of several models the first is counted.
    """

    def __init__(
        self,
        recorder: MindSporeRecorder,
        model: Any,
        named: Sequence[tuple[str, nn.Cell]],
        tokens: tuple[int, int],
        rank: int | None,
    ) -> None:
        self.recorder = recorder
        self.model = model
        self.named = named
        self.first, self.last = tokens
        self.rank = rank
        self.calls = 0
        counted = model[0] if isinstance(model, (list, tuple)) else model
        self._handles = watch_passes(self, "token_range", counted)

    def enter(self, name: str, cell: nn.Cell, args: Sequence[Any], kwargs: dict[str, Any]) -> None:
        """The model is about to run."""
        if self.calls == self.first:
            self.recorder.start(self.model, self.named, self.rank)

    def leave(self, name: str, cell: nn.Cell, result: Any, error: BaseException | None = None) -> None:
        """The model has run."""
        if self.calls == self.last:
            self.recorder.stop()
        self.calls += 1

    def close(self) -> None:
        """Take the counting hooks away."""
        handles, self._handles = self._handles, []
        for handle in handles:
            handle.remove()
