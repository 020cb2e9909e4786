"""Errors of devices, in words."""

from __future__ import annotations


def is_out_of_memory(error: BaseException) -> bool:
    """Whether a device says that it has no memory; some raise a plain RuntimeError."""
    return isinstance(error, RuntimeError) and "out of memory" in str(error).lower()


def reason(error: Exception) -> str:
    """An error in one line."""
    text = " ".join(str(error).split())
    return f"{type(error).__name__}: {text[:200]}"
