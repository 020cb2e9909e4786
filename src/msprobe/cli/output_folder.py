"""Is a folder fit to be written to? Asked before the work, whose result would be lost otherwise."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Sequence
from pathlib import Path

from msprobe.errors import PathError, reason_of
from msprobe.messages import said
from msprobe.paths import StrPath, check_output_folder


def usable_output(path: StrPath, names: Sequence[str] = ()) -> Path:
    """The absolute form of a folder that files of these names can be written to; what there is stays as it is.

    Permissions do not show a read-only or a virtual file system, so a file without name is made for a moment. Raises
    PathError.
    """
    folder = check_output_folder(path)
    there = folder
    while not os.path.lexists(there) and there.parent != there:
        there = there.parent
    try:
        with tempfile.TemporaryFile(dir=there):
            pass
    except OSError as problem:
        raise PathError(said("output-folder-not-writable", path, reason_of(problem), there)) from None
    for name in names:
        if (folder / name).is_dir():
            raise PathError(said("output-file-is-folder", folder / name))
    return folder
