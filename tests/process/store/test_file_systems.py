from __future__ import annotations

import os
from pathlib import Path

import pytest
from support.mounted import mounted

from msprobe.store import file_systems


def kind_of(path: Path) -> tuple[str, bool, bool]:
    descriptor = os.open(path / "file", os.O_RDWR | os.O_CREAT)
    try:
        kind = file_systems.kind_of(descriptor)
        return kind, file_systems.is_local(descriptor), file_systems.can_be_mapped(descriptor)
    finally:
        os.close(descriptor)


def test_files_of_a_container_s_layers_are_local_and_never_mapped(tmp_path: Path) -> None:
    """Below an overlay may lie a file system that copies what is written; nothing tells which."""
    file_systems._known.clear()
    try:
        with mounted(tmp_path / "layers", "-t", "tmpfs", "-o", "size=1m", "tmpfs") as layers:
            assert kind_of(layers) == ("tmpfs", True, True)
            for name in ("lower", "upper", "work"):
                (layers / name).mkdir()
            options = f"lowerdir={layers}/lower,upperdir={layers}/upper,workdir={layers}/work"
            with mounted(tmp_path / "place", "-t", "overlay", "-o", options, "overlay") as place:
                assert kind_of(place) == ("overlay", True, False)
    finally:
        file_systems._known.clear()


def test_what_the_system_does_not_say_is_neither_local_nor_mapped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(file_systems, "_kind_of_mount", lambda _: "")
    monkeypatch.setattr(file_systems, "_known", {})
    assert kind_of(tmp_path) == ("", False, False)


def test_where_the_mount_of_a_file_is_not_said_its_device_says_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = kind_of(tmp_path)[0]
    if before not in ("ext4", "xfs", "tmpfs"):
        pytest.skip("files here have a device number that no mount has")
    monkeypatch.setattr(file_systems, "_known", {})
    monkeypatch.setattr(file_systems, "_mount_of", lambda _: "")
    assert kind_of(tmp_path)[0] == before
