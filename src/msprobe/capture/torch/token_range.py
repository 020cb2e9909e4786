"""``start(model, token_range=[a, b])``: record chosen calls of a model only, as when it generates token by
token.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch import nn

from msprobe.capture.torch.modules import watch_passes
from msprobe.capture.torch.recorder import TorchRecorder


class TokenRange:
    """Counts the calls of a model from 0, and turns recording on before call ``a`` and off behind call ``b``.

    Of several models the first is counted. A call that raises counts.
    """

    def __init__(
        self,
        recorder: TorchRecorder,
        model: Any,
        named: Sequence[tuple[str, nn.Module]],
        tokens: tuple[int, int],
        rank: int | None,
    ) -> None:
        self.recorder = recorder
        self.named = named
        self.first, self.last = tokens
        self.rank = rank
        self.calls = 0
        self._depth = 0
        counted = model[0] if isinstance(model, (list, tuple)) else model
        self._handles = watch_passes(self, "token_range", counted)

    def enter(self, name: str, module: nn.Module, args: Sequence[Any], kwargs: dict[str, Any]) -> None:
        """The model is about to run."""
        self._depth += 1
        if self._depth == 1 and self.calls == self.first:
            self.recorder.start(self.named, self.rank)

    def leave(self, name: str, module: nn.Module, result: Any) -> None:
        """The model has run, or raised."""
        self._depth -= 1
        if self._depth > 0:
            return
        if self.calls == self.last:
            self.recorder.stop()
        self.calls += 1

    def close(self) -> None:
        """Take the counting hooks away."""
        for handle in self._handles:
            handle.remove()
