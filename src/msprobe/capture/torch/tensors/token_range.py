"""``start(model, token_range=[a, b])``: record chosen calls of a model only, as when it generates token by
token.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch import nn

from msprobe.capture.torch.modules.module_hooks import watch_passes
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
        self._counted = model[0] if isinstance(model, (list, tuple)) else model
        self._watched = [watch_passes(self, "token_range", self._counted)]

    def enter(self, name: str, module: nn.Module, args: Sequence[Any], kwargs: dict[str, Any]) -> None:
        """The model is about to run."""
        self._depth += 1
        if self._depth == 1 and self.calls == self.first:
            self.recorder.start(self.named, self.rank)
        if self._depth == 1 and self.calls == self.last:
            # Behind the recorder, which must see the end of the pass first.
            self._watched.append(watch_passes(_Last(self), "token_range", self._counted))

    def leave(self, name: str, module: nn.Module, result: Any, error: BaseException | None = None) -> None:
        """The model has run, or raised."""
        self._depth -= 1
        if self._depth == 0:
            self.calls += 1

    def close(self) -> None:
        """Count no more."""
        for watched in self._watched:
            watched.remove()
        if not self.recorder.session.recording:
            self.recorder.models.forget()


class _Last:
    """Turns recording off when the last wanted call is over."""

    def __init__(self, tokens: TokenRange) -> None:
        self.tokens = tokens

    def enter(self, name: str, module: nn.Module, args: Sequence[Any], kwargs: dict[str, Any]) -> None:
        """Nothing begins here."""

    def leave(self, name: str, module: nn.Module, result: Any, error: BaseException | None = None) -> None:
        """A pass of the model is over, and the recorder has seen it."""
        if self.tokens.calls == self.tokens.last + 1:
            self.tokens.recorder.stop()
