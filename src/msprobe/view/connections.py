"""Connections of the server of the page that say nothing, or half a question, are closed.

They count as much as any other one, and only so many may be open: who holds them open would keep the page from its own
user.
"""

from __future__ import annotations

import asyncio
from typing import Any

from uvicorn.protocols.http.h11_impl import H11Protocol

#: A question has come so many seconds after the connection, or after the answer to the one before.
IDLE_SECONDS = 10.0


class TimedProtocol(H11Protocol):
    """HTTP of uvicorn, with a limit of time until the head of a question is there."""

    _timer: asyncio.TimerHandle | None = None
    # What was going on at the last look: the same question, or none, two times is too long if it is not answered.
    _seen: Any = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._seen = self
        self._look_again()

    def connection_lost(self, exc: Exception | None) -> None:
        if self._timer is not None:
            self._timer.cancel()
        super().connection_lost(exc)

    def _look_again(self) -> None:
        self._timer = self.loop.call_later(IDLE_SECONDS, self._look)

    def _look(self) -> None:
        cycle = getattr(self, "cycle", None)
        is_answering = cycle is not None and not cycle.response_complete
        if not is_answering and self._seen in (self, cycle):
            self.transport.close()
            return
        self._seen = cycle
        self._look_again()
