"""The names of tensor files."""

from __future__ import annotations

from msprobe.foreign.file_names import file_name as safe_file_name

__all__ = ["safe_file_name"]
