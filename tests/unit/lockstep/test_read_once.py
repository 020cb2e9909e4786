"""Each content of the reference's files is read once while there is room."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from msprobe.lockstep.read_once import ReadOnce


class Part:
    """The files of a folder, and which of them were read."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.read: list[str] = []

    def tensor_place(self, name: str) -> tuple[int, int] | None:
        path = self.folder / name
        return (path.stat().st_dev, path.stat().st_ino) if path.exists() else None

    def array(self, name: str) -> Any:
        self.read.append(name)
        return np.load(self.folder / name) if (self.folder / name).exists() else None


def test_a_file_by_two_names_is_read_once_and_the_oldest_arrays_make_room(tmp_path: Path) -> None:
    for name, value in (("a.npy", 1.0), ("c.npy", 3.0)):
        np.save(tmp_path / name, np.full(8, value))
    (tmp_path / "b.npy").hardlink_to(tmp_path / "a.npy")
    part = Part(tmp_path)
    files = ReadOnce(part, most_bytes=64)  # type: ignore[arg-type]

    assert files.array("a.npy") is files.array("b.npy")
    assert files.array("c.npy")[0] == 3.0
    assert files.array("b.npy")[0] == 1.0
    assert files.array("gone.npy") is None
    assert files.array("gone.npy") is None

    assert part.read == ["a.npy", "c.npy", "b.npy", "gone.npy", "gone.npy"]
    files.forget()
    assert files.array("b.npy")[0] == 1.0
    assert part.read[5:] == ["b.npy"]
