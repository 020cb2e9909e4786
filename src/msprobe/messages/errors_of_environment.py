"""Errors and warnings of checkpoints (E1, E2), of configurations and scripts (E3)."""

from __future__ import annotations

from msprobe.messages.entry import Message

# fmt: off
MESSAGES: tuple[Message, ...] = ()
