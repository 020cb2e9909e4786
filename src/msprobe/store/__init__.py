"""The dump on disk: layout, journal, JSON files and tensor files. Writer and reader live in one room."""

from __future__ import annotations
