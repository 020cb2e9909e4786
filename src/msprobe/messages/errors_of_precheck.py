"""Errors and warnings of the pre-check of operators (P1), and of perturbed runs (P2)."""

from __future__ import annotations

from msprobe.messages.entry import Message

# fmt: off
MESSAGES: tuple[Message, ...] = ()
