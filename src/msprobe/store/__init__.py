"""The dump on disk: layout, journal, JSON files and tensor files. Writer and reader are a pair, in one room."""

from __future__ import annotations
