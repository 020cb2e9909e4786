from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from msprobe.config.load import load_settings
from msprobe.config.settings import Settings

WriteConfig = Callable[..., Path]
Load = Callable[..., Settings]


@pytest.fixture
def write_config(tmp_path: Path) -> WriteConfig:
    """Write a config.json: objects get a usable dump_path unless they have one, texts stay as they are."""

    def write(content: Any, name: str = "config.json") -> Path:
        path = tmp_path / name
        if isinstance(content, dict):
            content = {"dump_path": str(tmp_path / "dump"), **content}
        path.write_text(content if isinstance(content, str) else json.dumps(content, indent=1), encoding="utf-8")
        return path

    return write


@pytest.fixture
def load(write_config: WriteConfig) -> Load:
    """The settings of a config.json with this content, arguments as for load_settings."""

    def load_content(content: Any, **arguments: Any) -> Settings:
        return load_settings(write_config(content), **arguments)

    return load_content
