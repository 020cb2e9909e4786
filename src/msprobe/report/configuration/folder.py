"""The result folder: both packs unpacked, ``result.xlsx``, ``result.html`` and ``result.json``."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from msprobe.environment.configuration.comparison import ConfigurationComparison, Options, compare_packs, open_packs
from msprobe.environment.configuration.pack import is_entry
from msprobe.errors import PathError
from msprobe.messages import said
from msprobe.paths import StrPath, check_output_folder, make_folder_in, write_atomically
from msprobe.report.configuration.page import write_page
from msprobe.report.configuration.workbook import write_result

WORKBOOK, PAGE, RESULT = "result.xlsx", "result.html", "result.json"
_SIDES = ("bench", "cmp")
_MOST_OLD = 500_000


def compare_to_folder(
    bench: StrPath,
    cmp: StrPath,
    output: StrPath,
    options: Options = Options(),  # noqa: B008
) -> ConfigurationComparison:
    """Compare two packs and write the result. What is in the folder may be an earlier result, and nothing else.

    Nothing is written or removed before both packs are read. Raises PathError, InvalidInputError.
    """
    folder = check_output_folder(output)
    old = _earlier_result(folder)
    first, second = open_packs(bench, cmp)
    with first, second:
        result = compare_packs(first, second, options)
        for path in old:
            path.rmdir() if path.is_dir() else path.unlink()
        for side, pack in zip(_SIDES, (first, second), strict=True):
            pack.extract(make_folder_in(folder, side))
    write_result(folder / WORKBOOK, result)
    write_page(folder / PAGE, result)
    write_atomically(folder / RESULT, json.dumps(_as_json(result), indent=4).encode())
    return result


def _as_json(result: ConfigurationComparison) -> dict[str, Any]:
    """The answer for programs: its level, the findings, and what was compared."""
    findings = [
        {
            "part": finding.part,
            "name": finding.name,
            "level": finding.level,
            "bench": finding.bench,
            "cmp": finding.cmp,
            "why": finding.why,
        }
        for finding in result.findings
    ]
    return {"level": result.level, "findings": findings, "coverage": result.coverage.as_json()}


def _earlier_result(folder: Path) -> list[Path]:
    """The files and then the folders of an earlier result. Raises PathError if anything else is there."""
    if not folder.exists():
        return []
    files: list[Path] = []
    folders: list[Path] = []
    for path in folder.iterdir():
        if (
            path.is_symlink()
            or path.name not in (*_SIDES, WORKBOOK, PAGE, RESULT)
            or path.is_dir() != (path.name in _SIDES)
        ):
            raise _refused(folder, path)
        if path.name not in _SIDES:
            files.append(path)
            continue
        folders.append(path)
        for parent, names, own in os.walk(path):
            for name in names:
                inner = Path(parent, name)
                if inner.is_symlink():
                    raise _refused(folder, inner)
                folders.append(inner)
            for name in own:
                inner = Path(parent, name)
                if inner.is_symlink() or not is_entry(inner.relative_to(path).as_posix()) or len(files) > _MOST_OLD:
                    raise _refused(folder, inner)
                files.append(inner)
    return [*files, *reversed(folders)]


def _refused(folder: Path, path: Path) -> PathError:
    return PathError(said("folder-has-more-than-result", folder, path.relative_to(folder)))
